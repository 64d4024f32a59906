"""`feal report` and `feal watch`: what a person sees of them on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from feal.analysis.report import contents, render
from feal.analysis.runs import read_runs
from feal.cli.tables import say
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
