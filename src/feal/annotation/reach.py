"""What in a folder that people share is there to be read: nothing unfinished, nothing outside."""

from __future__ import annotations

from pathlib import Path

from feal.errors import FealError

_UNFINISHED = (".part", ".tmp", "~")
_FURNITURE = ("thumbs.db", "desktop.ini")


def passed_over(name: str) -> bool:
    """Whether a file is none of the annotator's: hidden, being written, or put there by a file browser.

    >>> [passed_over(name) for name in (".x.png", "x.png.part", "~$answers.csv", "answers.csv")]
    [True, True, True, False]
    """
    return name.startswith((".", "~$")) or name.endswith(_UNFINISHED) or name.lower() in _FURNITURE


def within(path: Path, root: Path) -> bool:
    """Whether a path leads, links followed, to something that exists at or below `root`."""
    try:
        return path.resolve(strict=True).is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # RuntimeError: links in a circle, before Python 3.13
        return False


def entries(folder: Path, root: Path) -> list[Path]:
    """What a folder holds for us, sorted; nothing if there is none.

    Raises:
        FealError: it is no folder, leads out of `root`, or cannot be read; in words for the annotator.
    """
    if not folder.exists() and not folder.is_symlink():
        return []
    if not within(folder, root):
        raise FealError("This is a link out of the annotation folder: put a real folder in its place.")
    try:
        return sorted(path for path in folder.iterdir() if not passed_over(path.name))
    except NotADirectoryError:
        raise FealError("This must be a folder: move the file away.") from None
    except OSError as error:
        raise FealError(f"This folder cannot be read ({error.strerror}).") from None


def check_file(path: Path, root: Path) -> None:
    """Raise a `FealError` in words for the annotator unless this is a plain file at or below `root`."""
    if not path.is_file():
        raise FealError("This is no file: put one in its place, or remove it.")
    if not within(path, root):
        raise FealError("This is a link out of the annotation folder: put the file itself here.")
