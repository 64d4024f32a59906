"""Metrics of rounds over seeds: the tidy rows of every plot with lines over rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from feal.analysis.plots.base import PlotRows
from feal.analysis.runs import Run, group_by_arm
from feal.analysis.stats import mean_and_deviation, student_interval
from feal.plugins import short_name
from feal.rundir.records import EvidenceMeans, Round

POOLED = "pooled"
"""All sites' test samples together."""
MEAN = "mean"
"""The mean of the sites' values."""
ANY, SHARE = (-math.inf, math.inf), (0.0, 1.0)
"""Ranges of possible values."""

RoundMetrics = Mapping[tuple[str, str], float | None]
"""Values of one round by metric and scope: `POOLED`, `MEAN`, or a site."""


def estimate_mean(values: Iterable[float | None], *, within: tuple[float, float] = ANY) -> dict[str, Any]:
    """Return mean over seeds, standard deviation, 95 % interval of the mean (Student's t) and number of seeds.

    Seeds without a value are left out; what too few seeds cannot tell is None. The interval is cut to `within`,
    the range of possible values.

    >>> estimate_mean([0.5, None])
    {'value': 0.5, 'sd': None, 'low': None, 'high': None, 'n': 1}
    """
    known = [value for value in values if value is not None]
    if not known:
        return {"value": None, "sd": None, "low": None, "high": None, "n": 0}
    mean, deviation = mean_and_deviation(known)
    if len(known) == 1:
        return {"value": float(mean), "sd": None, "low": None, "high": None, "n": 1}
    low, high = student_interval(float(mean), float(deviation), len(known))
    low, high = max(low, within[0]), min(high, within[1])
    return {"value": float(mean), "sd": float(deviation), "low": low, "high": high, "n": len(known)}


def aggregate_rounds(
    runs: Sequence[Run],
    read: Callable[[Round], RoundMetrics],
    *,
    within: Callable[[str], tuple[float, float]] = lambda _: ANY,
) -> PlotRows:
    """Return a row for each arm, metric, scope and round: the estimate over seeds.

    `labels` are those of a site (on average, where the row is of all sites) that the round was trained on;
    `series` is the arm's name without its query model, so that a strategy looks the same in every panel. `within`
    gives a metric's range of possible values.

    Raises:
        FealError: a seed twice in one arm.
    """
    rows: PlotRows = []
    for arm, group in group_by_arm(runs).items():
        for (metric, over), number, records in _group_records(group, read):
            rows.append(
                {
                    **describe_arm(arm, group),
                    "metric": metric,
                    "over": over,
                    "round": number,
                    "labels": mean_and_deviation([_labels(record, over) for record, _ in records])[0].item(),
                    **estimate_mean((value for _, value in records), within=within(metric)),
                }
            )
    return rows if any(row["n"] for row in rows) else []


def describe_arm(arm: str, group: Sequence[Run]) -> dict[str, Any]:
    """Return the columns that say which arm a row is of; `unfinished` counts its runs that are not finished."""
    strategy, query_model = group[0].settings.strategy.name, group[0].settings.query_model
    return {
        "arm": arm,
        "series": arm.replace(f" {query_model}", "", 1) if query_model else arm,
        "strategy": short_name(strategy),
        "query_model": query_model,
        "unfinished": sum(run.status != "finished" for run in group),
    }


def site_diagnostics(record: Round) -> dict[str, EvidenceMeans]:
    """Return a round's diagnostics by scope, all sites pooled and each site; nothing without a test part."""
    diagnostics = record.diagnostics
    return {POOLED: diagnostics, **diagnostics.sites} if diagnostics.sites else {}


def describe_scope(over: str) -> str:
    """Return what a value is of, in words."""
    return {POOLED: "all sites pooled", MEAN: "mean of sites"}.get(over, over)


def count_seeds(number: int) -> str:
    """Return a number of seeds in words.

    >>> count_seeds(1), count_seeds(3)
    ('one seed', '3 seeds')
    """
    return f"{number} seeds" if number != 1 else "one seed"


def note_seeds(rows: PlotRows, *, mark: str = "band") -> str:
    """Explain lines and their bands (or bars), with the number of seeds."""
    numbers = sorted({row["n"] for row in rows if row["n"]})
    if not numbers or numbers[-1] == 1:
        text = "One seed, so no interval."
    else:
        some = f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"{numbers[-1]}"
        alone = " (none for a single seed)" if numbers[0] == 1 else ""
        text = f"Mean over {some} seeds; {mark}: 95 % interval of the mean, Student's t{alone}."
    return " ".join(filter(None, (text, note_unfinished(rows))))


def note_unfinished(rows: PlotRows) -> str:
    """Say so where some runs are not finished; they count up to their last complete round."""
    return "Some runs are not finished." if any(row["unfinished"] for row in rows) else ""


def _group_records(
    group: Sequence[Run], read: Callable[[Round], RoundMetrics]
) -> Iterator[tuple[tuple[str, str], int, list[tuple[Round, float | None]]]]:
    """Yield an arm's values by metric and scope, in the order in which they first appear, then by round."""
    found: dict[tuple[str, str], dict[int, list[tuple[Round, float | None]]]] = {}
    for run in group:
        for record in run.rounds:
            for key, value in read(record).items():
                found.setdefault(key, {}).setdefault(record.round, []).append((record, value))
    for key, rounds in found.items():
        for number in sorted(rounds):
            yield key, number, rounds[number]


def _labels(record: Round, over: str) -> float:
    labels = record.labels
    if over in labels:
        return float(labels[over])
    return sum(labels.values()) / len(labels) if labels else 0.0
