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

    def __init__(self, console: Console) -> None:
        self.console = console
        self._spoke = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
            speed_estimate_period=120,
        )
        self._task = self._progress.add_task("", total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
        if isinstance(error, KeyboardInterrupt):
            say(self.console, self.interrupted)

    def moved(self, doing: str, done: int, total: int) -> None:
        """So much of it is done."""
        if self._progress.tasks[self._task].description != doing:
            self._progress.reset(self._task, description=doing)
        self._progress.update(self._task, completed=done, total=total)
        if not self.console.is_terminal and time.monotonic() - self._spoke >= PLAIN_INTERVAL:
            self._spoke = time.monotonic()
            left = self._progress.tasks[self._task].time_remaining
            say(self.console, f"{doing}: {done} of {total}" + (f", about {left:.0f} s left" if left else ""))
