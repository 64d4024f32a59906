"""What a person sees of a run under way: a live line on a terminal, plain lines elsewhere, a table a round."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from feal.cli.tables import VALIDATION, command, curve_table, labels_table, round_table, say
from feal.experiment import Result
from feal.federation.engines import ENGINES
from feal.federation.messages import JoinReply, LabelsReply
from feal.federation.progress import Watcher
from feal.selection import short_name
from feal.settings import Settings

PLAIN_INTERVAL = 30.0
"""Seconds between progress lines where output is no terminal."""


class Screen(Watcher):
    """Shows a run; on an interruption it says how to go on."""

    def __init__(
        self, settings: Settings, folder: Path, *, preset: str | None = None, console: Console | None = None
    ) -> None:
        self._settings = settings
        self._preset = preset
        self._folder = folder
        self._console = console or Console()
        self._task = ""
        self._spoke = time.monotonic()
        self._standing: list[tuple[str, int, int, int]] = []
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
            speed_estimate_period=120,
        )
        self._bar: TaskID = self._progress.add_task("preparing data and sites", total=None)

    def __enter__(self) -> Screen:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()
        if isinstance(error, KeyboardInterrupt):
            self._say(
                f"Interrupted; nothing is lost. Go on with: {command('resume', self._folder)}"
                if (self._folder / "config.yaml").exists()
                else "Interrupted before the run began: repeat the command."
            )

    def joined(self, sites: Mapping[str, JoinReply], *, round: int, step: int) -> None:
        settings, first = self._settings, next(iter(sites.values()))
        self._task = first.task
        self._console.print(
            f"{short_name(settings.strategy)} on {settings.dataset}: {len(sites)} sites, {first.task}, "
            f"{settings.model}, {settings.loss} loss, {settings.rounds} rounds of "
            f"{settings.communication_rounds} communication rounds, seed {settings.seed}\n",
            style="bold",
            markup=False,
            highlight=False,
        )
        if settings.validation is not None:
            self._console.print(VALIDATION.format(share=settings.validation) + "\n", highlight=False)
        per_round = len(sites) * (settings.communication_rounds + 1)
        done = len(sites) + max(0, round - 1) * per_round + len(sites) * step if round else 0
        total = len(sites) + settings.rounds * per_round
        self._progress.reset(self._bar, total=total, completed=done)

    def answered(self, *, round: int, step: int, site: str, doing: str, loss: float | None) -> None:
        settings = self._settings
        where = f"round {round}/{settings.rounds}"
        if doing == "training":
            where += f" · communication {step + 1}/{settings.communication_rounds}"
        said = f" · loss {loss:.3f}" if loss is not None else ""
        self._progress.update(self._bar, description=f"{where} · {site} {doing}{said}")
        if doing != "joining":
            self._progress.advance(self._bar)
        self._speak_plainly(f"{where} · {site} {doing}{said}")

    def stepped(self, *, round: int, step: int, losses: Mapping[str, float | None]) -> None:
        """The bar moves with every site's answer already."""

    def closed(self, record: Mapping[str, Any]) -> None:
        self._console.print(round_table(record, task=self._task, rounds=self._settings.rounds))
        self._console.print()
        self._spoke = time.monotonic()

    def collected(self, sites: Mapping[str, LabelsReply], *, round: int, enough: bool) -> None:
        standing = [(site, reply.asked, reply.pending, reply.refused) for site, reply in sites.items()]
        if standing == self._standing:
            return  # a run that waits looks often, and most looks find nothing new
        self._standing = standing
        self._console.print(labels_table(sites, round=round, waiting=not enough and self._here))
        self._console.print()

    def note(self, sentence: str) -> None:
        self._say(f"Note: {sentence}", style="yellow")

    def finished(self, result: Result) -> None:
        """Say how the run ended, where it lies and what to type next."""
        self._progress.stop()
        if result.rounds:
            self._console.print(curve_table(result.rounds, task=self._task or str(result.summary["task"])))
        if result.status == "waiting":
            self._say("\n" + "\n".join(self._awaited(result)))
            return
        lines = [
            f"The run is {result.status} and lies in {result.folder}",
            f"  look at it again:  {command('show', result.folder)}",
            f"  extend it:         {command('resume', result.folder, f'rounds={self._settings.rounds + 2}')}",
        ]
        if self._preset is not None and self._settings.strategy != "random":
            lines.append(f"  compare it with:   {command('run', self._preset, 'strategy=random')}")
        self._say("\n" + "\n".join(lines))

    def _awaited(self, result: Result) -> list[str]:
        return [
            f"The run waits for labels and lies in {result.folder}",
            f"  go on once they are there:  {command('resume', result.folder)}",
            f"  or let it look for them:    {command('resume', result.folder, '--wait')}",
            f"  see who answered what:      {self._standing_of(result)}",
        ]

    @property
    def _here(self) -> bool:
        """Whether the sites' folders lie in the run's own."""
        return ENGINES.get(self._settings.engine).data_here

    def _standing_of(self, result: Result) -> str:
        if self._here:
            return command("labels", result.folder)
        return command("deploy", "status", self._settings.deployment.coordinator)

    def _say(self, text: str, *, style: str | None = None) -> None:
        say(self._console, text, style=style)

    def _speak_plainly(self, text: str) -> None:
        if self._console.is_terminal or time.monotonic() - self._spoke < PLAIN_INTERVAL:
            return
        self._spoke = time.monotonic()
        left = self._progress.tasks[self._bar].time_remaining
        self._say(text + (f" · about {left:.0f} s left" if left is not None else ""))
