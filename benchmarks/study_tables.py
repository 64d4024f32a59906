"""Tables of a study over arms and seeds: by round, by class, by run, and differences between arms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feal.analysis.arms import Curve
from feal.analysis.compare import Summary, subtract_curves, summarize_curve
from feal.analysis.stats import labels_to_reach, mean_and_deviation
from feal.errors import FealError

Row = dict[str, Any]
Arms = Mapping[str, Sequence[Curve]]


def group_curves(curves: Iterable[Curve]) -> dict[str, list[Curve]]:
    """Return curves by arm, in the order in which arms first appear, each arm's in the order of seeds.

    Raises:
        FealError: runs differ in task, classes or number of rounds, one has no metrics, or a seed occurs twice.
    """
    arms: dict[str, list[Curve]] = {}
    forms = set()
    for curve in curves:
        arms.setdefault(curve.arm, []).append(curve)
        forms.add((curve.task, curve.classes, len(curve.points)))
        if np.isnan(curve.values()).any():
            raise FealError(
                f"Seed {curve.seed} of {curve.arm} has rounds without metrics: sites need test samples."
            )
    if len(forms) > 1:
        raise FealError("The runs differ in task, classes or number of rounds: compare runs of one kind only.")
    for arm, members in arms.items():
        members.sort(key=lambda curve: curve.seed)
        if len({curve.seed for curve in members}) < len(members):
            raise FealError(f"Arm {arm} has two runs of one seed: use different seeds.")
    return arms


def tabulate_points(curves: Iterable[Curve]) -> list[Row]:
    """Return a row for each arm, seed and round."""
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


def tabulate_arms_by_round(arms: Arms) -> list[Row]:
    """Return arm x round: labels of a site and the primary metric, pooled and as mean over sites."""
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


def tabulate_classes(arms: Arms) -> list[Row]:
    """Return arm x round x class: recall, and labels (or pixels) found so far with their share of all."""
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


def tabulate_runs(arms: Arms) -> list[Row]:
    """Return a row for each run: outcome, area under the curve, last value, labels, time."""
    return [
        {
            "arm": arm,
            "seed": curve.seed,
            **summarize_curve(curve)._asdict(),
            "labels_per_site": curve.points[-1].labels_per_site,
            "seconds": sum(point.seconds for point in curve.points),
        }
        for arm, curves in arms.items()
        for curve in curves
    ]


def tabulate_summaries(arms: Arms, *, reference: str) -> list[Row]:
    """Return a row for each arm: its summary, and the labels of a site to reach the last value of `reference`.

    The labels are read off the arm's mean curve; a level that it never reaches leaves them empty.
    """
    level = _mean_curve(arms[reference])[-1] if reference in arms else np.nan
    table = []
    for arm, curves in arms.items():
        means, deviations = mean_and_deviation([summarize_curve(curve) for curve in curves])
        row: Row = {"arm": arm, "n": len(curves)}
        for name, mean, deviation in zip(Summary._fields, means, deviations, strict=True):
            row |= {name: float(mean), f"{name}_sd": float(deviation)}
        labels, _ = mean_and_deviation([curve.labels() for curve in curves])
        row[f"labels_to_{reference}"] = labels_to_reach(labels, _mean_curve(curves), float(level))
        row["seconds"] = float(np.mean([sum(point.seconds for point in curve.points) for curve in curves]))
        table.append(row)
    return table


def tabulate_differences(arms: Arms, pairs: Iterable[tuple[str, str]]) -> list[Row]:
    """Return a row for each (arm, reference) and number of a summary: the difference over common seeds.

    Pairs without runs or without a common seed are left out, and so are numbers that need more rounds.
    """
    found = [
        subtract_curves(arms[arm], arms[reference], quantity)
        for arm, reference in pairs
        if arm in arms and reference in arms
        for quantity in Summary._fields
    ]
    return [
        {
            "arm": difference.arm,
            "reference": difference.reference,
            "quantity": difference.quantity,
            "difference": difference.mean,
            "sd": difference.deviation,
            "low": difference.low,
            "high": difference.high,
            "n": difference.pairs,
            "sentence": difference.sentence,
        }
        for difference in found
        if difference is not None
    ]


def _mean_curve(curves: Sequence[Curve]) -> NDArray[np.float64]:
    return mean_and_deviation([curve.values() for curve in curves])[0]
