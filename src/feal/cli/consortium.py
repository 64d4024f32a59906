"""`feal deploy status`: which sites are there, what was heard of them, and where the run stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from feal.cli.standing import headline
from feal.cli.tables import say
from feal.deployment.places import coordinator_place
from feal.deployment.seen import Heard, Seen, read_seen
from feal.experiment.folder import RunFolder, settings_of
from feal.federation.journal import Journal
from feal.federation.vetting import plain_words
from feal.files import is_locked

if TYPE_CHECKING:
    from flwr.proto.node_pb2 import NodeInfo

LEASE = 2.0
"""Heartbeats after which Flower takes a site for gone."""
WIDEST = 1000


def show_status(folder: Path) -> None:
    """Print the sites and the run that messages went through last."""
    from feal.federation.engines.flower_link import Directory

    place = coordinator_place(folder)
    with closing(Directory(place)) as directory:
        nodes = directory.registered()
    seen = read_seen(place.seen)
    words = seen.sites if seen is not None else {}
    console = Console()
    say(
        console,
        f"The coordinator at {directory.address} is at work{' in plain text' if directory.insecure else ''}.",
    )
    if directory.insecure:
        there = sum(node.status == "online" for node in nodes)
        say(console, f"Sites connected: {there}; without keys nobody knows which before a run asks them.")
    if seen is not None:
        say(console, _run(seen))
    known = {node.name: node for node in nodes if node.name}
    names = sorted(known) if not directory.insecure else sorted({*place.settings.sites, *words})
    _show(console, [_row(name, known.get(name), words.get(name, Heard())) for name in names])
    for name in names:
        if name in words and words[name].problem:
            say(console, f"{name}: {plain_words(words[name].problem)}")


def _run(seen: Seen) -> str:
    path = Path(seen.run)
    journal = Journal(path)
    if not journal.begun():
        return f"{path}: not begun yet, or moved."
    line = headline(path, settings_of(RunFolder(path)), journal.load())
    return f"{line}{'; a process is working on it now' if is_locked(path) else ''}."


def _row(name: str, node: NodeInfo | None, words: Heard) -> dict[str, str]:
    connected = "?" if node is None else "yes" if node.status == "online" else "no"
    return {
        "site": name,
        "connected": connected if node is None or node.last_activated_at else "never",
        "last seen": _last_seen(node) if node is not None else _ago(_stamp(words.at)) if words.at else "-",
        "version": plain_words(words.version) or "-",
        "last message": f"{words.message} {words.round}.{words.step}" if words.message else "-",
        "labels": _count(words.labelled),
        "awaited": _count(words.pending),
    }


def _show(console: Console, rows: Sequence[Mapping[str, str]]) -> None:
    """A table where there is room for it, and lines where a terminal is too narrow: nothing is cut."""
    table = Table(box=None, header_style="bold")
    for heading in rows[0] if rows else ():
        table.add_column(heading, justify="right" if heading in ("labels", "awaited") else "left")
    for row in rows:
        table.add_row(*row.values())
    wide = console.options.update(max_width=WIDEST)
    width = Measurement.get(console, wide, table).maximum
    if width <= console.width:
        console.print(table)
    elif not console.is_terminal:
        Console(file=console.file, width=width).print(table)
    else:
        for row in rows:
            say(console, f"{row['site']}: " + ", ".join(f"{key} {row[key]}" for key in list(row)[1:]))


def _last_seen(node: NodeInfo) -> str:
    if not node.last_activated_at:
        return "-"
    if node.status == "online":
        # Each heartbeat prolongs the time that the site is taken for connected.
        return _ago(node.online_until - LEASE * node.heartbeat_interval)
    return _ago(_stamp(node.last_deactivated_at))


def _stamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _ago(stamp: float) -> str:
    """How long ago that was, in the largest unit that there are two of."""
    seconds = max(0.0, datetime.now(UTC).timestamp() - stamp)
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def _count(number: int | None) -> str:
    return "-" if number is None else str(number)
