"""Folders and files of a download, found by name whatever the case of its letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from feal.data.preparation.decoding import PICTURES
from feal.errors import FealError


def visible(folder: Path) -> list[Path]:
    """What lies in a folder, sorted by name, without hidden files; nothing if there is no such folder."""
    if not folder.is_dir():
        return []
    shown = (entry for entry in folder.iterdir() if not entry.name.startswith("."))
    return sorted(shown, key=lambda entry: entry.name)


def named(folder: Path, *names: str) -> Path | None:
    """The file or folder in `folder` with one of these names, the first name that is there."""
    found = {entry.name.lower(): entry for entry in reversed(visible(folder))}
    return next((found[name.lower()] for name in names if name.lower() in found), None)


def home(folder: Path, names: Iterable[str], *, should_hold: str) -> Path:
    """Where a download's own folders lie: `folder` itself, or the first folder in it that has one of `names`.

    Raises:
        FealError: neither has any of them; the sentence says what the folder `should_hold`.
    """
    wanted = tuple(names)
    places = (folder, *(entry for entry in visible(folder) if entry.is_dir()))
    for place in places:
        if named(place, *wanted) is not None:
            return place
    raise FealError(f"{folder} should hold {should_hold}: name the folder of the download with --from.")


def site_folders(place: Path, names: Mapping[str, tuple[str, ...]]) -> tuple[dict[str, Path], list[str]]:
    """The folders of the sites that are there, by site, and the sites that are not; `names` are their folders'."""
    found = {site: named(place, *folders) for site, folders in names.items()}
    return (
        {site: folder for site, folder in found.items() if folder is not None},
        [site for site, folder in found.items() if folder is None],
    )


def sites_of(
    folder: Path, names: Mapping[str, tuple[str, ...]], *, should_hold: str
) -> tuple[dict[str, Path], list[str]]:
    """As `site_folders`, in the download's `home`; none of the sites there is a `FealError`."""
    every = [name for folders in names.values() for name in folders]
    return site_folders(home(folder, every, should_hold=should_hold), names)


def pictures(folder: Path) -> list[Path]:
    """The picture files of a folder, by their endings."""
    return with_endings(folder, PICTURES)


def with_endings(folder: Path, endings: tuple[str, ...]) -> list[Path]:
    """The files of a folder that end so, whatever the case."""
    return [entry for entry in visible(folder) if entry.name.lower().endswith(endings)]


def relative(path: Path, root: Path) -> str:
    """A file's name as a finding gives it: from the download's folder on, with slashes."""
    return path.relative_to(root).as_posix()
