"""Data sets by name, and where their prepared folders lie."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from feal.data.synthetic.dataset import SyntheticSet
from feal.data.synthetic.lesions import SyntheticLesions
from feal.data.synthetic.polyps import SyntheticPolyps
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


def locate(dataset: str, *, data: str | Path | None = None, synthetic: Mapping[str, Any] | None = None) -> Path:
    """The prepared folder of a data set, given by its name or as a folder itself.

    A synthetic set is drawn on first use, into a folder named by its parameters below `data`, `$FEAL_DATA` or
    the user's cache; parameters that it does not have, or that are None, are passed over.

    Raises:
        FealError: no such data set, a parameter out of range, a folder that cannot be written.
    """
    if dataset not in DATASETS.names() and Path(dataset).is_dir():
        return Path(dataset)
    kind = DATASETS.get(dataset)
    known = {field.name for field in fields(kind)}
    chosen = kind(**{key: value for key, value in (synthetic or {}).items() if key in known and value is not None})
    root = _cache(data) / f"{dataset}-{_fingerprint(chosen)}"
    if not (root / "manifest.json").exists():
        with in_turn(root.with_name(f".{root.name}.lock")):
            _draw(chosen, root)
    return root


def _draw(chosen: SyntheticSet, root: Path) -> None:
    for left_by_a_kill in root.parent.glob(f".{root.name}.*.partial"):
        shutil.rmtree(left_by_a_kill, ignore_errors=True)
    if not (root / "manifest.json").exists():
        chosen.write(root)


def _cache(data: str | Path | None) -> Path:
    if data is not None:
        return Path(data)
    if os.environ.get("FEAL_DATA"):
        return Path(os.environ["FEAL_DATA"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "feal"


def _fingerprint(chosen: SyntheticSet) -> str:
    content = json.dumps([chosen.version, asdict(chosen)], sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=6).hexdigest()
