"""Arms compared: tables over seeds of what finished runs came to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feal.analysis.curves import Curve, Over
from feal.analysis.statistics import (
    area_under_curve,
    in_words,
    labels_to_reach,
    mean_and_deviation,
    outcome,
    paired_difference,
)
from feal.errors import FealError
from feal.federation.statistics import lower_is_better

Row = dict[str, Any]
Arms = Mapping[str, Sequence[Curve]]


def by_arm(curves: Iterable[Curve]) -> dict[str, list[Curve]]:
    """Curves by arm, in the order in which arms come first, each arm's in the order of seeds.

    Raises:
        FealError: runs that differ in task, classes or number of rounds, one without figures, or a seed twice.
    """
    arms: dict[str, list[Curve]] = {}
    forms = set()
    for curve in curves:
        arms.setdefault(curve.arm, []).append(curve)
        forms.add((curve.task, curve.classes, len(curve.points)))
        if np.isnan(curve.values()).any():
            raise FealError(
                f"Seed {curve.seed} of {curve.arm} has rounds without figures: sites need test samples."
            )
    if len(forms) > 1:
        raise FealError("The runs differ in task, classes or number of rounds: compare runs of one kind only.")
    for arm, members in arms.items():
        members.sort(key=lambda curve: curve.seed)
        if len({curve.seed for curve in members}) < len(members):
            raise FealError(f"Arm {arm} has two runs of one seed: give each run a seed of its own.")
    return arms


def by_round(arms: Arms) -> list[Row]:
    """Arm x round: labels of a site and the primary figure, pooled and as mean over sites."""
    table = []
    for arm, curves in arms.items():
        pooled, deviation = mean_and_deviation([curve.values() for curve in curves])
        mean, mean_deviation = mean_and_deviation([curve.values(over="mean") for curve in curves])
        labels, _ = mean_and_deviation([curve.labels() for curve in curves])
        for index, point in enumerate(curves[0].points):
            table.append(
                {
                    "arm": arm,
                    "round": point.round,
                    "labels_per_site": labels[index],
                    "pooled": pooled[index],
                    "pooled_sd": deviation[index],
                    "mean": mean[index],
                    "mean_sd": mean_deviation[index],
                    "n": len(curves),
                }
            )
    return table


def by_class(arms: Arms) -> list[Row]:
    """Arm x round x class: recall, and labels (or pixels) found so far with their share of all."""
    table = []
    for arm, curves in arms.items():
        recall, recall_deviation = mean_and_deviation([curve.recall() for curve in curves])
        found, found_deviation = mean_and_deviation([curve.found() for curve in curves])
        shares = [curve.found() / curve.found().sum(axis=1, keepdims=True) for curve in curves]
        share, _ = mean_and_deviation(shares)
        for index, point in enumerate(curves[0].points):
            for number, name in enumerate(curves[0].classes):
                table.append(
                    {
                        "arm": arm,
                        "round": point.round,
                        "class": name,
                        "recall": recall[index, number],
                        "recall_sd": recall_deviation[index, number],
                        "found": found[index, number],
                        "found_sd": found_deviation[index, number],
                        "found_share": share[index, number],
                        "n": len(curves),
                    }
                )
    return table


def by_run(arms: Arms) -> list[Row]:
    """A row for each run: outcome, area under the curve, last figure, labels, time."""
    return [
        {
            "arm": arm,
            "seed": curve.seed,
            **whole_figures(curve),
            "labels_per_site": curve.points[-1].labels_per_site,
            "seconds": sum(point.seconds for point in curve.points),
        }
        for arm, curves in arms.items()
        for curve in curves
    ]


def overview(arms: Arms, *, reference: str) -> list[Row]:
    """A row for each arm: its figures, and the labels a site needs to reach what `reference` reached at last.

    The labels are read off the arm's mean curve; a level that it never reaches leaves them empty.
    """
    level = _mean_curve(arms[reference])[-1] if reference in arms else np.nan
    table = []
    for arm, curves in arms.items():
        row: Row = {"arm": arm, "n": len(curves)}
        for name in whole_figures(curves[0]):
            mean, deviation = mean_and_deviation([whole_figures(curve)[name] for curve in curves])
            row |= {name: float(mean), f"{name}_sd": float(deviation)}
        labels, _ = mean_and_deviation([curve.labels() for curve in curves])
        row[f"labels_to_{reference}"] = labels_to_reach(labels, _mean_curve(curves), float(level))
        row["seconds"] = float(np.mean([sum(point.seconds for point in curve.points) for curve in curves]))
        table.append(row)
    return table


def differences(
    arms: Arms, pairs: Iterable[tuple[str, str]], *, metric: str | None = None, over: Over = "pooled"
) -> list[Row]:
    """A row for each (arm, reference) and figure: the difference over the seeds that both have, and what it says.

    Pairs with an arm that has no run, or without a common seed, are left out, and so are figures that runs of so
    few rounds have not.
    """
    table = []
    falling = metric is not None and lower_is_better(metric)
    for arm, reference in pairs:
        both = [
            (whole_figures(one, metric=metric, over=over), whole_figures(other, metric=metric, over=over))
            for one, other in _paired(arms.get(arm, ()), arms.get(reference, ()))
        ]
        for name in both[0][0] if both else ():
            ones, others = [one[name] for one, _ in both], [other[name] for _, other in both]
            if not np.isfinite([*ones, *others]).all():
                continue
            difference = paired_difference(ones, others)
            table.append(
                {
                    "arm": arm,
                    "reference": reference,
                    "figure": name,
                    "difference": difference.mean,
                    "sd": difference.deviation,
                    "low": difference.low,
                    "high": difference.high,
                    "n": difference.pairs,
                    "in_words": in_words(difference, arm=arm, reference=reference, falling=falling),
                }
            )
    return table


def whole_figures(curve: Curve, *, metric: str | None = None, over: Over = "pooled") -> dict[str, float]:
    """One number each for a whole run; the outcome is the one that comparisons are decided by.

    NaN for an outcome of one round, and for an area where the labels never grow.
    """
    values, labels = curve.values(metric, over=over), curve.labels()
    return {
        "outcome": float(outcome(values)) if len(values) > 1 else math.nan,
        "area": float(area_under_curve(labels, values)) if labels[-1] > labels[0] else math.nan,
        "last": float(values[-1]),
    }


def _mean_curve(curves: Sequence[Curve]) -> NDArray[np.float64]:
    return mean_and_deviation([curve.values() for curve in curves])[0]


def _paired(ones: Sequence[Curve], others: Sequence[Curve]) -> list[tuple[Curve, Curve]]:
    by_seed = {curve.seed: curve for curve in others}
    return [(curve, by_seed[curve.seed]) for curve in ones if curve.seed in by_seed]
