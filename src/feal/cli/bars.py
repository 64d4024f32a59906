"""Progress of something that is counted: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import ClassVar, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from feal.cli.screen import PLAIN_INTERVAL
from feal.cli.tables import say


class Bar:
    """Shows how far something is and how long it will take; on an interruption it says what became of it."""

    interrupted: ClassVar[str]
    memory: ClassVar[float] = 120
    """Seconds of the past that the time left is reckoned from."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._spoke = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            TextColumn("{task.fields[note]}", style="dim"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
            speed_estimate_period=self.memory,
        )
        self._task = self._progress.add_task("", total=None, note="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
        if isinstance(error, KeyboardInterrupt):
            say(self.console, self.interrupted)

    def moved(self, doing: str, done: float, total: int, *, note: str = "") -> None:
        """So much of it is done; a note is for what stands beside it on a terminal."""
        if self._progress.tasks[self._task].description != doing:
            self._progress.reset(self._task, description=doing)
        self._progress.update(self._task, completed=done, total=total, note=note)
        if not self.console.is_terminal and time.monotonic() - self._spoke >= PLAIN_INTERVAL:
            self.line(f"{doing}: {int(done)} of {total}")

    def line(self, text: str, *, last: bool = False) -> None:
        """A plain line, with the time left but for the last."""
        self._spoke = time.monotonic()
        left = self._progress.tasks[self._task].time_remaining
        say(self.console, text + (f", about {duration(left)} left" if left and not last else ""))


def duration(seconds: float) -> str:
    """A length of time for people.

    >>> duration(45), duration(600), duration(9000)
    ('45 s', '10 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
