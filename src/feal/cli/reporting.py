"""`feal report` and `feal watch`: what a person sees of them on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from feal.analysis.report import contents, render
from feal.analysis.report.watching import ADDRESS, Follower, serve
from feal.analysis.runs import read_runs
from feal.cli.tables import say
from feal.errors import FealError
from feal.files import write_text


def write_report(places: Sequence[Path], *, out: Path, pictures: bool) -> None:
    """Write a report over all runs at or below the places and print its first sentence."""
    console = Console()
    made = contents(read_runs(places), pictures=pictures)
    write_text(out, render(made))
    for notice in made.notices:
        say(console, notice, style="yellow")
    if made.answer is not None:
        say(console, made.answer.headline, style="bold")
    say(console, f"{out}  ({out.stat().st_size / 1e6:.1f} MB): open it in a browser, no network is needed.")


def watch_runs(place: Path, *, port: int) -> None:
    """Serve the live page until it is interrupted."""
    if not place.is_dir():
        raise FealError(f"There is no folder {place}: give a run directory, or a folder of them, full or empty.")
    with Follower(place) as follower, serve(follower, port=port) as server:
        where = f"http://{ADDRESS}:{server.server_port}/"
        say(Console(), f"{place} is shown live at {where} (this machine only); Ctrl-C ends it.")
        server.serve_forever(poll_interval=0.2)
