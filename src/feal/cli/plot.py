"""`feal plot`: a plot of runs as a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from feal.cli.app import app
from feal.cli.console import command_line, make_table, print_plain
from feal.errors import FealError, unknown_name_error

if TYPE_CHECKING:
    from feal.analysis.plots import PlotRows
    from feal.analysis.plots.base import ImageFormat

IMAGE_FORMATS: dict[str, ImageFormat] = {"pdf": "pdf", "svg": "svg", "png": "png"}


@app.command(
    epilog="Examples: `feal plot` · `feal plot curves runs -o curves.pdf` · "
    "`feal plot curves runs -o hd95.svg --where metric=hd95 --where over=mean` · "
    "`feal plot cost runs -o cost.csv`"
)
def plot(
    name: Annotated[str | None, typer.Argument(help="A plot; without it all are listed.")] = None,
    folders: Annotated[list[Path] | None, typer.Argument(help="Run directories, or directories of them.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A .pdf, .svg or .png file; a .csv file for its numbers.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Only rows with this value; the .csv file shows the columns."),
    ] = None,
) -> None:
    """Draw a plot of runs for a publication, or write its numbers."""
    from feal.analysis.plots import PLOTS, read_plot_rows, save_plot
    from feal.analysis.report.build import list_notices
    from feal.analysis.runs import read_runs
    from feal.analysis.tables import write_csv
    from feal.fileio import write_bytes

    if name is None:
        known = [(name, PLOTS.summary(name)) for name in PLOTS.names()]
        Console().print(make_table(["plot", "what it shows"], known, words=2))
        return
    plot = PLOTS.get(name)
    if not folders or out is None:
        example = command_line("plot", name, *(folders or [Path("runs")]), "-o", f"{name}.pdf")
        raise FealError(f"Name the runs and the file to write: `{example}`.")
    kind = out.suffix.removeprefix(".").lower()
    if kind not in (*IMAGE_FORMATS, "csv"):
        raise FealError(f"{out} has no known file type: use .pdf, .svg or .png, or .csv for the numbers.")
    runs = read_runs(folders)
    rows = _filter_rows(read_plot_rows(plot, runs, pictures=True), where or [])
    if not rows:
        raise FealError(
            f"These runs hold nothing for {name}: it needs {plot.needs}; `feal show` shows how far a run is."
        )
    if kind == "csv":
        write_csv(out, rows)
    else:
        write_bytes(out, save_plot(plot.draw(rows), IMAGE_FORMATS[kind]))
    for notice in list_notices(runs):
        print_plain(notice, style="yellow")
    print_plain(f"{out}: {plot.title}. {plot.reading}")


def _filter_rows(rows: PlotRows, conditions: Sequence[str]) -> PlotRows:
    for condition in conditions:
        column, equals, value = condition.partition("=")
        if not equals:
            raise FealError(f"--where {condition} is not a condition: write COLUMN=VALUE, such as over=pooled.")
        if rows and column not in rows[0]:
            raise unknown_name_error("column", column, rows[0])
        known = {str(row[column]) for row in rows}
        if rows and value not in known:
            raise unknown_name_error(column, value, known)
        rows = [row for row in rows if str(row[column]) == value]
    return rows
