"""Where prepared data sets lie, by their names and sizes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from feal.data.manifest import FILE, is_name, read_manifest
from feal.errors import FealError


def places() -> list[Path]:
    """Where prepared sets are kept: `$FEAL_DATA` if that is set, and the user's cache."""
    own = [Path(os.environ["FEAL_DATA"])] if os.environ.get("FEAL_DATA") else []
    return [*own, user_cache()]


def user_cache() -> Path:
    """The folder for what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "feal"


def folder_name(name: str, *, size: int | None, usual: int) -> str:
    """What the folder of a set is called: by its name, and by its size if that is not the `usual` one.

    >>> folder_name("fed-isic", size=None, usual=224), folder_name("fed-isic", size=128, usual=224)
    ('fed-isic', 'fed-isic-128')
    """
    return name if size in (None, usual) else f"{name}-{size}"


def prepared_folder(dataset: str, *, data: str | Path | None, size: int | None) -> Path | None:
    """The folder of a prepared set by its name: of that size, or the one that bears the name alone."""
    if not is_name(dataset):
        return None
    for folder in candidates(dataset, data=data, size=size):
        if _is_of(folder, dataset) and (size is None or side(folder) == size):
            return folder
    return None


def candidates(dataset: str, *, data: str | Path | None, size: int | None) -> list[Path]:
    """Where a set is looked for, in order."""
    names = [dataset] if size is None else [f"{dataset}-{size}", dataset]
    below = [place / name for place in _roots(data) for name in names]
    return below if data is None else [Path(data), *below]


def sizes(dataset: str, *, data: str | Path | None) -> dict[int, Path]:
    """The prepared folders of a data set by their size, wherever it is looked for."""
    found: dict[int, Path] = {}
    for folder in _all(dataset, data) if is_name(dataset) else ():
        try:
            if _is_of(folder, dataset):
                found.setdefault(side(folder), folder)
        except FealError:
            continue  # a damaged one is no help
    return dict(sorted(found.items()))


def side(folder: Path) -> int:
    """Height and width of a prepared set's images; 0 if these differ."""
    manifest, _ = read_manifest(folder)
    return manifest.height if manifest.height == manifest.width else 0


def _all(dataset: str, data: str | Path | None) -> Iterator[Path]:
    yield from candidates(dataset, data=data, size=None)
    sized = re.compile(re.escape(dataset) + r"-\d+")
    for place in _roots(data):
        if place.is_dir():
            yield from sorted(path for path in place.iterdir() if sized.fullmatch(path.name))


def _roots(data: str | Path | None) -> list[Path]:
    return places() if data is None else [Path(data)]


def _is_of(folder: Path, dataset: str) -> bool:
    return (folder / FILE).is_file() and (folder.name == dataset or read_manifest(folder)[0].name == dataset)
