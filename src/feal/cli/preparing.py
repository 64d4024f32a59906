"""`feal data prepare`: what a person sees of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console

from feal.classes import class_named, short_name
from feal.cli.bars import Bar
from feal.cli.sheets import counts_table, findings_table
from feal.cli.tables import command, say
from feal.data import open_prepared
from feal.data.places import folder_name, places
from feal.data.preparation.contract import Download, Finding
from feal.data.preparation.downloads import DOWNLOADS
from feal.data.preparation.findings import FindingsError
from feal.data.preparation.own import own_pictures
from feal.data.preparation.preparing import prepare
from feal.data.preparation.reading import made
from feal.errors import FealError
from feal.settings import Task

FOLDER = "folder"
"""The name that stands for pictures of one's own."""

_SHOWN, _MEMBERS = 5, 4


@dataclass(frozen=True, kw_only=True)
class Own:
    """What a user says of pictures of his own."""

    task: Task | None
    name: str | None
    table: Path | None
    classes: Sequence[str]


class _Bar(Bar):
    interrupted = "Interrupted; what is decoded is kept: repeat the command to go on."


def prepare_dataset(
    name: str,
    source: Path,
    to: Path | None,
    *,
    own: Own,
    size: int | None,
    skip_bad: bool,
    processes: int | None,
) -> None:
    """Prepare a data set and print what it holds and what is to be known of it."""
    download = _download(name, source, own)
    to = to or places()[0] / folder_name(download.name, size=size, usual=download.size)
    console = Console()
    with showing_findings(), _Bar(console) as bar:
        outcome = prepare(
            download, source, to, size=size, processes=processes, skip_bad=skip_bad, progress=bar.moved
        )
    data = open_prepared(to)
    size_said = f"{data.width} x {data.height} pixels, {data.channels} channels"
    say(console, f"{data.name}: {data.task}, {size_said}\n", style="bold")
    console.print(counts_table(data))
    _tell(console, outcome.source)
    done = "is prepared" if outcome.fresh else "was prepared already, from the same files: nothing was done"
    say(console, f"\n{to} {done}")
    say(console, f"  look at it:  {command('data', 'show', to)}")


@contextmanager
def showing_findings() -> Iterator[None]:
    """Print all findings as a table before the sentence that ends the command."""
    try:
        yield
    except FindingsError as error:
        Console().print(findings_table(error.findings))
        raise


def _download(name: str, source: Path, own: Own) -> Download:
    if name == FOLDER:
        if own.task is None:
            raise FealError("Pictures of your own need a task: add --task classification or --task segmentation.")
        called = own.name or source.resolve().name
        return own_pictures(source, task=own.task, name=called, table=own.table, classes=own.classes)
    if own != Own(task=None, name=None, table=None, classes=[]):
        raise FealError(
            f"{short_name(name)} takes no --task, --name, --csv or --classes: those are for `{FOLDER}`."
        )
    found = class_named(name, registry=DOWNLOADS, base=Download, derive="feal.data.preparation.Download")
    return made(found)


def _tell(console: Console, source: Mapping[str, Any]) -> None:
    for site in source["absent"]:
        say(console, f"Warning: the site {site} is not in this folder.", style="yellow")
    for sentence in source["remarks"]:
        say(console, f"Note: {sentence}", style="yellow")
    for site, count in source["repeats"].items():
        say(console, f"Note: {count} pictures of site {site} repeat others of it pixel by pixel.", style="yellow")
    if source["left_out"]:
        say(console, f"\nLeft out, {len(source['left_out'])} findings (also in the manifest):", style="yellow")
        console.print(findings_table([Finding(**finding) for finding in source["left_out"]]))
    if source["leaks_found"]:
        count = source["leaks_found"]
        say(console, f"\nLeaks, {count} sets of like pictures across train and test or sites:", style="yellow")
        for leak in source["leaks"][:_SHOWN]:
            members = zip(leak["sites"], leak["splits"], leak["samples"], strict=True)
            shown = " = ".join(" ".join(member) for member in islice(members, _MEMBERS))
            more = f" and {leak['pictures'] - _MEMBERS} more" if leak["pictures"] > _MEMBERS else ""
            say(console, f"  {leak['kind']}: {shown}{more}")
        if count > _SHOWN:
            say(console, f"  ... see source.leaks in the manifest, which names {len(source['leaks'])} of them.")
