"""Learning curves: what a run directory says of every round that is done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from feal.analysis.runs import Run, read_run
from feal.errors import FealError
from feal.experiment.folder import RunFolder
from feal.federation.statistics import primary_metric
from feal.settings import Settings

Over = Literal["pooled", "mean"]
"""A figure of all sites' test samples together, or the mean of the sites' figures."""


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
    """Labels (or labelled pixels) of each class that were asked for up to this round, over all sites; empty where
    they were not counted."""
    zero_evidence: float | None
    """Share of test samples (or pixels) without any evidence."""
    seconds: float

    @property
    def labels_per_site(self) -> float:
        """Mean over sites."""
        return self.labels / self.sites if self.sites else 0.0


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A run's rounds in order; `arm` is what runs that differ in the seed only have in common."""

    arm: str
    seed: int
    task: str
    classes: tuple[str, ...]
    finished: bool
    points: tuple[Point, ...]

    def labels(self) -> NDArray[np.float64]:
        """Labels of a site on average, [rounds]."""
        return np.array([point.labels_per_site for point in self.points])

    def values(self, metric: str | None = None, *, over: Over = "pooled") -> NDArray[np.float64]:
        """A figure, [rounds], the task's primary one by default; NaN where a round has none."""
        name = metric or primary_metric(self.task)
        return _numbers(getattr(point, over).get(name) for point in self.points)

    def recall(self) -> NDArray[np.float64]:
        """[rounds, classes]; NaN for a class that no test sample has."""
        return np.array([_numbers(point.recall) for point in self.points]).reshape(-1, len(self.classes))

    def found(self) -> NDArray[np.float64]:
        """Labels (or labelled pixels) so far, [rounds, classes].

        Raises:
            ValueError: they were not counted when the curve was read.
        """
        if any(len(point.found) != len(self.classes) for point in self.points):
            raise ValueError("the labels found were not counted: read the curve with found=True")
        return np.array([point.found for point in self.points], dtype=float).reshape(-1, len(self.classes))


def read_curve(path: Path, *, arm: str | None = None) -> Curve:
    """The curve of a run that is finished or under way, which is not disturbed.

    Args:
        path: the run directory.
        arm: a name; strategy, query model and loss by default.

    Raises:
        FealError: no run there, or a damaged one; nothing is written in any case.
    """
    run = read_run(path)
    if run.problems:
        raise FealError(f"{run.problems[0]} Put the file back from a copy, or start a new run.")
    return curve_of(run, arm=arm, found=True)


def curve_of(run: Run, *, arm: str | None = None, found: bool = False) -> Curve:
    """The curve of a run that was read; `found` counts the labels of each class, which takes a look at every site.

    Raises:
        FealError: a site's labels cannot be read.
    """
    counts = _found(run.path, classes=len(run.classes)) if found else None
    return Curve(
        arm=arm or _arm(run.settings),
        seed=run.settings.seed,
        task=run.task,
        classes=run.classes,
        finished=run.status == "finished",
        points=tuple(_point(record, counts, classes=len(run.classes)) for record in run.rounds),
    )


def rows(curves: Iterable[Curve]) -> list[dict[str, Any]]:
    """Curves as a tidy table: a row for each arm, seed and round."""
    return [
        {
            "arm": curve.arm,
            "seed": curve.seed,
            "round": point.round,
            "labels": point.labels,
            "labels_per_site": point.labels_per_site,
            **{f"{name}_pooled": value for name, value in point.pooled.items()},
            **{f"{name}_mean": value for name, value in point.mean.items()},
            "zero_evidence": point.zero_evidence,
            **{f"recall_{name}": value for name, value in zip(curve.classes, point.recall, strict=True)},
            # Without a count there is none of any class.
            **{f"found_{name}": value for name, value in zip(curve.classes, point.found, strict=False)},
            "seconds": point.seconds,
        }
        for curve in curves
        for point in curve.points
    ]


def _point(record: Mapping[str, Any], found: Mapping[int, NDArray[np.int64]] | None, *, classes: int) -> Point:
    diagnostics = record["diagnostics"]
    so_far = [count for number, count in (found or {}).items() if number <= record["round"]]
    return Point(
        round=record["round"],
        sites=len(record["labels"]),
        labels=sum(record["labels"].values()),
        pooled={name: figures["pooled"] for name, figures in record["metrics"].items()},
        mean={name: figures["mean"] for name, figures in record["metrics"].items()},
        # Without any test sample there are no diagnostics.
        recall=tuple(diagnostics.get("recall", [None] * classes)),
        found=tuple(np.sum(so_far, axis=0).tolist()) if so_far else (),
        zero_evidence=diagnostics.get("zero_evidence"),
        seconds=sum(record["seconds"].values()),
    )


def _found(path: Path, *, classes: int) -> dict[int, NDArray[np.int64]]:
    """Labels (or labelled pixels) of each class by the round that asked for them, over all sites."""
    from feal.federation.store import Store

    total: dict[int, NDArray[np.int64]] = {0: np.zeros(classes, dtype=np.int64)}
    for place in sorted(RunFolder(path).sites.glob("*/site.sqlite")):
        with closing(Store(place, read_only=True)) as store:
            for record in store.records():
                if record.superseded or record.label is None:
                    continue
                counts = np.bincount(np.ravel(record.label), minlength=classes)
                total[record.round] = total.get(record.round, 0) + counts
    return total


def _arm(settings: Settings) -> str:
    return "-".join(filter(None, (settings.strategy, settings.query_model, settings.loss)))


def _numbers(values: Iterable[float | None]) -> NDArray[np.float64]:
    return np.array([np.nan if value is None else value for value in values], dtype=float)
