"""Commands that read runs: compare, report, watch, figure, paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from feal.errors import FealError

app = typer.Typer()


@app.command(
    epilog="Examples: `feal compare runs/demo-sweep` · "
    "`feal compare runs/demo-sweep --metric accuracy --over mean` · "
    "`feal compare runs/one runs/other --to 'entropy global' --format markdown`"
)
def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run directories, or folders of them.")],
    metric: Annotated[str | None, typer.Option(help="A figure of the runs; the task's first by default.")] = None,
    over: Annotated[
        Literal["pooled", "mean"], typer.Option(help="All sites' test samples, or the mean of the sites' figures.")
    ] = "pooled",
    format_: Annotated[
        Literal["table", "markdown", "latex", "csv"], typer.Option("--format", help="What to print.")
    ] = "table",
    to: Annotated[str | None, typer.Option(help="Arm to hold the others against; random by default.")] = None,
    share: Annotated[float, typer.Option(help="Share of full supervision's figure that is to be reached.")] = 0.95,
) -> None:
    """Compare runs: arms by round over seeds, and how sure one can be of the differences."""
    from feal.cli.compare import compare as print_comparison

    print_comparison(folders, metric=metric, over=over, form=format_, to=to, share=share)


@app.command(
    epilog="Examples: `feal report runs -o report.html` · `feal report runs/feal-0 runs/random-0 --pictures`"
)
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run directories, or folders of them.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("report.html"),
    pictures: Annotated[
        bool, typer.Option("--pictures", help="Put thumbnails of chosen samples in: they are patients'.")
    ] = False,
) -> None:
    """Write one page about runs, finished or not, that opens in any browser without a network."""
    from feal.cli.reporting import write_report

    write_report(folders, out=out, pictures=pictures)


@app.command(epilog="Examples: `feal watch runs` · `feal watch runs/demo-feal-0 --port 8100`")
def watch(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory, or a folder of them.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="A free one by default.")] = 0,
) -> None:
    """Show runs live in a browser on this machine: progress, what they wait for, and the report so far."""
    from feal.cli.reporting import watch_runs

    watch_runs(folder, port=port)


@app.command(
    epilog="Examples: `feal figure` · `feal figure curves runs -o curves.pdf` · "
    "`feal figure curves runs -o hd95.svg --where metric=hd95 --where over=mean` · "
    "`feal figure cost runs -o cost.csv`"
)
def figure(
    name: Annotated[str | None, typer.Argument(help="Which one; all are listed without it.")] = None,
    folders: Annotated[list[Path] | None, typer.Argument(help="Run directories, or folders of them.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A .pdf, .svg or .png file; a .csv file for its numbers.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Only these of its numbers; see the .csv file."),
    ] = None,
) -> None:
    """Draw a figure of runs for a publication, or write its numbers."""
    from feal.cli.figures import draw_figure, list_figures

    if name is None:
        list_figures()
    else:
        draw_figure(name, folders or [], out=out, where=where or [])


@app.command(
    epilog="Examples: `feal paper` · `feal paper table-2` · `feal paper table-2 --runs runs/table-2` · "
    "`feal paper table-6 --runs runs/mine runs/hers --format markdown`"
)
def paper(
    name: Annotated[str | None, typer.Argument(help="A table or figure, such as table-2; all by default.")] = None,
    more: Annotated[list[Path] | None, typer.Argument(metavar="--runs DIR...", hidden=True)] = None,
    runs: Annotated[
        list[Path] | None,
        typer.Option("--runs", metavar="DIR...", help="Run directories, or folders of them, to put beside it."),
    ] = None,
    over: Annotated[
        Literal["mean", "pooled"],
        typer.Option(help="Ours: the mean of the sites' figures, or of all test samples together."),
    ] = "mean",
    format_: Annotated[
        Literal["table", "markdown", "csv"], typer.Option("--format", help="How to print it.")
    ] = "table",
) -> None:
    """Show every table and figure of the paper, the commands that make it, its numbers, and ours beside them."""
    if runs and name is not None:
        from feal.cli.paper_runs import show_beside

        show_beside(name, [*runs, *(more or [])], over=over, format=format_)
        return
    from feal.cli.paper import show_entries, show_entry

    if runs:
        raise FealError("--runs needs a table's name first: `feal paper table-2 --runs DIR`.")
    if more:
        raise FealError(f"'{more[0]}' is one word too many: run directories come after --runs.")
    if name is None:
        show_entries(format=format_)
    else:
        show_entry(name, format=format_)
