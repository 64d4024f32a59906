"""Tables that people write in a spreadsheet or an editor: read with patience, refused in words."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from feal.errors import FealError

_DELIMITERS = ",;\t"
_LARGEST = 64 * 2**20


@dataclass(frozen=True)
class Line:
    """A line of a table that is not blank: its cells by column, empty where it is too short."""

    number: int
    cells: Mapping[str, str]
    problem: str = ""
    """Why its cells cannot be trusted."""


def read_sheet(path: Path, *, needed: Sequence[str], optional: Sequence[str] = ()) -> list[Line]:
    """Read a table's lines: UTF-8, UTF-16 or Latin-1; comma, semicolon or tab; any line ends.

    Names of columns are read without regard to case, other columns are left out.

    Raises:
        FealError: the file as a whole cannot be read, in words for whoever wrote it.
    """
    text = _text(path)
    delimiter = max(_DELIMITERS, key=lambda sign: _fit(text, sign, needed))
    header = _header(text, delimiter)
    if not header:
        raise FealError(f"This file is empty: it needs the columns {' and '.join(needed)}.")
    for name in (*needed, *optional):
        if header.count(name) > 1:
            raise FealError(f"The column '{name}' is there twice: keep one of them.")
    for name in needed:
        if name not in header:
            raise FealError(f"There is no column '{name}' (found: {_shown(header)}): add it.")
    wanted = [(place, name) for place, name in enumerate(header) if name in (*needed, *optional)]
    return [
        Line(number, _cells(record, wanted), _problem(record, len(header)))
        for number, record in list(_records(text, delimiter))[1:]
    ]


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise FealError(f"This file cannot be read ({error.strerror}).") from None
    if len(data) > _LARGEST:
        raise FealError("This file is too large for a table of labels.")
    try:
        text = _decoded(data)
    except UnicodeDecodeError:
        raise FealError("This file is cut off or no text: save it again as CSV (UTF-8).") from None
    if "\0" in text:
        raise FealError("This file is no text (it holds NUL bytes): save it as CSV (UTF-8).")
    return text


def _decoded(data: bytes) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _fit(text: str, delimiter: str, needed: Sequence[str]) -> int:
    try:
        return len(set(needed) & set(_header(text, delimiter)))
    except FealError:
        return 0  # quotes that make no sense with this delimiter may do so with another


def _header(text: str, delimiter: str) -> list[str]:
    try:
        _, record = next(_records(text, delimiter))
    except StopIteration:
        return []
    return [cell.strip().casefold() for cell in record]


def _records(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Records that are not blank, each with the number of its first line."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    number = 1
    try:
        for record in reader:
            if any(cell.strip() for cell in record):
                yield number, record
            number = reader.line_num + 1
    except csv.Error as error:
        # Quotes decide what every later line means, so none of them can be trusted.
        raise FealError(
            f"From line {number} on this file cannot be read ({error}): mend the quotes, or save it to its end."
        ) from None


def _cells(record: Sequence[str], wanted: Sequence[tuple[int, str]]) -> dict[str, str]:
    return {name: record[place] if place < len(record) else "" for place, name in wanted}


def _problem(record: Sequence[str], columns: int) -> str:
    if any(cell.strip() for cell in record[columns:]):
        return (
            f"The line has more cells than the {columns} columns: put quotes around a cell that holds a separator."
        )
    return ""


def _shown(header: Sequence[str]) -> str:
    text = ", ".join(header)
    return text if len(text) <= 80 else f"{text[:77]}..."
