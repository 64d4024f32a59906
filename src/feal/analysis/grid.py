"""Tables of text, written as markdown, LaTeX or CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from feal.fileio import write_text

_DIGITS = 6
"""Significant digits in CSV."""


class Cell(NamedTuple):
    """A cell's text, and whether it is the best (1) or the second best (2) of its column."""

    text: str
    rank: int | None = None


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table; the first `names` columns are words, the others numbers."""

    title: str
    heading: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    names: int
    above: int = 0
    """Rows on top that a rule separates from the others."""

    def __post_init__(self) -> None:
        if any(len(row) != len(self.heading) for row in self.rows):
            raise ValueError("a row has more or fewer cells than the heading")


def to_markdown(grid: Grid) -> str:
    """Return a markdown table: the best bold, the second best underlined.

    >>> print(to_markdown(Grid(title="t", heading=("a", "b"), rows=((Cell("x|y"), Cell("1", 1)),), names=1)))
    t
    <BLANKLINE>
    | a | b |
    |---|--:|
    | x\\|y | **1** |
    """
    marks = {1: lambda text: f"**{text}**", 2: lambda text: f"<u>{text}</u>"}
    lines = [_mark_cells(row, marks, lambda text: text.replace("|", "\\|")) for row in grid.rows]
    ruler = ["---"] * grid.names + ["--:"] * (len(grid.heading) - grid.names)
    table = [f"| {' | '.join(cells)} |" for cells in (list(grid.heading), *lines)]
    return "\n".join([grid.title, "", table[0], f"|{'|'.join(ruler)}|", *table[1:]])


def to_latex(grid: Grid) -> str:
    """Return a tabular with booktabs' rules: the best bold, the second best underlined.

    >>> print(to_latex(Grid(title="t", heading=("a_b", "c"), rows=((Cell("x"), Cell("1 ± 2", 2)),), names=1)))
    % t
    \\begin{tabular}{lr}
    \\toprule
    a\\_b & c \\\\
    \\midrule
    x & \\underline{1 $\\pm$ 2} \\\\
    \\bottomrule
    \\end{tabular}
    """
    marks = {1: lambda text: f"\\textbf{{{text}}}", 2: lambda text: f"\\underline{{{text}}}"}
    rows = [f"{' & '.join(_mark_cells(row, marks, escape_latex))} \\\\" for row in grid.rows]
    if 0 < grid.above < len(rows):
        rows.insert(grid.above, "\\midrule")
    columns = "l" * grid.names + "r" * (len(grid.heading) - grid.names)
    return "\n".join(
        [
            f"% {grid.title}",
            f"\\begin{{tabular}}{{{columns}}}",
            "\\toprule",
            f"{' & '.join(map(escape_latex, grid.heading))} \\\\",
            "\\midrule",
            *rows,
            "\\bottomrule",
            "\\end{tabular}",
        ]
    )


def escape_latex(text: str) -> str:
    """Escape a text for LaTeX.

    >>> escape_latex("95 % of a_b ± 1")
    '95 \\\\% of a\\\\_b $\\\\pm$ 1'
    """
    for letter in "\\{}":
        text = text.replace(letter, {"\\": "\0", "{": "\\{", "}": "\\}"}[letter])
    for letter in "%_&#$":
        text = text.replace(letter, f"\\{letter}")
    others = {"\0": "\\textbackslash{}", "±": "$\\pm$", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"}
    for letter, written in others.items():
        text = text.replace(letter, written)
    return text


def to_csv(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows with the same keys as CSV: a heading, six significant digits, nothing for None and NaN."""
    table = io.StringIO()
    writer = csv.DictWriter(table, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _format_value(value) for key, value in row.items()} for row in rows)
    return table.getvalue()


def write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows as a CSV file, see `to_csv`."""
    write_text(path, to_csv(rows))


def _format_value(value: object) -> object:
    if not isinstance(value, float):
        return value
    return None if math.isnan(value) else f"{value:.{_DIGITS}g}"


def _mark_cells(
    row: Sequence[Cell], marks: dict[int, Callable[[str], str]], write: Callable[[str], str]
) -> list[str]:
    return [marks[cell.rank](write(cell.text)) if cell.rank else write(cell.text) for cell in row]
