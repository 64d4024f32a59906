"""Arms and learning curves: runs that differ in the seed only, and their metrics by round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from feal.analysis.runs import Run, group_by_arm, open_run
from feal.errors import FealError
from feal.metrics import primary_metric
from feal.plugins import short_name
from feal.rundir.layout import RunDirectory
from feal.rundir.records import Round

Over = Literal["pooled", "mean"]
"""A metric of all sites' test samples together, or the mean of the sites' values."""

_ORDER = {"random": 0, "feal": 2}
"""Sort order: baselines first, the proposed method last."""
_METRIC_WORDS = {"hd95": "HD95", "dice": "Dice", "calibration_error": "expected calibration error"}


def describe_metric(metric: str) -> str:
    """Return a metric's name as people write it.

    >>> describe_metric("balanced_accuracy"), describe_metric("hd95_cup"), describe_metric("calibration_error")
    ('balanced accuracy', 'HD95 cup', 'expected calibration error')
    """
    if metric in _METRIC_WORDS:
        return _METRIC_WORDS[metric]
    first, _, rest = metric.partition("_")
    return " ".join(filter(None, (_METRIC_WORDS.get(first, first), rest.replace("_", " "))))


@dataclass(frozen=True, kw_only=True)
class Point:
    """A run after one round."""

    round: int
    sites: int
    labels: int
    """Labelled samples that the round was trained on, over all sites."""
    pooled: Mapping[str, float | None]
    mean: Mapping[str, float | None]
    recall: tuple[float | None, ...]
    """By class, over all sites' test samples (or pixels)."""
    found: tuple[int, ...]
    """Labels (or labelled pixels) of each class queried up to this round, over all sites; empty if not counted."""
    zero_evidence: float | None
    """Share of test samples (or pixels) without any evidence."""
    seconds: float

    @property
    def labels_per_site(self) -> float:
        """Return the mean number of labels of a site."""
        return self.labels / self.sites if self.sites else 0.0


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A run's rounds in order."""

    arm: str
    seed: int
    task: str
    classes: tuple[str, ...]
    finished: bool
    points: tuple[Point, ...]

    def labels(self) -> NDArray[np.float64]:
        """Return the mean number of labels of a site, [rounds]."""
        return np.array([point.labels_per_site for point in self.points])

    def values(self, metric: str | None = None, *, over: Over = "pooled") -> NDArray[np.float64]:
        """Return a metric, by default the task's primary one, [rounds]; NaN where a round has none."""
        name = metric or primary_metric(self.task)
        return _to_floats(getattr(point, over).get(name) for point in self.points)

    def recall(self) -> NDArray[np.float64]:
        """Return the recall, [rounds, classes]; NaN for a class without test samples."""
        return np.array([_to_floats(point.recall) for point in self.points]).reshape(-1, len(self.classes))

    def found(self) -> NDArray[np.float64]:
        """Return the labels (or labelled pixels) so far, [rounds, classes].

        Raises:
            ValueError: they were not counted when the curve was read.
        """
        if any(len(point.found) != len(self.classes) for point in self.points):
            raise ValueError("the labels found were not counted: read the curve with found=True")
        return np.array([point.found for point in self.points], dtype=float).reshape(-1, len(self.classes))


def read_curve(path: Path, *, arm: str | None = None) -> Curve:
    """Read the curve of a run that is finished or running, without changing it.

    Args:
        path: the run directory.
        arm: a name; by default strategy, query model and loss.

    Raises:
        FealError: there is no run, or it is damaged.
    """
    run = open_run(path)
    if run.problems:
        raise FealError(f"{run.problems[0]} Restore the file from a copy, or start a new run.")
    return make_curve(run, arm=arm, found=True)


def make_curve(run: Run, *, arm: str | None = None, found: bool = False) -> Curve:
    """Return the curve of a run; `found` counts the labels of each class in the sites' databases.

    Raises:
        FealError: a site's labels cannot be read.
    """
    counts = _count_found(run.path, classes=len(run.classes)) if found else None
    return Curve(
        arm=arm or _default_name(run.settings.strategy.name, run.settings.query_model, run.settings.loss_name),
        seed=run.settings.seed,
        task=run.task,
        classes=run.classes,
        finished=run.status == "finished",
        points=tuple(_make_point(record, counts, classes=len(run.classes)) for record in run.rounds),
    )


@dataclass(frozen=True, kw_only=True)
class Arm:
    """Runs with the same settings and different seeds."""

    name: str
    runs: tuple[Run, ...]
    """In the order of seeds."""

    @property
    def strategy(self) -> str:
        """Return the strategy's short name."""
        return short_name(self.runs[0].settings.strategy.name)

    @property
    def query_model(self) -> str:
        """Return the query model; empty for strategies without that choice."""
        return self.runs[0].settings.query_model or ""

    @property
    def differences(self) -> str:
        """Return the settings that distinguish it from arms of the same strategy and query model."""
        return self.name.removeprefix(" ".join(filter(None, (self.strategy, self.query_model)))).strip(" ,")

    @property
    def loss(self) -> str | None:
        """Return the training loss."""
        return self.runs[0].settings.loss_name

    @property
    def is_full(self) -> bool:
        """Return whether everything is labelled at once: the upper bound of the others."""
        return self.runs[0].settings.budget == "all"

    @property
    def is_finished(self) -> bool:
        """Return whether any of its runs is finished."""
        return any(run.status == "finished" for run in self.runs)

    @property
    def counted_runs(self) -> tuple[Run, ...]:
        """Return its finished runs, or all runs if none is finished."""
        return tuple(run for run in self.runs if run.status == "finished" or not self.is_finished)

    @cached_property
    def curves(self) -> tuple[Curve, ...]:
        """Return the curves of the runs that count."""
        return tuple(make_curve(run, arm=self.name) for run in self.counted_runs)

    @cached_property
    def complete_curves(self) -> tuple[Curve, ...]:
        """Return the curves of finished runs without a missing round."""
        by_seed = {run.settings.seed: run for run in self.runs}
        return tuple(
            curve
            for curve in self.curves
            if curve.finished
            and [point.round for point in curve.points] == list(range(1, len(curve.points) + 1))
            # The last record may be the one that cannot be read.
            and len(curve.points) == by_seed[curve.seed].state.round
        )

    def remarks(self) -> list[str]:
        """Return a sentence on unfinished runs, and one for each unreadable line of a log."""
        unfinished = [run for run in self.runs if run.status != "finished"]
        notes = []
        if unfinished:
            runs = ", ".join(f"seed {run.settings.seed} ({_describe_progress(run)})" for run in unfinished)
            use = (
                "left out, as others are finished" if self.is_finished else "shown up to their last complete round"
            )
            notes.append(f"{self.name} is unfinished: {runs}; {use}.")
        return notes + [problem for run in self.runs for problem in run.problems]


def make_arms(runs: Sequence[Run]) -> list[Arm]:
    """Return the arms of runs: full supervision, random, the others by name, feal.

    Raises:
        FealError: a seed occurs twice in one arm.
    """
    found = [Arm(name=name, runs=tuple(group)) for name, group in group_by_arm(runs).items()]
    models = ("", "global", "local", "ensemble")
    return sorted(
        found,
        key=lambda arm: (
            not arm.is_full,
            _ORDER.get(arm.strategy, 1),
            arm.strategy,
            models.index(arm.query_model),
            arm.name,
        ),
    )


def _describe_progress(run: Run) -> str:
    waits = ", waiting for labels" if run.status == "waiting" else ""
    return f"{len(run.rounds)} of {run.settings.rounds} rounds{waits}"


def _make_point(record: Round, found: Mapping[int, NDArray[np.int64]] | None, *, classes: int) -> Point:
    diagnostics = record.diagnostics
    so_far = [count for number, count in (found or {}).items() if number <= record.round]
    return Point(
        round=record.round,
        sites=len(record.labels),
        labels=sum(record.labels.values()),
        pooled={name: values.pooled for name, values in record.metrics.items()},
        mean={name: values.mean for name, values in record.metrics.items()},
        # Without any test sample there are no diagnostics.
        recall=tuple(diagnostics.recall or [None] * classes),
        found=tuple(np.sum(so_far, axis=0).tolist()) if so_far else (),
        zero_evidence=diagnostics.zero_evidence,
        seconds=sum(record.seconds.values()),
    )


def _count_found(path: Path, *, classes: int) -> dict[int, NDArray[np.int64]]:
    """Return the labels (or labelled pixels) of each class by the round that queried them, over all sites."""
    from feal.rundir.site_store import Store

    total: dict[int, NDArray[np.int64]] = {0: np.zeros(classes, dtype=np.int64)}
    for site in RunDirectory(path).site_directories():
        with closing(Store(site.database, read_only=True)) as store:
            for record in store.records():
                if record.superseded or record.label is None:
                    continue
                counts = np.bincount(np.ravel(record.label), minlength=classes)
                total[record.round] = total.get(record.round, 0) + counts
    return total


def _default_name(*parts: str | None) -> str:
    return "-".join(filter(None, parts))


def _to_floats(values: Iterable[float | None]) -> NDArray[np.float64]:
    return np.array([np.nan if value is None else value for value in values], dtype=float)
