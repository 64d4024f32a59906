"""`feal report` and `feal watch`: one page about runs, as a file or live in a browser."""

from pathlib import Path
from typing import Annotated

import typer

from feal.cli.app import app
from feal.cli.console import RunDirectories, print_plain
from feal.errors import FealError


@app.command(
    epilog="Examples: `feal report runs -o report.html` · `feal report runs/feal-0 runs/random-0 --pictures`"
)
def report(
    folders: RunDirectories,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("report.html"),
    pictures: Annotated[
        bool, typer.Option("--pictures", help="Include thumbnails of selected images, which are patients'.")
    ] = False,
) -> None:
    """Write a report on runs, finished or not: one page for any browser, without a network."""
    from feal.analysis.report.build import build_report, render_page
    from feal.analysis.runs import read_runs
    from feal.fileio import write_text

    made = build_report(read_runs(folders), pictures=pictures)
    write_text(out, render_page(made))
    for notice in made.notices:
        print_plain(notice, style="yellow")
    if made.conclusions is not None:
        print_plain(made.conclusions.headline, style="bold")
    print_plain(f"{out}  ({out.stat().st_size / 1e6:.1f} MB): open it in a browser; it needs no network.")


@app.command(epilog="Examples: `feal watch runs` · `feal watch runs/demo-feal-0 --port 8100`")
def watch(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory, or a directory of them.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="A free one by default.")] = 0,
) -> None:
    """Show runs live in a browser on this machine: their progress, and the report so far."""
    from feal.analysis.report.server import ADDRESS, LiveReport, open_server

    if not folder.is_dir():
        raise FealError(
            f"There is no directory {folder}: give a run directory, or a directory of them, which may be empty."
        )
    with LiveReport(folder) as live, open_server(live, port=port) as server:
        address = f"http://{ADDRESS}:{server.server_port}/"
        print_plain(f"{folder} is shown live at {address} (this machine only); stop with Ctrl-C.")
        server.serve_forever(poll_interval=0.2)
