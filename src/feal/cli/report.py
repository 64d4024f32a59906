"""`feal report`: one page about runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from feal.cli.console import print_plain

app = typer.Typer()


@app.command(
    epilog="Examples: `feal report runs -o report.html` · `feal report runs/feal-0 runs/random-0 --pictures`"
)
def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Run directories, or directories of them.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("report.html"),
    pictures: Annotated[
        bool, typer.Option("--pictures", help="Include thumbnails of selected images, which are patients'.")
    ] = False,
) -> None:
    """Write a report on runs, finished or not: one page for any browser, without a network."""
    from feal.analysis.report import build_report, render_page
    from feal.analysis.runs import read_runs
    from feal.fileio import write_text

    console = Console()
    made = build_report(read_runs(folders), pictures=pictures)
    write_text(out, render_page(made))
    for notice in made.notices:
        print_plain(console, notice, style="yellow")
    if made.conclusions is not None:
        print_plain(console, made.conclusions.headline, style="bold")
    print_plain(console, f"{out}  ({out.stat().st_size / 1e6:.1f} MB): open it in a browser; it needs no network.")
