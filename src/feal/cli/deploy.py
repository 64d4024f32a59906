"""`feal deploy`: a consortium of hospitals, each on its own machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Run with hospitals on their own machines.", no_args_is_help=True)

Insecure = Annotated[
    bool, typer.Option("--insecure", help="Plain text and no keys; for trials on the loopback address only.")
]


@app.callback()
def _deploy() -> None:
    """Run with hospitals on their own machines: Flower's SuperLink here, a SuperNode at every site."""


@app.command(
    epilog="Example: `feal deploy init consortium --address hub.example.org:9092 --site alder --site birch`"
)
def init(
    folder: Annotated[Path, typer.Argument(help="New folder.")],
    address: Annotated[str, typer.Option(help="HOST:PORT by which sites reach the coordinator.")],
    sites: Annotated[list[str], typer.Option("--site", help="The name of a site; once for each.")],
) -> None:
    """Write settings, start scripts, the commands that make certificates and keys, and a checklist."""
    from feal.cli.deploying import write_consortium

    write_consortium(folder, address=address, sites=sites)


@app.command(epilog="Examples: `feal deploy coordinator coordinator` · `feal deploy coordinator . --host 0.0.0.0`")
def coordinator(
    folder: Annotated[Path, typer.Argument(help="Folder of coordinator.yaml.")] = Path(),
    host: Annotated[str | None, typer.Option(help="Where to listen, in the place of the file's.")] = None,
    port: Annotated[int | None, typer.Option(help="The port, in the place of the file's.")] = None,
    insecure: Insecure = False,
) -> None:
    """Start Flower's SuperLink, which sites dial and runs go through; it goes on until it is interrupted."""
    from feal.cli.deploying import start_coordinator

    start_coordinator(folder, host=host, port=port, insecure=insecure)


@app.command(epilog="Example: `feal deploy site alder --data /data/prepared`")
def site(
    folder: Annotated[Path, typer.Argument(help="Folder of site.yaml.")] = Path(),
    data: Annotated[Path | None, typer.Option(help="Prepared folder with this site's data.")] = None,
    state: Annotated[Path | None, typer.Option(help="Folder for this site's labels, models and logs.")] = None,
    insecure: Insecure = False,
) -> None:
    """Start this site: Flower's SuperNode, which dials the coordinator, and what answers its messages."""
    from feal.cli.deploying import start_site

    start_site(folder, data=data, state=state, insecure=insecure)


@app.command(epilog="Example: `feal deploy status coordinator`")
def status(folder: Annotated[Path, typer.Argument(help="Folder of coordinator.yaml.")] = Path()) -> None:
    """Show the sites: connected or not, last seen, version, last message, labels awaited; and the run."""
    from feal.cli.consortium import show_status
    from feal.cli.deploying import check_installed

    check_installed()
    show_status(folder)
