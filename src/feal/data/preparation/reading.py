"""A data set's class, not taken at its word: what it says is checked, and what it raises is worded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from feal.data.preparation.contract import Download, Draft, Piece, Scan, UnfitError
from feal.errors import FealError
from feal.files import from_system
from feal.settings import Task


def made(kind: type[Download]) -> Download:
    """A data set of this class, with everything that the class must say of itself.

    Raises:
        FealError: an attribute is missing or of another kind, or the class cannot be made.
    """
    for name, fits, wanted in _ATTRIBUTES:
        if not fits(getattr(kind, name, None)):
            raise FealError(f"The data set {kind.__name__} needs the attribute `{name}`, {wanted}: add it.")
    try:
        return kind()
    except FealError:
        raise
    except Exception as error:
        raise _failed(kind, "cannot be made", error) from error


def scanned(download: Download, folder: Path) -> Scan:
    """What a data set finds in a folder.

    Raises:
        FealError: the folder does not hold it, or its `scan` fails or gives something else than it should.
    """
    try:
        scan = download.scan(folder)
    except FealError:
        raise
    except OSError as error:
        raise from_system(error) from error
    except Exception as error:
        raise _failed(type(download), f"fails to scan {folder}", error) from error
    if not isinstance(scan, Scan):
        raise FealError(f"`scan` of {type(download).__name__} gave a {type(scan).__name__}: a Scan is needed.")
    for draft in scan.drafts:
        for name, kinds in _FIELDS.items():
            value = getattr(draft, name, None)
            if not isinstance(value, kinds) or isinstance(value, bool):
                raise FealError(
                    f"`scan` of {type(download).__name__} gave a draft ({getattr(draft, 'image', draft)}) whose "
                    f"`{name}` is {value!r}: {_words(kinds)} is needed."
                )
    return scan


def read(download: Download, draft: Draft, *, size: int) -> Sequence[Piece]:
    """What a data set decodes from a draft.

    Raises:
        UnfitError: the file cannot be used.
        FealError: its `read` fails in any other way or gives something else than pieces.
    """
    try:
        pieces = list(download.read(draft, size=size))
    except (UnfitError, FealError):
        raise
    except OSError as error:
        at_fault = Path(error.filename) if isinstance(error.filename, str) else None
        raise UnfitError(f"cannot be read ({error.strerror or error})", file=at_fault) from error
    except Exception as error:
        raise _failed(type(download), f"fails to read {draft.image}", error) from error
    for piece in pieces:
        if not isinstance(piece, Piece) or not isinstance(piece.image, np.ndarray):
            raise FealError(
                f"`read` of {type(download).__name__} gave something else than pieces with arrays as images for "
                f"{draft.image}: mend the class."
            )
    return pieces


def _failed(kind: type[Download], doing: str, error: Exception) -> FealError:
    why = f"{type(error).__name__}: {error}".splitlines()[0]
    return FealError(f"The data set {kind.__name__} {doing} ({why}): mend the class.")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _are_names(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) > 1 and all(map(_is_text, value))


def _words(kinds: tuple[type, ...]) -> str:
    return " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)


_ATTRIBUTES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("name", _is_text, "a text"),
    ("task", lambda value: value in get_args(Task), "classification or segmentation"),
    ("classes", _are_names, "the names of two classes or more"),
    ("size", _is_size, "a whole number of pixels"),
)
_FIELDS: dict[str, tuple[type, ...]] = {
    "site": (str,),
    "id": (str,),
    "image": (Path,),
    "label": (int, np.integer, type(None)),
    "mask": (Path, type(None)),
    "group": (str, type(None)),
    "split": (str, type(None)),
}
