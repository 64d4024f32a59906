"""What commands share: arguments, plain text, tables, a progress bar."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Self

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from feal.rundir.records import EvidenceMeans, Round

Preset = Annotated[str, typer.Argument(help="A preset (`feal list presets`) or the path of a YAML file.")]
RunDirectories = Annotated[
    list[Path], typer.Argument(metavar="DIR...", help="Run directories, or directories of them.")
]

LINE_SECONDS = 30.0
"""Seconds between lines of progress where the output is not a terminal."""


def print_plain(text: str, *, style: str | None = None, console: Console | None = None) -> None:
    """Print text without markup, highlighting or wrapping, so that paths can be copied."""
    (console or Console()).print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def command_line(*words: object) -> str:
    """Return a `feal` command to copy.

    >>> command_line("resume", "my runs/first")
    "feal resume 'my runs/first'"
    """
    return shlex.join(["feal", *map(str, words)])


def format_number(value: float | None) -> str:
    """Format a metric with three decimals, or as a dash if it is missing."""
    return "-" if value is None else f"{value:.3f}"


def format_duration(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours.

    >>> format_duration(45), format_duration(600), format_duration(9000)
    ('45 s', '10 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def print_validation(validation: float | None, *, console: Console | None = None) -> None:
    """Print which samples the metrics are of, unless they are of the test split as usual."""
    if validation is not None:
        print_plain(
            f"Evaluated on a validation split ({validation:.0%} of the training data); "
            "the test split is not used.\n",
            console=console,
        )


def make_table(
    headings: Iterable[str], rows: Iterable[Iterable[object]], *, words: int = 1, title: str | None = None
) -> Table:
    """Make a table without lines, in which nothing is cut off; all but the first `words` columns are numbers."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < words else "right", overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    return table


def make_round_table(record: Round, *, task: str, rounds: int) -> Table:
    """Make the table of one round: labels, metrics and evidence, by site and over all sites."""
    from feal.metrics.registry import title_of
    from feal.rundir.records import EvidenceMeans

    metrics = _shown_metrics(task, [record])
    values = [record.metrics[metric] for metric in metrics]
    rows = [
        [
            site,
            record.labels.get(site, 0),
            *(format_number(value.sites.get(site)) for value in values),
            *_format_evidence(record.diagnostics.sites.get(site, EvidenceMeans())),
        ]
        for site in values[0].sites
    ]
    means = [format_number(value.mean) for value in values]
    total = ["total, mean", str(sum(record.labels.values())), *means, *_format_evidence(record.diagnostics)]
    pooled = ["pooled", "", *(format_number(value.pooled) for value in values)]
    titles = [title_of(metric, value.variant) for metric, value in zip(metrics, values, strict=True)]
    headings = ["site", "labels", *titles, "aleatoric", "epistemic", "zero evidence"]
    lines: list[Sequence[object]] = [*rows, [Text(cell, style="bold") for cell in total], pooled]
    return make_table(headings, lines, title=f"Round {record.round} of {rounds}")


def make_curve_table(rounds: Sequence[Round], *, task: str) -> Table:
    """Make the table of all rounds: labels, and each metric as mean over sites and pooled."""
    from feal.metrics.registry import title_of
    from feal.rundir.records import MetricValue

    metrics = _shown_metrics(task, rounds)
    variants = {name: value.variant for record in rounds for name, value in record.metrics.items()}
    titles = [title_of(metric, variants[metric]) for metric in metrics]
    columns = [heading for title in titles for heading in (f"{title} (mean)", "(pooled)")]
    rows = []
    for record in rounds:
        values = [record.metrics.get(metric, MetricValue(mean=None, pooled=None)) for metric in metrics]
        numbers = [format_number(number) for value in values for number in (value.mean, value.pooled)]
        rows.append([record.round, sum(record.labels.values()), *numbers])
    return make_table(["round", "labels", *columns], rows, words=0)


def print_forecast(rounds: Sequence[Round], *, console: Console | None = None) -> None:
    """Print what another round would bring, if the last one has a forecast."""
    from feal.federation.coordinator.stopping import describe_forecast

    if rounds and rounds[-1].forecast is not None:
        print_plain(describe_forecast(rounds[-1].forecast), console=console)


def _shown_metrics(task: str, records: Sequence[Round]) -> list[str]:
    """List the task's metrics for tables that any of the records has."""
    from feal.metrics import table_metrics

    return table_metrics(task, dict.fromkeys(name for record in records for name in record.metrics))


def _format_evidence(means: EvidenceMeans) -> tuple[str, str, str]:
    share = "-" if means.zero_evidence is None else f"{100 * means.zero_evidence:.0f} %"
    return format_number(means.aleatoric), format_number(means.epistemic), share


class ProgressBar:
    """A bar on a terminal, a line now and then elsewhere; prints a message if it is interrupted."""

    def __init__(
        self,
        console: Console,
        *,
        interrupted: str,
        window: float = 120,
        amount: ProgressColumn | None = None,
        activity: str = "",
    ) -> None:
        """Prepare the bar.

        Args:
            console: where to draw it.
            interrupted: the message after Ctrl-C.
            window: seconds of the past that the remaining time is estimated from.
            amount: the column beside the bar; how many of how many by default.
            activity: what is done first.
        """
        self.console = console
        self._interrupted = interrupted
        self._last_line = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            amount or MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            TextColumn("{task.fields[note]}", style="dim"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
            speed_estimate_period=window,
        )
        self._task = self._progress.add_task(activity, total=None, note="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
        if isinstance(error, KeyboardInterrupt):
            self.print(self.describe_interruption())

    def describe_interruption(self) -> str:
        """Return the message after Ctrl-C."""
        return self._interrupted

    def print(self, text: str, *, style: str | None = None) -> None:
        """Print plain text above the bar."""
        print_plain(text, style=style, console=self.console)

    def update(self, activity: str, done: float, total: int, *, note: str = "") -> None:
        """Show how much of an activity is done; the note stands beside the bar on a terminal."""
        if self._progress.tasks[self._task].description != activity:
            self._progress.reset(self._task, description=activity)
        self._progress.update(self._task, completed=done, total=total, note=note)
        self.print_if_due(f"{activity}: {int(done)} of {total}")

    def print_if_due(self, text: str) -> None:
        """Print a line where the output is not a terminal, unless one was printed a short while ago."""
        if not self.console.is_terminal and time.monotonic() - self._last_line >= LINE_SECONDS:
            self.print_line(text)

    def print_line(self, text: str, *, is_last: bool = False) -> None:
        """Print a line, with the remaining time unless it is the last."""
        self._last_line = time.monotonic()
        left = self._progress.tasks[self._task].time_remaining
        remaining = f", about {format_duration(left)} left" if left and not is_last else ""
        self.print(text + remaining)
