"""Read files that annotators write: safe paths, and tables from spreadsheets or editors."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from feal.errors import FealError

_UNFINISHED = (".part", ".tmp", "~")
_DESKTOP_FILES = ("thumbs.db", "desktop.ini")
_DELIMITERS = ",;\t"
_LARGEST = 64 * 2**20


@dataclass(frozen=True)
class SheetRow:
    """A row of a table that is not blank, with its cells by column; missing cells are empty."""

    number: int
    cells: Mapping[str, str]
    problem: str = ""
    """Why its cells cannot be used."""


def is_ignored(name: str) -> bool:
    """Return whether a file is hidden, incomplete, or created by a file browser.

    >>> [is_ignored(name) for name in (".x.png", "x.png.part", "~$answers.csv", "answers.csv")]
    [True, True, True, False]
    """
    return name.startswith((".", "~$")) or name.endswith(_UNFINISHED) or name.lower() in _DESKTOP_FILES


def is_inside(path: Path, root: Path) -> bool:
    """Return whether a path, links followed, exists at or below `root`."""
    try:
        return path.resolve(strict=True).is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # RuntimeError: links in a circle, before Python 3.13
        return False


def list_entries(folder: Path, root: Path) -> list[Path]:
    """List the files of a folder, sorted, without ignored ones; empty if there is no such folder.

    Raises:
        FealError: it is not a folder, leads out of `root`, or cannot be read; addressed to the annotator.
    """
    if not folder.exists() and not folder.is_symlink():
        return []
    if not is_inside(folder, root):
        raise FealError("This is a link out of the annotation folder: replace it by a folder.")
    try:
        return sorted(path for path in folder.iterdir() if not is_ignored(path.name))
    except NotADirectoryError:
        raise FealError("This must be a folder: move the file away.") from None
    except OSError as error:
        raise FealError(f"This folder cannot be read ({error.strerror}).") from None


def check_file(path: Path, root: Path) -> None:
    """Raise a `FealError`, addressed to the annotator, unless this is a regular file at or below `root`."""
    if not path.is_file():
        raise FealError("This is not a file: replace it by one, or remove it.")
    if not is_inside(path, root):
        raise FealError("This is a link out of the annotation folder: replace it by the file itself.")


def read_sheet(path: Path, *, needed: Sequence[str], optional: Sequence[str] = ()) -> list[SheetRow]:
    """Read the rows of a table: UTF-8, UTF-16 or Latin-1; comma, semicolon or tab; any line endings.

    Column names are case-insensitive, other columns are ignored.

    Raises:
        FealError: the file as a whole cannot be read; addressed to its author.
    """
    text = _read_text(path)
    delimiter = max(_DELIMITERS, key=lambda sign: _count_columns(text, sign, needed))
    header = _read_header(text, delimiter)
    if not header:
        raise FealError(f"This file is empty: it needs the columns {' and '.join(needed)}.")
    for name in (*needed, *optional):
        if header.count(name) > 1:
            raise FealError(f"The column '{name}' occurs twice: keep one of them.")
    for name in needed:
        if name not in header:
            raise FealError(f"There is no column '{name}' (found: {_shorten(header)}): add it.")
    wanted = [(place, name) for place, name in enumerate(header) if name in (*needed, *optional)]
    return [
        SheetRow(number, _select_cells(record, wanted), _find_problem(record, len(header)))
        for number, record in list(_records(text, delimiter))[1:]
    ]


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise FealError(f"This file cannot be read ({error.strerror}).") from None
    if len(data) > _LARGEST:
        raise FealError("This file is too large for a table of labels.")
    try:
        text = _decode(data)
    except UnicodeDecodeError:
        raise FealError("This file is truncated or not text: save it again as CSV (UTF-8).") from None
    if "\0" in text:
        raise FealError("This file is not text (it holds NUL bytes): save it as CSV (UTF-8).")
    return text


def _decode(data: bytes) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _count_columns(text: str, delimiter: str, needed: Sequence[str]) -> int:
    try:
        return len(set(needed) & set(_read_header(text, delimiter)))
    except FealError:
        return 0  # quotes that are invalid with this delimiter may be valid with another


def _read_header(text: str, delimiter: str) -> list[str]:
    try:
        _, record = next(_records(text, delimiter))
    except StopIteration:
        return []
    return [cell.strip().casefold() for cell in record]


def _records(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield records that are not blank, each with the number of its first line."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    number = 1
    try:
        for record in reader:
            if any(cell.strip() for cell in record):
                yield number, record
            number = reader.line_num + 1
    except csv.Error as error:
        # A broken quote changes the meaning of every later line, so none of them can be used.
        raise FealError(
            f"From line {number} on this file cannot be read ({error}): correct the quotes, or save it completely."
        ) from None


def _select_cells(record: Sequence[str], wanted: Sequence[tuple[int, str]]) -> dict[str, str]:
    return {name: record[place] if place < len(record) else "" for place, name in wanted}


def _find_problem(record: Sequence[str], columns: int) -> str:
    if any(cell.strip() for cell in record[columns:]):
        return f"The line has more cells than the {columns} columns: quote a cell that contains a separator."
    return ""


def _shorten(header: Sequence[str]) -> str:
    text = ", ".join(header)
    return text if len(text) <= 80 else f"{text[:77]}..."
