"""`feal run` and `feal resume`: run an experiment and show its progress."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import TextColumn
from rich.table import Table

from feal.cli.app import app
from feal.cli.console import (
    Preset,
    ProgressBar,
    command_line,
    make_curve_table,
    make_round_table,
    make_table,
    print_forecast,
    print_validation,
)

if TYPE_CHECKING:
    from feal.experiment import Result
    from feal.federation.protocol import JoinReply, LabelsReply
    from feal.rundir.records import Round
    from feal.settings import Settings

Wait = Annotated[
    bool,
    typer.Option("--wait", help="Check for labels every annotator.poll_seconds instead of ending as waiting."),
]


@app.command(
    "run",
    epilog="Examples: `feal run demo` · `feal run demo strategy=random seed=1 --out runs/random-1` · "
    "`feal run demo training.lr=1e-3 rounds=2` · `feal run my.yaml`",
)
def run_command(
    preset: Preset,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings that differ from the preset.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; a new one in runs/ by default.")] = None,
    wait: Wait = False,
) -> None:
    """Run an experiment to its end, or until it waits for labels."""
    from feal.config import load, parse
    from feal.experiment import start
    from feal.federation.site.feature_cache import listen_to_progress
    from feal.plugins import short_name
    from feal.rundir.layout import free_path

    settings = load(preset, parse(overrides or []))
    if out is None:
        name = f"{Path(preset).stem}-{short_name(settings.strategy.name)}-{settings.seed}"
        out = free_path(Path("runs"), name)
    with RunProgress(settings, out, preset=preset) as progress, listen_to_progress(progress.on_features):
        progress.print_result(start(settings, out=out, wait=wait, callback=progress))


@app.command(
    "resume",
    epilog="Examples: `feal resume runs/demo-feal-0` · `feal resume runs/demo-feal-0 rounds=8` · "
    "`feal resume runs/demo-feal-0 transport=flower-simulation` · `feal resume runs/asking --wait`",
)
def resume_command(
    folder: Annotated[Path, typer.Argument(help="The run directory.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="More rounds, another transport, quorum, min_share ..."),
    ] = None,
    wait: Wait = False,
) -> None:
    """Continue a run that was interrupted or killed, waits for labels, or is to have more rounds."""
    from feal.config import parse, revise
    from feal.experiment import resume
    from feal.federation.site.feature_cache import listen_to_progress
    from feal.rundir.journal import read_settings

    changes = parse(overrides or [])
    settings = revise(read_settings(folder), changes)
    with RunProgress(settings, folder) as progress, listen_to_progress(progress.on_features):
        result = resume(folder, settings=settings if changes else None, wait=wait, callback=progress)
        progress.print_result(result)


class RunProgress(ProgressBar):
    """A live line on a terminal, plain lines elsewhere, and a table after each round."""

    def __init__(self, settings: Settings, folder: Path, *, preset: str | None = None) -> None:
        super().__init__(
            Console(),
            interrupted="Interrupted before the run started: repeat the command.",
            amount=TextColumn("{task.percentage:>3.0f} %"),
            activity="preparing data and sites",
        )
        self._settings = settings
        self._preset = preset
        self._folder = folder
        self._kind = ""
        self._encoding = ("", 0.0, 0)
        """The site whose images are being encoded, since when, and how many were done by then."""
        self._labels: list[tuple[str, int, int, int]] = []

    def describe_interruption(self) -> str:
        """Return how to continue, if the run has started."""
        from feal.rundir.layout import RunDirectory

        if not RunDirectory(self._folder).config.exists():
            return super().describe_interruption()
        return f"Interrupted; nothing is lost. Continue with: {command_line('resume', self._folder)}"

    def on_join(self, sites: Mapping[str, JoinReply], *, round: int, step: int) -> None:
        """Print what is run, and set the bar to where the run stands."""
        from feal.plugins import short_name

        settings, first = self._settings, next(iter(sites.values()))
        self._kind = first.task
        self.print(
            f"{short_name(settings.strategy.name)} on {settings.dataset.name}: {len(sites)} sites, {first.task}, "
            f"{short_name(settings.model.name)}, {settings.loss_name} loss, {settings.rounds} rounds of "
            f"{settings.communication_rounds} communication rounds, seed {settings.seed}\n",
            style="bold",
        )
        print_validation(settings.validation, console=self.console)
        per_round = len(sites) * (settings.communication_rounds + 1)
        done = len(sites) + max(0, round - 1) * per_round + len(sites) * step if round else 0
        total = len(sites) + settings.rounds * per_round
        self._progress.reset(self._task, total=total, completed=done)

    def on_reply(self, *, round: int, step: int, site: str, doing: str, loss: float | None) -> None:
        """Advance the bar by one site's reply."""
        settings = self._settings
        text = f"round {round}/{settings.rounds}"
        if doing == "training":
            text += f" · communication {step + 1}/{settings.communication_rounds}"
        text += f" · {site} {doing}" + (f" · loss {loss:.3f}" if loss is not None else "")
        self._progress.update(self._task, description=text, advance=doing != "joining")
        self.print_if_due(text)

    def on_features(self, site: str, done: int, total: int) -> None:
        """Show how many images of a site have been encoded, and the time left for them."""
        now = time.monotonic()
        if site != self._encoding[0]:
            self._encoding = (site, now, done)
        _, start, first = self._encoding
        left = (now - start) * (total - done) / (done - first) if done > first else None
        rest = (
            "" if left is None else f", about {left / 60:.0f} min left" if left >= 60 else f", {left:.0f} s left"
        )
        text = f"{site} encodes its images, once: {done} of {total}{rest}"
        self._progress.update(self._task, description=text)
        self.print_if_due(text)

    def on_step(self, *, round: int, step: int, losses: Mapping[str, float | None]) -> None:
        """Do nothing: the bar moves with every site's reply."""

    def on_round(self, record: Round) -> None:
        """Print the table of a finished round."""
        self.console.print(make_round_table(record, task=self._kind, rounds=self._settings.rounds), "")

    def on_labels(self, sites: Mapping[str, LabelsReply], *, round: int, enough: bool) -> None:
        """Print how many labels each site has, if that has changed."""
        labels = [(site, reply.asked, reply.pending, reply.refused) for site, reply in sites.items()]
        if labels == self._labels:
            return  # a run that waits for labels asks often
        self._labels = labels
        self.console.print(_labels_table(sites, round=round, with_folders=not enough and self._is_local), "")

    def on_note(self, sentence: str) -> None:
        """Print a note."""
        self.print(f"Note: {sentence}", style="yellow")

    def print_result(self, result: Result) -> None:
        """Print how the run ended, where it is and what to do next."""
        self._progress.stop()
        folder = result.folder
        if result.rounds:
            self.console.print(make_curve_table(result.rounds, task=result.task))
            print_forecast(result.rounds, console=self.console)
        if result.status == "waiting":
            status = (
                command_line("labels", folder)
                if self._is_local
                else command_line("deploy", "status", self._settings.transport.params["coordinator"])
            )
            lines = [
                f"The run is waiting for labels: {folder}",
                f"  continue when they are there:  {command_line('resume', folder)}",
                f"  or wait for them:              {command_line('resume', folder, '--wait')}",
                f"  show the answers so far:       {status}",
            ]
        else:
            lines = [
                f"The run is {result.status}: {folder}",
                f"  show it again:    {command_line('show', folder)}",
                f"  extend it:        {command_line('resume', folder, f'rounds={self._settings.rounds + 2}')}",
            ]
            if self._preset is not None and self._settings.strategy.name != "random":
                lines.append(f"  compare it with:  {command_line('run', self._preset, 'strategy=random')}")
        self.print("\n" + "\n".join(lines))

    @property
    def _is_local(self) -> bool:
        """Whether the sites' directories are inside the run directory."""
        from feal.federation.transport import TRANSPORTS

        return TRANSPORTS.get(self._settings.transport.name).data_here


def _labels_table(sites: Mapping[str, LabelsReply], *, round: int, with_folders: bool) -> Table:
    """Make the table of labels by site, with the folders below the run directory where answers are expected."""
    from feal.annotation.folder import round_folder

    rows = []
    for site, reply in sites.items():
        folder = str(round_folder(Path("sites") / site, round)) if reply.pending else "-"
        counts = [reply.asked, reply.asked - reply.pending, reply.pending, reply.refused]
        rows.append([site, *counts, *([folder] if with_folders else [])])
    headings = ["site", "asked", "answered", "pending", "rejected", *(["folder"] if with_folders else [])]
    table = make_table(headings, rows, title=f"Labels for round {round}")
    if with_folders:
        table.columns[-1].justify = "left"
    return table
