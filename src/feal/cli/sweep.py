"""`feal sweep`: run every combination of settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from feal.cli.app import app
from feal.cli.console import Preset, ProgressBar, command_line, make_table, print_plain
from feal.errors import FealError

if TYPE_CHECKING:
    from feal.experiment.sweep import SweepRun


@app.command(
    "sweep",
    epilog="Examples: `feal sweep demo strategy=feal,entropy strategy.query_model=global,local seed=0,1,2` · "
    "`feal sweep demo strategy=feal,random,full seed=0,1,2 -j 2 --out runs/first` · "
    "`feal sweep fed-polyp strategy.n=5,10 strategy.terms=[aleatoric-global],[aleatoric-local]`",
)
def sweep_command(
    preset: Preset,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE[,VALUE]...]...", help="Settings; several values are combined."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory of the runs; runs/PRESET-sweep by default.")] = None,
    at_a_time: Annotated[
        int | None, typer.Option("-j", min=1, help="Runs at a time; by default as many as cores and memory allow.")
    ] = None,
) -> None:
    """Run every valid combination of settings, several at a time; repeat the command to continue a sweep.

    A parameter applies to the strategies that have it. Exit code 1: some runs are not finished, and the
    same command tries them again.
    """
    from feal.experiment.sweep import SweepRun, default_parallelism, plan_sweep, read_grid, run_sweep

    out = out or Path("runs") / f"{Path(preset).stem}-sweep"
    _check_directory(out)
    plan = plan_sweep(preset, read_grid(overrides or []))
    runs = [SweepRun(out / name, settings) for name, settings in plan.runs.items()]
    processes = min(at_a_time or default_parallelism(runs), len(runs))
    with SweepProgress(Console()) as progress:
        progress.announce(runs, out, processes)
        for note in plan.notes:
            progress.print(f"  {note}")
        problems = run_sweep(runs, processes=processes, callback=progress)
    if problems:
        rows = [(folder.relative_to(out), problem) for folder, problem in problems.items()]
        Console().print(make_table(["run", "why it is not finished"], rows, words=2))
        finished = len(runs) - len(problems)
        print_plain(f"\n{finished} of {len(runs)} runs are finished: repeat the command to try again.")
    else:
        print_plain(f"All {len(runs)} runs are finished.")
    print_plain(f"  compare them:  {command_line('compare', out)}")
    if problems:
        raise typer.Exit(1)


class SweepProgress(ProgressBar):
    """Shows the progress of many runs."""

    def __init__(self, console: Console) -> None:
        super().__init__(
            console, interrupted="Interrupted; nothing is lost: repeat the command to continue.", window=3600
        )
        self._failed = self._ended = self._total = 0

    def announce(self, runs: Sequence[SweepRun], out: Path, processes: int) -> None:
        """Print how many runs there are and where."""
        self._ended, self._total = sum(run.is_finished for run in runs), len(runs)
        done = f", {self._ended} finished already" if self._ended else ""
        count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
        self.print(f"{count} in {out}{done}; {processes} at a time")

    def on_progress(self, done: float, total: int, running: Sequence[SweepRun]) -> None:
        """Move the bar."""
        failed = f"{self._failed} not finished · " if self._failed else ""
        self.update("runs", done, total, note=failed + ", ".join(run.name for run in running))

    def on_run_end(self, run: SweepRun, problem: str | None) -> None:
        """Print a line for a run that ended, where the output is not a terminal."""
        self._ended += 1
        self._failed += problem is not None
        if not self.console.is_terminal:
            status = "not finished" if problem else "finished"
            is_last = self._ended == self._total
            self.print_line(f"{run.name} {status}, {self._ended} of {self._total} done", is_last=is_last)


def _check_directory(out: Path) -> None:
    from feal.rundir.layout import RunDirectory

    if RunDirectory(out).config.exists():
        raise FealError(f"{out} is a run itself: choose another directory with --out.")
    if out.exists() and not out.is_dir():
        raise FealError(f"{out} is not a directory: choose another --out.")
