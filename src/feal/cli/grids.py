"""Tables of words on a screen, in parts where it is narrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from textwrap import wrap
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from feal.analysis.grids import Grid
from feal.cli.tables import say

WIDTH = 240
"""Letters in a line where output is no terminal, so that nothing is broken."""
NARROW = 10
"""Letters of a column whose heading is broken before its figures are."""
GAP = 3
"""Letters between columns, and the mark."""
MARKS = {1: ("¹", "bold"), 2: ("²", "underline")}


def wide_console() -> Console:
    """The terminal as it is, or lines of `WIDTH` where output goes elsewhere."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def show_grid(console: Console, grid: Grid) -> None:
    """Print a table below its title."""
    say(console, grid.title)
    for number, part in enumerate(_fitting(grid, console.width)):
        console.print(*([""] if number else []), _rich(part), sep="\n")


def _fitting(grid: Grid, width: int) -> Iterator[Grid]:
    """The grid in parts that a screen is wide enough for, each with the names."""
    widths = [
        GAP + max(len(cell) for cell in (*_lines(grid, at), *(row[at].text for row in grid.rows)))
        for at in range(len(grid.heading))
    ]
    names, room = list(range(grid.names)), width - sum(widths[: grid.names])
    part: list[int] = []
    for at in range(grid.names, len(grid.heading)):
        if part and sum(widths[column] for column in (*part, at)) > room:
            yield _columns(grid, [*names, *part])
            part = []
        part.append(at)
    yield _columns(grid, [*names, *part])


def _columns(grid: Grid, columns: Sequence[int]) -> Grid:
    rows = tuple(tuple(row[at] for at in columns) for row in grid.rows)
    return replace(grid, heading=tuple(grid.heading[at] for at in columns), rows=rows)


def _lines(grid: Grid, column: int) -> list[str]:
    """A heading, broken to be not much wider than what stands below."""
    width = max((len(row[column].text) for row in grid.rows), default=0)
    return wrap(grid.heading[column], max(width, NARROW))


def _rich(grid: Grid) -> Table:
    table = Table(box=None, header_style="bold")
    for number in range(len(grid.heading)):
        side: Literal["left", "right"] = "left" if number < grid.names else "right"
        table.add_column("\n".join(_lines(grid, number)), justify=side, vertical="bottom")
    for number, row in enumerate(grid.rows, start=1):
        cells = [Text(entry.text) for entry in row]
        for cell, entry in zip(cells[grid.names :], row[grid.names :], strict=True):
            mark, style = MARKS.get(entry.rank or 0, (" ", ""))
            cell.stylize(style)
            cell.append(mark)
        table.add_row(*cells, end_section=number == grid.above)
    return table
