"""`feal compare`: the paper's tables from run directories, and what the paper lacks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from feal.analysis.arms import arms_of
from feal.analysis.by_round import by_round
from feal.analysis.curves import Over
from feal.analysis.grids import Grid, latex, markdown
from feal.analysis.leading import on_the_best
from feal.analysis.runs import Reading, read_runs
from feal.analysis.tables import table_text
from feal.analysis.tables_of_arms import round_grid, tidy_rows, verdict_grid
from feal.analysis.verdicts import verdicts
from feal.cli.grids import show_grid, wide_console
from feal.cli.tables import say

Form = Literal["table", "markdown", "latex", "csv"]


def compare(
    places: Sequence[Path], *, metric: str | None, over: Over, form: Form, to: str | None, share: float
) -> None:
    """Print arms by round, what they come to, and what a reader must know beside.

    Raises:
        FealError: no runs, runs of different experiments, an unknown metric or arm.
    """
    reading = read_runs(places)
    arms = arms_of(reading)
    table = by_round(arms, metric=metric, over=over)
    found = verdicts(arms, metric=metric, over=over, share=share, to=to)
    opening = _opening(reading)
    sentences = (*on_the_best(found), *found.sentences)
    remarks = [*reading.left_out, *(remark for arm in arms for remark in arm.remarks()), *found.remarks]
    grids = [round_grid(table), *([verdict_grid(found)] if found.lines else [])]
    if form == "csv":
        sys.stdout.write(table_text(tidy_rows(table, found)))
        sys.stderr.write("".join(f"{remark}\n" for remark in remarks))
    elif form == "table":
        _show(opening, grids, sentences, remarks)
    else:
        write, item, opening = (markdown, "- ", opening) if form == "markdown" else (latex, "% ", f"% {opening}")
        said = "\n".join(item + sentence for sentence in (*sentences, *remarks))
        print("\n\n".join([opening, *map(write, grids), *([said] if said else [])]))


def _opening(reading: Reading) -> str:
    """What is compared, in a line."""
    counted = {
        "finished": sum(run.status == "finished" for run in reading),
        "unfinished": sum(run.status == "unfinished" for run in reading),
        "waiting for labels": sum(run.status == "waiting" for run in reading),
        "not begun": reading.not_begun,
        "left out": reading.unused,
    }
    settings = reading[0].settings
    how_many = ", ".join(f"{number} {what}" for what, number in counted.items() if number)
    return f"{sum(counted.values())} runs ({how_many}) of {settings.dataset} with {settings.model}"


def _show(opening: str, grids: Sequence[Grid], sentences: Sequence[str], remarks: Sequence[str]) -> None:
    console = wide_console()
    say(console, opening)
    for grid in grids:
        console.print()
        show_grid(console, grid)
    if any(entry.rank for row in grids[0].rows for entry in row):
        say(console, "\n¹ best and ² second best of a round, but for full")
    if sentences:
        say(console, "\n" + "\n".join(sentences))
    if remarks:
        say(console, "\n" + "\n".join(f"Note: {remark}" for remark in remarks), style="yellow")
