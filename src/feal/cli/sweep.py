"""`feal sweep`: every combination of settings as a run of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from feal.cli.bars import Bar
from feal.cli.tables import command, say
from feal.config.combinations import planned
from feal.errors import FealError
from feal.experiment.folder import RunFolder
from feal.experiment.sweeping import Job, Onlooker, carry_out
from feal.models import device_named
from feal.processes import cores, free_memory

ROOM = 2 * 2**30
"""Bytes of free memory that a run is taken to need where nobody says how many at a time."""


def sweep(preset: str, words: Sequence[str], *, out: Path | None, at_a_time: int | None) -> bool:
    """Carry out what is not finished yet of all combinations; whether all are finished now.

    Raises:
        FealError: a mistake in the settings, or a folder that holds something else; nothing was begun then.
    """
    out = out or Path("runs") / f"{Path(preset).stem}-sweep"
    _check_place(out)
    plan = planned(preset, words)
    jobs = [Job(out / name, settings) for name, settings in plan.runs.items()]
    processes = min(at_a_time or room(jobs), len(jobs))
    console = Console()
    with SweepBar(console) as bar:
        bar.beginning(jobs, out, processes)
        for note in plan.notes:
            say(console, f"  {note}")
        problems = carry_out(jobs, processes=processes, onlooker=bar)
    if problems:
        console.print(_problems_table(problems, out))
        say(
            console,
            f"\n{len(jobs) - len(problems)} of {len(jobs)} runs are finished: the same command tries again.",
        )
    else:
        say(console, f"All {len(jobs)} runs are finished.")
    say(console, f"  compare them:  {command('compare', out)}")
    return not problems


class SweepBar(Bar, Onlooker):
    """Shows how far many runs are."""

    interrupted = "Interrupted; nothing is lost: the same command goes on."
    memory = 3600

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._broken = self._ended = self._total = 0

    def beginning(self, jobs: Sequence[Job], out: Path, processes: int) -> None:
        """Say what is to be done."""
        self._ended, self._total = sum(job.finished for job in jobs), len(jobs)
        done = f", {self._ended} finished already" if self._ended else ""
        say(self.console, f"{len(jobs)} runs below {out}{done}; {processes} at a time")

    def advanced(self, done: float, total: int, running: Sequence[Job]) -> None:
        broken = f"{self._broken} not finished · " if self._broken else ""
        self.moved("runs", done, total, note=broken + ", ".join(job.name for job in running))

    def ended(self, job: Job, problem: str | None) -> None:
        self._ended += 1
        self._broken += problem is not None
        if not self.console.is_terminal:
            said = "not finished" if problem else "finished"
            self.line(f"{job.name} {said}, {self._ended} of {self._total} done", last=self._ended == self._total)


def _check_place(out: Path) -> None:
    if RunFolder(out).config.exists():
        raise FealError(f"{out} is a run itself: choose another folder with --out.")
    if out.exists() and not out.is_dir():
        raise FealError(f"{out} is no folder: choose another --out.")


def room(jobs: Sequence[Job]) -> int:
    """Runs at a time by default: as many as there are cores and memory for, and one on a graphics card."""
    if any(device_named(job.settings.device).type != "cpu" for job in jobs):
        return 1
    threads = max(job.settings.threads for job in jobs)
    return max(1, min(cores() // threads, free_memory() // ROOM))


def _problems_table(problems: Mapping[Path, str], out: Path) -> Table:
    table = Table("run", "why it is not finished", box=None, header_style="bold", title_justify="left")
    for folder, problem in problems.items():
        table.add_row(str(folder.relative_to(out)), problem)
    return table
