"""`feal figure`: a figure of runs as a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from feal.analysis.figures import FIGURES, Rows, data_of
from feal.analysis.figures.style import saved
from feal.analysis.report.contents import notices
from feal.analysis.runs import read_runs
from feal.analysis.tables import write_table
from feal.cli.tables import command, say
from feal.errors import FealError, unknown
from feal.files import write_bytes

DRAWN = ("pdf", "svg", "png")


def list_figures() -> None:
    """Print every figure with a line."""
    table = Table("figure", "what it shows", box=None, header_style="bold")
    for name in FIGURES.names():
        table.add_row(name, FIGURES.summary(name))
    Console().print(table)


def draw_figure(name: str, places: Sequence[Path], *, out: Path | None, where: Sequence[str]) -> None:
    """Write a figure of all runs at or below the places, and say how to read it.

    Raises:
        FealError: no such figure, kind of file, column or value; no runs, or nothing in them to show.
    """
    figure = FIGURES.get(name)
    example = command("figure", name, *(places or [Path("runs")]), "-o", f"{name}.pdf")
    if not places or out is None:
        raise FealError(f"Say which runs and where to draw them: `{example}`.")
    kind = out.suffix.removeprefix(".").lower()
    if kind not in (*DRAWN, "csv"):
        raise FealError(
            f"{out} has no ending that says what to write: take .pdf, .svg, .png, or .csv for numbers."
        )
    runs = read_runs(places)
    rows = _only(data_of(figure, runs, pictures=True), where)
    if not rows:
        needs = getattr(figure, "needs", "a finished round")
        raise FealError(
            f"These runs hold nothing for {name}: it needs {needs}; `feal show` says how far a run is."
        )
    if kind == "csv":
        write_table(out, rows)
    else:
        write_bytes(out, saved(figure.printed(rows), format=kind))
    console = Console()
    for notice in notices(runs):
        say(console, notice, style="yellow")
    say(console, f"{out}: {figure.title}. {figure.reading}")


def _only(rows: Rows, where: Sequence[str]) -> Rows:
    for condition in where:
        column, equals, value = condition.partition("=")
        if not equals:
            raise FealError(f"--where {condition} is no condition: write COLUMN=VALUE, such as over=pooled.")
        if rows and column not in rows[0]:
            raise unknown("column", column, rows[0])
        known = {str(row[column]) for row in rows}
        if rows and value not in known:
            raise unknown(column, value, known)
        rows = [row for row in rows if str(row[column]) == value]
    return rows
