"""Tables that come with a download, line by line."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from feal.data.preparation.contract import Split
from feal.errors import FealError


def lines(path: Path, *, columns: Sequence[str]) -> Iterator[dict[str, str]]:
    """The lines of a table by column, separated by commas or, if its first line has a tab, by tabs.

    Cells lose spaces around them; a cell that a short line lacks is empty.

    Raises:
        FealError: it cannot be read as text, or lacks one of `columns`.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            separator = "\t" if "\t" in file.readline() else ","
            file.seek(0)
            reader = csv.DictReader(file, delimiter=separator, restval="")
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise FealError(
                    f"The table {path} has no column {', '.join(missing)}: take it as its owners publish it."
                )
            for line in reader:
                yield {key: cell.strip() for key, cell in line.items() if isinstance(cell, str) and key}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FealError(f"The table {path} cannot be read ({error}): download it again.") from error


def whole_number(cell: str) -> int | None:
    """The number in a cell, also if it was saved as a decimal fraction; None if it is no whole number.

    >>> whole_number("3"), whole_number("3.0"), whole_number("3.5"), whole_number("")
    (3, 3, None, None)
    """
    try:
        value = float(cell)
    except ValueError:
        return None
    return int(value) if value.is_integer() else None


def split_named(cell: str) -> Split | None:
    """The side that a cell names, or None."""
    sides: dict[str, Split] = {"train": "train", "test": "test"}
    return sides.get(cell.lower())
