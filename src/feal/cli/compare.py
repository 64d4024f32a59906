"""`feal compare`: the paper's tables from run directories, and what the paper lacks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from feal.analysis.arms import arms_of
from feal.analysis.by_round import by_round
from feal.analysis.curves import Over
from feal.analysis.grids import Grid, latex, markdown
from feal.analysis.runs import Run, find_runs, read_runs
from feal.analysis.tables import table_text
from feal.analysis.tables_of_arms import round_grid, tidy_rows, verdict_grid
from feal.analysis.verdicts import verdicts
from feal.cli.tables import say

Form = Literal["table", "markdown", "latex", "csv"]
WIDTH = 240
"""Letters in a line where output is no terminal, so that nothing is broken."""
NARROW = 10
"""Letters of a column whose heading is broken before its figures are."""
GAP = 3
"""Letters between columns, and the mark."""
MARKS = {1: ("¹", "bold"), 2: ("²", "underline")}


def compare(
    places: Sequence[Path], *, metric: str | None, over: Over, form: Form, to: str | None, share: float
) -> None:
    """Print arms by round, what they come to, and what a reader must know beside.

    Raises:
        FealError: no runs, runs of different experiments, an unknown metric or arm.
    """
    runs = read_runs(places)
    arms = arms_of(runs)
    table = by_round(arms, metric=metric, over=over)
    found = verdicts(arms, metric=metric, over=over, share=share, to=to)
    opening = _opening(runs, len(find_runs(places)) - len(runs))
    remarks = [*(remark for arm in arms for remark in arm.remarks()), *found.remarks]
    grids = [round_grid(table), *([verdict_grid(found)] if found.lines else [])]
    if form == "csv":
        sys.stdout.write(table_text(tidy_rows(table, found)))
        sys.stderr.write("".join(f"{remark}\n" for remark in remarks))
    elif form == "table":
        _show(opening, grids, found.sentences, remarks)
    else:
        write, item, opening = (markdown, "- ", opening) if form == "markdown" else (latex, "% ", f"% {opening}")
        said = "\n".join(item + sentence for sentence in (*found.sentences, *remarks))
        print("\n\n".join([opening, *map(write, grids), *([said] if said else [])]))


def _opening(runs: Sequence[Run], not_begun: int) -> str:
    """What is compared, in a line."""
    counted = {
        "finished": sum(run.status == "finished" for run in runs),
        "unfinished": sum(run.status == "unfinished" for run in runs),
        "waiting for labels": sum(run.status == "waiting" for run in runs),
        "not begun": not_begun,
    }
    settings = runs[0].settings
    how_many = ", ".join(f"{number} {what}" for what, number in counted.items() if number)
    return f"{len(runs) + not_begun} runs ({how_many}) of {settings.dataset} with {settings.model}"


def _show(opening: str, grids: Sequence[Grid], sentences: Sequence[str], remarks: Sequence[str]) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    say(console, opening)
    for grid in grids:
        say(console, f"\n{grid.title}")
        for number, part in enumerate(_fitting(grid, console.width)):
            console.print(*([""] if number else []), _rich(part), sep="\n")
    if any(entry.rank for row in grids[0].rows for entry in row):
        say(console, "\n¹ best and ² second best of a round, but for full")
    if sentences:
        say(console, "\n" + "\n".join(sentences))
    if remarks:
        say(console, "\n" + "\n".join(f"Note: {remark}" for remark in remarks), style="yellow")


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
