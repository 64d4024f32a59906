"""Tables of words for people: made once, written as markdown, LaTeX or on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Entry(NamedTuple):
    """What stands in a cell, and whether it is the best (1) or the second best (2) of its column."""

    text: str
    rank: int | None = None


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table; the first `names` columns are words, the others figures."""

    title: str
    heading: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    names: int
    above: int = 0
    """Rows on top that are set apart."""

    def __post_init__(self) -> None:
        if any(len(row) != len(self.heading) for row in self.rows):
            raise ValueError("a row has more or fewer cells than the heading")


def markdown(grid: Grid) -> str:
    """A markdown table: the best bold, the second best underlined.

    >>> print(markdown(Grid(title="t", heading=("a", "b"), rows=((Entry("x|y"), Entry("1", 1)),), names=1)))
    t
    <BLANKLINE>
    | a | b |
    |---|--:|
    | x\\|y | **1** |
    """
    marks = {1: lambda text: f"**{text}**", 2: lambda text: f"<u>{text}</u>"}
    lines = [_marked(row, marks, lambda text: text.replace("|", "\\|")) for row in grid.rows]
    ruler = ["---"] * grid.names + ["--:"] * (len(grid.heading) - grid.names)
    table = [f"| {' | '.join(cells)} |" for cells in (list(grid.heading), *lines)]
    return "\n".join([grid.title, "", table[0], f"|{'|'.join(ruler)}|", *table[1:]])


def latex(grid: Grid) -> str:
    """A tabular with booktabs' rules: the best bold, the second best underlined.

    >>> print(latex(Grid(title="t", heading=("a_b", "c"), rows=((Entry("x"), Entry("1 ± 2", 2)),), names=1)))
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
    rows = [f"{' & '.join(_marked(row, marks, escaped))} \\\\" for row in grid.rows]
    if 0 < grid.above < len(rows):
        rows.insert(grid.above, "\\midrule")
    columns = "l" * grid.names + "r" * (len(grid.heading) - grid.names)
    return "\n".join(
        [
            f"% {grid.title}",
            f"\\begin{{tabular}}{{{columns}}}",
            "\\toprule",
            f"{' & '.join(map(escaped, grid.heading))} \\\\",
            "\\midrule",
            *rows,
            "\\bottomrule",
            "\\end{tabular}",
        ]
    )


def escaped(text: str) -> str:
    """A text for LaTeX.

    >>> escaped("95 % of a_b ± 1")
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


def _marked(
    row: Sequence[Entry], marks: dict[int, Callable[[str], str]], write: Callable[[str], str]
) -> list[str]:
    return [marks[entry.rank](write(entry.text)) if entry.rank else write(entry.text) for entry in row]
