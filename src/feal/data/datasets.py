"""Data sets by name, drawn or prepared from a download, and where their prepared folders lie."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from feal.data.manifest import read_manifest
from feal.data.places import candidates, places, prepared_folder, sizes
from feal.data.preparation.downloads import DOWNLOADS
from feal.data.synthetic.dataset import SyntheticSet
from feal.data.synthetic.lesions import SyntheticLesions
from feal.data.synthetic.polyps import SyntheticPolyps
from feal.errors import FealError, unknown
from feal.files import in_turn
from feal.registry import Registry
from feal.settings import Settings

DATASETS: Registry[type[SyntheticSet]] = Registry("data set")
DATASETS.register(
    SyntheticLesions.name,
    summary="classification: six kinds of skin lesion, drawn by rule, at four centres that differ",
)(SyntheticLesions)
DATASETS.register(
    SyntheticPolyps.name, summary="segmentation: polyps on mucosa, drawn by rule, at four centres that differ"
)(SyntheticPolyps)


def located(settings: Settings, *, draw: bool = True) -> Path:
    """The prepared folder that a run with these settings works on; see `locate`."""
    return locate(
        settings.dataset,
        data=settings.data,
        size=settings.size,
        synthetic=settings.synthetic.model_dump(),
        draw=draw,
    )


def locate(
    dataset: str,
    *,
    data: str | Path | None = None,
    size: int | None = None,
    synthetic: Mapping[str, Any] | None = None,
    draw: bool = True,
) -> Path:
    """The prepared folder of a data set, given by its name or as a folder itself.

    A synthetic set is drawn on first use, into a folder named by its parameters below `data`, `$FEAL_DATA` or
    the user's cache (never if `draw` is off); parameters that it does not have, or that are None, are passed
    over. Any other is the folder `data`, or lies below `data`, or else below `$FEAL_DATA` or the cache, by its
    name, or by its name and `size` (`fed-isic-128`).

    Raises:
        FealError: no such data set, not prepared yet or in another size only (it says where it was looked for and
            what prepares it), a parameter out of range, a folder that cannot be written.
    """
    if dataset not in DATASETS.names():
        return _prepared(dataset, data, size)
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
    if dataset in (*DATASETS.names(), *DOWNLOADS.names()):
        return True
    return prepared_folder(dataset, data=data, size=None) is not None or bool(sizes(dataset, data=data))


def no_such_dataset(dataset: str) -> FealError:
    """The error for a name of nothing."""
    return unknown("data set", dataset, [*DATASETS.names(), *DOWNLOADS.names()])


def _prepared(dataset: str, data: str | Path | None, size: int | None) -> Path:
    found = prepared_folder(dataset, data=data, size=size)
    if found is not None:
        return found
    known = dataset in DOWNLOADS.names()
    there = sizes(dataset, data=data)
    if len(there) == 1 and size is None and not known:
        return next(iter(there.values()))  # one's own pictures have no usual size
    if there or known:
        raise _not_prepared(dataset, data, size, there)
    if not Path(dataset).is_dir():
        raise no_such_dataset(dataset)
    _check_size(Path(dataset), size)
    return Path(dataset)


def _not_prepared(dataset: str, data: str | Path | None, size: int | None, there: Mapping[int, Path]) -> FealError:
    looked = " and ".join(str(place) for place in candidates(dataset, data=data, size=size))
    at, option = ("", "") if size is None else (f" at {size} pixels", f" --size {size}")
    name = dataset if dataset in DOWNLOADS.names() else f"folder --name {dataset}"
    listed = ", ".join(f"size={side} in {folder}" for side, folder in there.items())
    return FealError(
        f"The data set {dataset} is not prepared{at} in {looked}: prepare it by "
        f"`feal data prepare {name} --from DOWNLOAD{option}`, "
        + (f"or take what there is ({listed})." if there else "or say where it lies by data=FOLDER.")
    )


def _check_size(folder: Path, size: int | None) -> None:
    if size is None:
        return
    manifest, _ = read_manifest(folder)
    if (manifest.height, manifest.width) != (size, size):
        raise FealError(
            f"{folder} holds images of {manifest.width} x {manifest.height} pixels, not of size={size}: "
            f"set size=null, or name a folder that was prepared with --size {size}."
        )


def _draw(chosen: SyntheticSet, root: Path) -> None:
    for left_by_a_kill in root.parent.glob(f".{root.name}.*.partial"):
        shutil.rmtree(left_by_a_kill, ignore_errors=True)
    if not (root / "manifest.json").exists():
        chosen.write(root)


def _fingerprint(chosen: SyntheticSet) -> str:
    content = json.dumps([chosen.version, asdict(chosen)], sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=6).hexdigest()
