"""`feal deploy status`: which sites are there, what was heard of them, and where the run stands."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from feal.cli.standing import headline
from feal.cli.tables import say
from feal.deployment.places import coordinator_place
from feal.deployment.seen import Heard, Seen, read_seen
from feal.experiment.folder import RunFolder, settings_of
from feal.federation.journal import Journal
from feal.files import is_locked

if TYPE_CHECKING:
    from flwr.proto.node_pb2 import NodeInfo

LEASE = 2.0
"""Heartbeats after which Flower takes a site for gone."""


def show_status(folder: Path) -> None:
    """Print the sites and the run that messages went through last."""
    from feal.federation.engines.flower_link import Directory

    place = coordinator_place(folder)
    with closing(Directory(place)) as directory:
        nodes = {node.name: node for node in directory.registered() if node.name}
    seen = read_seen(place.seen)
    console = Console()
    say(console, f"The coordinator at {directory.address} is at work.")
    if seen is not None:
        say(console, _run(seen))
    console.print(_table(nodes, seen.sites if seen is not None else {}))
    for name, heard in sorted(seen.sites.items()) if seen is not None else ():
        if heard.problem:
            say(console, f"{name}: {heard.problem}")


def _run(seen: Seen) -> str:
    path = Path(seen.run)
    journal = Journal(path)
    if not journal.begun():
        return f"{path}: not begun yet, or moved."
    line = headline(path, settings_of(RunFolder(path)), journal.load())
    return f"{line}{'; a process is working on it now' if is_locked(path) else ''}."


def _table(nodes: Mapping[str, NodeInfo], heard: Mapping[str, Heard]) -> Table:
    table = Table(box=None, header_style="bold")
    for heading in ("site", "connected", "last seen", "version", "last message"):
        table.add_column(heading)
    for heading in ("labels", "awaited"):
        table.add_column(heading, justify="right")
    for name, node in sorted(nodes.items()):
        words = heard.get(name, Heard())
        table.add_row(
            name,
            "yes" if node.status == "online" else "never" if not node.last_activated_at else "no",
            _last_seen(node),
            words.version or "-",
            f"{words.message} {words.round}.{words.step}" if words.message else "-",
            _count(words.labelled),
            _count(words.pending),
        )
    return table


def _last_seen(node: NodeInfo) -> str:
    if not node.last_activated_at:
        return "-"
    if node.status == "online":
        # Each heartbeat prolongs the time that the site is taken for connected.
        return _ago(node.online_until - LEASE * node.heartbeat_interval)
    return _ago(datetime.fromisoformat(node.last_deactivated_at).timestamp())


def _ago(stamp: float) -> str:
    """How long ago that was, in the largest unit that there are two of."""
    seconds = max(0.0, datetime.now(UTC).timestamp() - stamp)
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def _count(number: int | None) -> str:
    return "-" if number is None else str(number)
