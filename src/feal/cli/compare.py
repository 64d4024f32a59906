"""`feal compare`: arms by round, and their differences with intervals."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from feal.cli.app import app
from feal.cli.console import RunDirectories, print_plain

if TYPE_CHECKING:
    from feal.analysis.runs import RunCollection
    from feal.analysis.tables import Grid

LINE_WIDTH = 240
"""Characters in a line where the output is not a terminal, so that no table is broken."""
HEADING_WIDTH = 10
"""Characters of a heading that are never broken, even if the numbers below are narrower."""
COLUMN_GAP = 3
"""Characters between columns, and the mark of the rank."""
RANK_MARKS = {1: ("¹", "bold"), 2: ("²", "underline")}


@app.command(
    "compare",
    epilog="Examples: `feal compare runs/demo-sweep` · "
    "`feal compare runs/demo-sweep --metric accuracy --over mean` · "
    "`feal compare runs/one runs/other --to 'entropy global' --format markdown`",
)
def compare_command(
    folders: RunDirectories,
    metric: Annotated[
        str | None, typer.Option(help="A metric of the runs; the task's primary one by default.")
    ] = None,
    over: Annotated[
        Literal["pooled", "mean"], typer.Option(help="All sites' test samples, or the mean of the sites' values.")
    ] = "pooled",
    format_: Annotated[
        Literal["table", "markdown", "latex", "csv"], typer.Option("--format", help="What to print.")
    ] = "table",
    to: Annotated[str | None, typer.Option(help="Reference arm; random by default.")] = None,
    share: Annotated[float, typer.Option(help="Share of full supervision's value to reach.")] = 0.95,
) -> None:
    """Compare runs: arms by round over seeds, and their differences with intervals."""
    from feal.analysis.arms import make_arms
    from feal.analysis.compare import compare_arms
    from feal.analysis.conclusions import describe_best_arm
    from feal.analysis.runs import read_runs
    from feal.analysis.tables import Grid, make_comparison_grid, make_round_grid, tabulate_rounds, to_csv, to_rows

    runs = read_runs(folders)
    arms = make_arms(runs)
    table = tabulate_rounds(arms, metric=metric, over=over)
    found = compare_arms(arms, metric=metric, over=over, share=share, to=to)
    title = _describe_runs(runs)
    sentences = (*describe_best_arm(found), *found.sentences)
    remarks = [*runs.left_out, *(remark for arm in arms for remark in arm.remarks()), *found.remarks]
    grids = [make_round_grid(table), *([make_comparison_grid(found)] if found.results else [])]
    if format_ == "csv":
        sys.stdout.write(to_csv(to_rows(table, found)))
        sys.stderr.write("".join(f"{remark}\n" for remark in remarks))
    elif format_ == "table":
        _print_comparison(title, grids, sentences, remarks)
    else:
        write, item, prefix = (
            (Grid.to_markdown, "- ", "") if format_ == "markdown" else (Grid.to_latex, "% ", "% ")
        )
        notes = "\n".join(item + sentence for sentence in (*sentences, *remarks))
        print("\n\n".join([prefix + title, *map(write, grids), *([notes] if notes else [])]))


def _describe_runs(runs: RunCollection) -> str:
    """Describe in one line what is compared."""
    from feal.plugins import short_name

    found = Counter(run.status for run in runs)
    counts = {
        "finished": found["finished"],
        "unfinished": found["unfinished"],
        "waiting for labels": found["waiting"],
        "not started": runs.not_started,
        "left out": runs.unused,
    }
    settings = runs[0].settings
    by_status = ", ".join(f"{number} {status}" for status, number in counts.items() if number)
    of_what = f"{settings.dataset.name} with {short_name(settings.model.name)}"
    return f"{sum(counts.values())} runs ({by_status}) of {of_what}"


def _print_comparison(title: str, grids: Sequence[Grid], sentences: Sequence[str], remarks: Sequence[str]) -> None:
    console = Console()
    console = console if console.is_terminal else Console(width=LINE_WIDTH)
    print_plain(title)
    for grid in grids:
        console.print()
        _print_grid(console, grid)
    if any(entry.rank for row in grids[0].rows for entry in row):
        print_plain("\n¹ best and ² second best of a round, full excepted")
    if sentences:
        print_plain("\n" + "\n".join(sentences))
    if remarks:
        print_plain("\n" + "\n".join(f"Note: {remark}" for remark in remarks), style="yellow")


def _print_grid(console: Console, grid: Grid) -> None:
    """Print a table below its title, in parts if the terminal is too narrow."""
    print_plain(grid.title)
    for number, part in enumerate(_split_grid(grid, console.width)):
        console.print(*([""] if number else []), _make_table(part), sep="\n")


def _split_grid(grid: Grid, width: int) -> Iterator[Grid]:
    """Split a grid by columns into parts that fit the width; each part repeats the names."""
    widths = [
        COLUMN_GAP + max(len(cell) for cell in (*_wrap_heading(grid, at), *(row[at].text for row in grid.rows)))
        for at in range(len(grid.heading))
    ]
    names, room = list(range(grid.names)), width - sum(widths[: grid.names])
    part: list[int] = []
    for at in range(grid.names, len(grid.heading)):
        if part and sum(widths[column] for column in (*part, at)) > room:
            yield _take_columns(grid, [*names, *part])
            part = []
        part.append(at)
    yield _take_columns(grid, [*names, *part])


def _take_columns(grid: Grid, columns: Sequence[int]) -> Grid:
    rows = tuple(tuple(row[at] for at in columns) for row in grid.rows)
    return replace(grid, heading=tuple(grid.heading[at] for at in columns), rows=rows)


def _wrap_heading(grid: Grid, column: int) -> list[str]:
    """Wrap a heading so that it is not much wider than the cells below."""
    width = max((len(row[column].text) for row in grid.rows), default=0)
    return wrap(grid.heading[column], max(width, HEADING_WIDTH))


def _make_table(grid: Grid) -> Table:
    table = Table(box=None)
    for number in range(len(grid.heading)):
        side: Literal["left", "right"] = "left" if number < grid.names else "right"
        table.add_column("\n".join(_wrap_heading(grid, number)), justify=side, vertical="bottom")
    for row in grid.rows:
        cells = [Text(entry.text) for entry in row]
        for cell, entry in zip(cells[grid.names :], row[grid.names :], strict=True):
            mark, style = RANK_MARKS.get(entry.rank or 0, (" ", ""))
            cell.stylize(style)
            cell.append(mark)
        table.add_row(*cells)
    return table
