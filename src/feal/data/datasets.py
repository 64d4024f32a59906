"""Data sets by name, drawn or prepared from a download, and where their prepared folders lie."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from feal.data.manifest import FILE, is_name, read_manifest
from feal.data.preparation.downloads import DOWNLOADS
from feal.data.synthetic.dataset import SyntheticSet
from feal.data.synthetic.lesions import SyntheticLesions
from feal.data.synthetic.polyps import SyntheticPolyps
from feal.errors import FealError, unknown
from feal.files import in_turn
from feal.registry import Registry

DATASETS: Registry[type[SyntheticSet]] = Registry("data set")
DATASETS.register(
    SyntheticLesions.name,
    summary="classification: six kinds of skin lesion, drawn by rule, at four centres that differ",
)(SyntheticLesions)
DATASETS.register(
    SyntheticPolyps.name, summary="segmentation: polyps on mucosa, drawn by rule, at four centres that differ"
)(SyntheticPolyps)


def locate(
    dataset: str,
    *,
    data: str | Path | None = None,
    synthetic: Mapping[str, Any] | None = None,
    draw: bool = True,
) -> Path:
    """The prepared folder of a data set, given by its name or as a folder itself.

    A synthetic set is drawn on first use, into a folder named by its parameters below `data`, `$FEAL_DATA` or
    the user's cache (never if `draw` is off); parameters that it does not have, or that are None, are passed
    over. Any other is the folder
    `data`, or lies below `data`, or else below `$FEAL_DATA` or the cache, by its name.

    Raises:
        FealError: no such data set, not prepared yet (it says where it was looked for and what prepares it), a
            parameter out of range, a folder that cannot be written.
    """
    if dataset not in DATASETS.names():
        return _prepared(dataset, data)
    kind = DATASETS.get(dataset)
    known = {field.name for field in fields(kind)}
    chosen = kind(**{key: value for key, value in (synthetic or {}).items() if key in known and value is not None})
    root = (Path(data) if data is not None else places()[0]) / f"{dataset}-{_fingerprint(chosen)}"
    if not (root / "manifest.json").exists():
        if not draw:
            raise FealError(f"The data set {dataset} is not drawn in {root}: `feal run` draws it.")
        with in_turn(root.with_name(f".{root.name}.lock")):
            _draw(chosen, root)
    return root


def is_named(dataset: str, *, data: str | Path | None = None) -> bool:
    """Whether this is the name of a data set, known or prepared, rather than a path."""
    return dataset in (*DATASETS.names(), *DOWNLOADS.names()) or _found(dataset, data) is not None


def no_such_dataset(dataset: str) -> FealError:
    """The error for a name of nothing."""
    return unknown("data set", dataset, [*DATASETS.names(), *DOWNLOADS.names()])


def places() -> list[Path]:
    """Where prepared sets are kept: `$FEAL_DATA` if that is set, and the user's cache."""
    own = [Path(os.environ["FEAL_DATA"])] if os.environ.get("FEAL_DATA") else []
    return [*own, user_cache()]


def user_cache() -> Path:
    """The folder for what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "feal"


def _prepared(dataset: str, data: str | Path | None) -> Path:
    found = _found(dataset, data)
    if found is not None:
        return found
    if dataset in DOWNLOADS.names():
        looked = " and ".join(str(place) for place in _candidates(dataset, data))
        raise FealError(
            f"The data set {dataset} is not prepared in {looked}: prepare it by "
            f"`feal data prepare {dataset} --from DOWNLOAD` (with the --size that its preset names, if any), "
            "or say where it lies by data=FOLDER."
        )
    if Path(dataset).is_dir():
        return Path(dataset)
    raise no_such_dataset(dataset)


def _found(dataset: str, data: str | Path | None) -> Path | None:
    if not is_name(dataset):
        return None
    for place in _candidates(dataset, data):
        if (place / FILE).is_file() and (place.name == dataset or read_manifest(place)[0].name == dataset):
            return place
    return None


def _candidates(dataset: str, data: str | Path | None) -> list[Path]:
    if data is not None:
        return [Path(data), Path(data) / dataset]
    return [place / dataset for place in places()]


def _draw(chosen: SyntheticSet, root: Path) -> None:
    for left_by_a_kill in root.parent.glob(f".{root.name}.*.partial"):
        shutil.rmtree(left_by_a_kill, ignore_errors=True)
    if not (root / "manifest.json").exists():
        chosen.write(root)


def _fingerprint(chosen: SyntheticSet) -> str:
    content = json.dumps([chosen.version, asdict(chosen)], sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=6).hexdigest()
