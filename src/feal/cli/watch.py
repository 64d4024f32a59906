"""`feal watch`: runs live in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from feal.cli.console import print_plain
from feal.errors import FealError

app = typer.Typer()


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
        print_plain(Console(), f"{folder} is shown live at {address} (this machine only); stop with Ctrl-C.")
        server.serve_forever(poll_interval=0.2)
