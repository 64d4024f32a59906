"""Validate a user-supplied data set class, and turn its exceptions into errors that name it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from feal.data.prepare.base import DatasetSource, DecodedSample, ScanResult, SourceRecord, UnusableFileError
from feal.errors import FealError
from feal.fileio import wrap_os_error
from feal.settings import Task


def create_source(kind: type[DatasetSource]) -> DatasetSource:
    """Create a source of this class after checking its attributes.

    Raises:
        FealError: an attribute is missing or invalid, or the constructor fails.
    """
    for name, fits, wanted in _ATTRIBUTES:
        if not fits(getattr(kind, name, None)):
            raise FealError(f"The data set {kind.__name__} needs the attribute `{name}`, {wanted}: add it.")
    try:
        return kind()
    except FealError:
        raise
    except Exception as error:
        raise _wrap_error(kind, "cannot be created", error) from error


def scan_source(dataset: DatasetSource, folder: Path) -> ScanResult:
    """Scan a folder, and check the result.

    Raises:
        FealError: the folder does not hold the data set, or `scan` fails or returns something invalid.
    """
    try:
        scan = dataset.scan(folder)
    except FealError:
        raise
    except OSError as error:
        raise wrap_os_error(error) from error
    except Exception as error:
        raise _wrap_error(type(dataset), f"fails to scan {folder}", error) from error
    if not isinstance(scan, ScanResult):
        raise FealError(
            f"`scan` of {type(dataset).__name__} returned a {type(scan).__name__}: it must return a ScanResult."
        )
    for record in scan.records:
        for name, kinds in _FIELDS.items():
            value = getattr(record, name, None)
            if not isinstance(value, kinds) or isinstance(value, bool):
                raise FealError(
                    f"`scan` of {type(dataset).__name__} returned a record ({getattr(record, 'image', record)}) "
                    f"whose `{name}` is {value!r}: it must be {_name_types(kinds)}."
                )
    return scan


def read_record(dataset: DatasetSource, record: SourceRecord, *, size: int) -> Sequence[DecodedSample]:
    """Decode a record, and check the result.

    Raises:
        UnusableFileError: the file cannot be used.
        FealError: its `read` fails in any other way or returns anything else than decoded samples.
    """
    try:
        samples = list(dataset.read(record, size=size))
    except (UnusableFileError, FealError):
        raise
    except OSError as error:
        at_fault = Path(error.filename) if isinstance(error.filename, str) else None
        raise UnusableFileError(f"cannot be read ({error.strerror or error})", file=at_fault) from error
    except Exception as error:
        raise _wrap_error(type(dataset), f"fails to read {record.image}", error) from error
    for sample in samples:
        if not isinstance(sample, DecodedSample) or not isinstance(sample.image, np.ndarray):
            raise FealError(
                f"`read` of {type(dataset).__name__} did not return decoded samples with array images for "
                f"{record.image}: correct the class."
            )
    return samples


def _wrap_error(kind: type[DatasetSource], failure: str, error: Exception) -> FealError:
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    return FealError(f"The data set {kind.__name__} {failure} ({reason}): correct the class.")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _are_names(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) > 1 and all(map(_is_text, value))


def _name_types(kinds: tuple[type, ...]) -> str:
    return " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)


_ATTRIBUTES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("name", _is_text, "a string"),
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
