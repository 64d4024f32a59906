"""Arms in numbers: what each came to, against the reference, over paired seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feal.analysis.runs import Run
from feal.analysis.statistics import (
    Difference,
    labels_to_reach,
    mean_and_deviation,
    outcome,
    paired_difference,
)

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Height:
    """A run's primary figure after each round."""

    seed: int
    labels: Floats
    values: Floats


@dataclass(frozen=True, kw_only=True)
class Line:
    """An arm in the table of the answer."""

    arm: str
    seeds: tuple[int, ...]
    mean: float
    deviation: float
    last: float
    difference: Difference | None
    """To the reference, over the seeds that both have."""
    labels: float
    """Of a site, to reach what the reference reached at last; NaN if it never does."""


def heights(runs: Sequence[Run], metric: str, *, finished_only: bool) -> list[Height]:
    """Of the runs that have the figure for every round, pooled over all sites' test samples."""
    curves = []
    for run in runs:
        values = [record["metrics"].get(metric, {}).get("pooled") for record in run.rounds]
        labels = [sum(record["labels"].values()) / max(1, len(record["labels"])) for record in run.rounds]
        wanted = run.status == "finished" or not finished_only
        if wanted and values and None not in values:
            curves.append(Height(seed=run.settings.seed, labels=np.array(labels), values=np.array(values)))
    return curves


def compared(curves: Mapping[str, Sequence[Height]], rounds: int, reference: str) -> tuple[Line, ...]:
    """A line for each arm by its first `rounds` rounds, the highest first."""
    others = curves.get(reference, ())
    level = float(np.mean([curve.values[rounds - 1] for curve in others])) if others else math.nan
    lines = []
    for arm, group in curves.items():
        mean, deviation = mean_and_deviation([outcome(curve.values[:rounds]) for curve in group])
        values, _ = mean_and_deviation([curve.values[:rounds] for curve in group])
        labels, _ = mean_and_deviation([curve.labels[:rounds] for curve in group])
        line = Line(
            arm=arm,
            seeds=tuple(curve.seed for curve in group),
            mean=float(mean),
            deviation=float(deviation),
            last=float(values[-1]),
            difference=None if arm == reference else _difference(group, others, rounds),
            labels=float(labels[-1]) if arm == reference else labels_to_reach(labels, values, level),
        )
        lines.append(line)
    return tuple(sorted(lines, key=lambda line: -line.mean))


def _difference(group: Sequence[Height], reference: Sequence[Height], rounds: int) -> Difference | None:
    others = {curve.seed: curve for curve in reference}
    pairs = [(curve, others[curve.seed]) for curve in group if curve.seed in others]
    if not pairs:
        return None
    return paired_difference(
        [float(outcome(one.values[:rounds])) for one, _ in pairs],
        [float(outcome(other.values[:rounds])) for _, other in pairs],
    )
