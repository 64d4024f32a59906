"""The paper's table: arms by round, mean and deviation over seeds, the best and the second best of each round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import multimode

import numpy as np

from feal.analysis.arms import Arm
from feal.analysis.curves import Curve, Over
from feal.analysis.statistics import mean_and_deviation
from feal.errors import FealError, unknown
from feal.federation.statistics import lower_is_better, primary_metric


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A figure of an arm after a round."""

    mean: float
    deviation: float
    """NaN for one seed."""
    n: int
    labels: float
    """Of a site, on average."""
    rank: int | None = None
    """1 for the best of the round, 2 for the second best."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """An arm's cells by round; a round that no seed has a figure of has none."""

    arm: Arm
    cells: Mapping[int, Cell]


@dataclass(frozen=True, kw_only=True)
class ByRound:
    """The whole table."""

    metric: str
    over: Over
    rounds: tuple[int, ...]
    lines: tuple[Line, ...]

    @property
    def usual(self) -> int:
        """The number of seeds that most cells are of; the others say theirs."""
        return max(multimode(cell.n for line in self.lines for cell in line.cells.values()))


def by_round(arms: Sequence[Arm], *, metric: str | None = None, over: Over = "pooled") -> ByRound:
    """Arms by round under a metric, the task's primary one by default.

    Only finished arms are ranked, and only among each other: `bound` ones have all labels. The first round's
    labels are the same in all arms, so there is nothing to rank in it.

    Raises:
        FealError: no run has such a figure.
    """
    name = known_metric(arms, metric)
    lines = tuple(Line(arm=arm, cells=_cells(arm.curves, name, over)) for arm in arms)
    if not any(line.cells for line in lines):
        raise FealError(f"No run has a {name} after any round: wait for a round's end; sites need test samples.")
    rounds = sorted({number for line in lines if not line.arm.bound for number in line.cells}) or [1]
    return ByRound(metric=name, over=over, rounds=tuple(rounds), lines=_ranked(lines, rounds, name))


def known_metric(arms: Sequence[Arm], metric: str | None) -> str:
    """The metric's name, or that of the task's primary one.

    Raises:
        FealError: the runs have no such figure, with the nearest name.
    """
    curves = [curve for arm in arms for curve in arm.curves]
    primary = primary_metric(curves[0].task)
    names = {name for curve in curves for point in curve.points for name in point.pooled} or {primary}
    if metric is not None and metric not in names:
        raise unknown("metric", metric, names)
    return metric or primary


def _cells(curves: Sequence[Curve], metric: str, over: Over) -> dict[int, Cell]:
    found: dict[int, list[tuple[float, float]]] = {}
    for curve in curves:
        for point, value in zip(curve.points, curve.values(metric, over=over), strict=True):
            if np.isfinite(value):
                found.setdefault(point.round, []).append((value, point.labels_per_site))
    cells = {}
    for number, pairs in sorted(found.items()):
        (mean, labels), (deviation, _) = mean_and_deviation(pairs)
        cells[number] = Cell(mean=float(mean), deviation=float(deviation), n=len(pairs), labels=float(labels))
    return cells


def _ranked(lines: Sequence[Line], rounds: Sequence[int], metric: str) -> tuple[Line, ...]:
    ranks: dict[tuple[str, int], int] = {}
    for number in rounds[1:]:
        able = [line for line in lines if line.arm.finished and not line.arm.bound and number in line.cells]
        if len(able) < 2:
            continue
        means = sorted({line.cells[number].mean for line in able}, reverse=not lower_is_better(metric))
        for line in able:
            place = means.index(line.cells[number].mean) + 1
            if place <= 2:
                ranks[line.arm.name, number] = place
    return tuple(replace(line, cells=_with_ranks(line, ranks)) for line in lines)


def _with_ranks(line: Line, ranks: Mapping[tuple[str, int], int]) -> dict[int, Cell]:
    return {number: replace(cell, rank=ranks.get((line.arm.name, number))) for number, cell in line.cells.items()}
