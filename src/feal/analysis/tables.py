"""Tables as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from feal.files import write_text

_DIGITS = 6
"""Significant ones."""


def table_text(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows with the same keys as CSV: a heading, six significant digits, nothing for None and NaN."""
    table = io.StringIO()
    writer = csv.DictWriter(table, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return table.getvalue()


def write_table(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows as a CSV file, see `table_text`."""
    write_text(path, table_text(rows))


def _cell(value: object) -> object:
    if not isinstance(value, float):
        return value
    return None if math.isnan(value) else f"{value:.{_DIGITS}g}"
