"""`feal deploy`: a federation of hospitals, each on its own machine."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.measure import Measurement

from feal.cli.app import app
from feal.cli.console import command_line, make_table, print_plain
from feal.errors import FealError

if TYPE_CHECKING:
    from flwr.proto.node_pb2 import NodeInfo

    from feal.federation.transport.flower_deployment import SiteStatus, StatusFile

deploy_app = typer.Typer(help="Run with hospitals on their own machines.", no_args_is_help=True)
app.add_typer(deploy_app, name="deploy")

HEARTBEATS_ONLINE = 2.0
"""Flower considers a site offline after this many heartbeat intervals."""
WIDEST_TABLE = 1000

Insecure = Annotated[
    bool, typer.Option("--insecure", help="Plain text and no keys; for trials on the loopback address only.")
]


@deploy_app.command(
    epilog="Example: `feal deploy init consortium --address hub.example.org:9092 --site alder --site birch`"
)
def init(
    folder: Annotated[Path, typer.Argument(help="New folder.")],
    address: Annotated[str, typer.Option(help="HOST:PORT at which sites reach the coordinator.")],
    sites: Annotated[list[str], typer.Option("--site", help="Name of a site; repeat for each.")],
) -> None:
    """Write the settings, start scripts, commands that make certificates and keys, and a checklist."""
    from feal.federation.transport.deploy.config import write_consortium_files

    write_consortium_files(folder, address=address, sites=sites)
    print_plain(f"Next steps on each machine: {folder / 'CHECKLIST.md'}")


@deploy_app.command(
    epilog="Examples: `feal deploy coordinator coordinator` · `feal deploy coordinator . --host 0.0.0.0`"
)
def coordinator(
    folder: Annotated[Path, typer.Argument(help="Folder of coordinator.yaml.")] = Path(),
    host: Annotated[str | None, typer.Option(help="Address to listen on, instead of the one in the file.")] = None,
    port: Annotated[int | None, typer.Option(help="Port, instead of the one in the file.")] = None,
    insecure: Insecure = False,
) -> None:
    """Start Flower's SuperLink, which sites connect to and runs use; stop it with Ctrl-C."""
    _check_flower()
    from feal.federation.transport.deploy.config import read_coordinator_config
    from feal.federation.transport.deploy.superlink import serve_coordinator

    config = read_coordinator_config(folder, {"host": host, "port": port})

    def print_ready(address: str) -> None:
        security = "in plain text" if insecure else "with TLS"
        sites = ", ".join(sorted(config.settings.sites)) or "any site"
        print_plain(f"The coordinator listens at {address} {security}, for {sites}.")
        start = command_line("run", "PRESET", "transport=flower", f"transport.coordinator={config.folder}")
        print_plain(f"Start a run in another terminal: {start}")

    serve_coordinator(config, insecure=insecure, ready=print_ready, notify=print_plain)


@deploy_app.command(epilog="Example: `feal deploy site alder --data /data/prepared`")
def site(
    folder: Annotated[Path, typer.Argument(help="Folder of site.yaml.")] = Path(),
    data: Annotated[Path | None, typer.Option(help="Prepared folder with this site's data.")] = None,
    state: Annotated[Path | None, typer.Option(help="Folder for this site's labels, models and logs.")] = None,
    insecure: Insecure = False,
) -> None:
    """Start this site: Flower's SuperNode, which connects to the coordinator, and the worker for its messages."""
    _check_flower()
    from feal.federation.transport.deploy.config import read_site_config
    from feal.federation.transport.deploy.site_daemon import serve_site

    changes = {"data": data and str(data.absolute()), "state": state and str(state.absolute())}
    config = read_site_config(folder, changes)
    print_plain(f"Site {config.settings.name} keeps its labels, models and logs in {config.state}.")

    def print_line(text: str) -> None:
        print_plain(f"{time.strftime('%H:%M:%S')} {text}")

    serve_site(config, insecure=insecure, notify=print_line)


@deploy_app.command(epilog="Example: `feal deploy status coordinator`")
def status(folder: Annotated[Path, typer.Argument(help="Folder of coordinator.yaml.")] = Path()) -> None:
    """Show each site (connected, last seen, version, last message, labels) and the current run."""
    _check_flower()
    from feal.federation.coordinator.validation import sanitize
    from feal.federation.transport.deploy.config import read_coordinator_config
    from feal.federation.transport.flower_deployment import SiteStatus, read_site_status
    from feal.federation.transport.flower_link import SuperLinkClient

    config = read_coordinator_config(folder)
    with closing(SuperLinkClient(config)) as superlink:
        nodes = superlink.list_nodes()
    seen = read_site_status(config.status_file)
    statuses = seen.sites if seen is not None else {}
    security = " in plain text" if superlink.insecure else ""
    print_plain(f"The coordinator is running at {superlink.address}{security}.")
    if superlink.insecure:
        online = sum(node.status == "online" for node in nodes)
        print_plain(f"Sites connected: {online}; without keys their names are unknown until a run starts.")
    if seen is not None:
        print_plain(_describe_current_run(seen))
    registered = {node.name: node for node in nodes if node.name}
    names = sorted({*config.settings.sites, *statuses} if superlink.insecure else registered)
    _print_sites([_site_row(name, registered.get(name), statuses.get(name, SiteStatus())) for name in names])
    for name in names:
        if name in statuses and statuses[name].problem:
            print_plain(f"{name}: {sanitize(statuses[name].problem)}")


def _check_flower() -> None:
    if find_spec("flwr") is None:
        raise FealError("A deployment needs Flower: install it with `pip install 'feal[flower]'`.")


def _describe_current_run(status: StatusFile) -> str:
    from feal.cli.show import describe_run
    from feal.fileio import is_locked
    from feal.rundir.journal import Journal

    folder = Path(status.run)
    if not Journal(folder).has_state():
        return f"{folder}: not started yet, or moved."
    return f"{describe_run(folder)}{'; a process is working on it now' if is_locked(folder) else ''}."


def _site_row(name: str, node: NodeInfo | None, status: SiteStatus) -> dict[str, str]:
    from feal.federation.coordinator.validation import sanitize

    if node is None:
        connected = "?"
        last_seen = _format_age(datetime.fromisoformat(status.at)) if status.at else "-"
    else:
        connected = "yes" if node.status == "online" else "no" if node.last_activated_at else "never"
        last_seen = _format_last_seen(node)
    return {
        "site": name,
        "connected": connected,
        "last seen": last_seen,
        "version": sanitize(status.version) or "-",
        "last message": f"{status.message} {status.round}.{status.step}" if status.message else "-",
        "labels": "-" if status.labelled is None else str(status.labelled),
        "pending": "-" if status.pending is None else str(status.pending),
    }


def _print_sites(rows: Sequence[Mapping[str, str]]) -> None:
    """Print a table, or lines where the terminal is too narrow for it: nothing is cut off."""
    console = Console()
    table = make_table(rows[0] if rows else (), [row.values() for row in rows], words=5)
    width = Measurement.get(console, console.options.update(max_width=WIDEST_TABLE), table).maximum
    if width <= console.width:
        console.print(table)
    elif not console.is_terminal:
        Console(file=console.file, width=width).print(table)
    else:
        for row in rows:
            print_plain(f"{row['site']}: " + ", ".join(f"{key} {row[key]}" for key in list(row)[1:]))


def _format_last_seen(node: NodeInfo) -> str:
    if not node.last_activated_at:
        return "-"
    if node.status == "online":
        # Each heartbeat extends the time until which the site counts as online.
        seen = node.online_until - HEARTBEATS_ONLINE * node.heartbeat_interval
        return _format_age(datetime.fromtimestamp(seen, UTC))
    return _format_age(datetime.fromisoformat(node.last_deactivated_at))


def _format_age(past: datetime) -> str:
    """Format the time since then in the largest unit of which there are at least two."""
    seconds = max(0.0, datetime.now(UTC).timestamp() - past.timestamp())
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"
