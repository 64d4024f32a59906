"""Figures of rounds over seeds: the tidy rows that every figure with lines over rounds is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from feal.analysis.figures.contract import Rows
from feal.analysis.runs import Record, Run, arms
from feal.analysis.statistics import mean_and_deviation, mean_interval
from feal.classes import short_name

POOLED = "pooled"
"""All sites' test samples together."""
MEAN = "mean"
"""The mean of the sites' figures."""

ANY, SHARE = (-math.inf, math.inf), (0.0, 1.0)
"""Where figures can lie."""

Figures = Mapping[tuple[str, str], float | None]
"""What one round came to, by figure and by whom it is of: `POOLED`, `MEAN`, or a site."""


def estimate(values: Iterable[float | None], *, within: tuple[float, float] = ANY) -> dict[str, Any]:
    """Mean over seeds, standard deviation, 95 % interval of the mean (Student's t) and number of seeds.

    Seeds without a figure are left out; what too few seeds cannot tell is None. The interval ends where what it is
    of cannot be: `within`.

    >>> estimate([0.5, None])
    {'value': 0.5, 'sd': None, 'low': None, 'high': None, 'n': 1}
    """
    known = [value for value in values if value is not None]
    if not known:
        return {"value": None, "sd": None, "low": None, "high": None, "n": 0}
    mean, deviation = mean_and_deviation(known)
    if len(known) == 1:
        return {"value": float(mean), "sd": None, "low": None, "high": None, "n": 1}
    low, high = mean_interval(known)
    low, high = max(low, within[0]), min(high, within[1])
    return {"value": float(mean), "sd": float(deviation), "low": low, "high": high, "n": len(known)}


def by_round(
    runs: Sequence[Run],
    read: Callable[[Record], Figures],
    *,
    within: Callable[[str], tuple[float, float]] | None = None,
) -> Rows:
    """A row for each arm, figure, whom it is of, and round: the estimate over seeds.

    `labels` are those of a site (on average, where the row is of all sites) that the round was trained on;
    `series` is the arm's name without its query model, so that a strategy is one thing in every panel. `within`
    says where a figure can lie.

    Raises:
        FealError: a seed twice in one arm.
    """
    rows: Rows = []
    for arm, group in arms(runs).items():
        for (metric, over), number, records in _grouped(group, read):
            rows.append(
                {
                    **series_of(arm, group),
                    "metric": metric,
                    "over": over,
                    "round": number,
                    "labels": mean_and_deviation([_labels(record, over) for record, _ in records])[0].item(),
                    **estimate((value for _, value in records), within=within(metric) if within else ANY),
                }
            )
    return rows if any(row["n"] for row in rows) else []


def series_of(arm: str, group: Sequence[Run]) -> dict[str, Any]:
    """The columns that say what a row is of; `unfinished` is how many of the arm's runs are not finished."""
    strategy, query_model = group[0].settings.strategy, group[0].settings.query_model
    return {
        "arm": arm,
        "series": arm.replace(f" {query_model}", "", 1) if query_model else arm,
        "strategy": short_name(strategy),
        "query_model": query_model,
        "unfinished": sum(run.status != "finished" for run in group),
    }


def share(metric: str) -> tuple[float, float]:
    """Where a share can lie, whichever it is."""
    del metric
    return SHARE


def diagnosed(record: Record) -> dict[str, Mapping[str, Any]]:
    """A round's diagnostics, of all test samples together and of each site's; nothing without a test part."""
    diagnostics = record["diagnostics"]
    return {POOLED: diagnostics, **diagnostics["sites"]} if "sites" in diagnostics else {}


def _grouped(
    group: Sequence[Run], read: Callable[[Record], Figures]
) -> Iterator[tuple[tuple[str, str], int, list[tuple[Record, float | None]]]]:
    """An arm's rounds with one figure each, in the order in which figures come first, then of rounds."""
    found: dict[tuple[str, str], dict[int, list[tuple[Record, float | None]]]] = {}
    for run in group:
        for record in run.rounds:
            for key, value in read(record).items():
                found.setdefault(key, {}).setdefault(record["round"], []).append((record, value))
    for key, rounds in found.items():
        for number in sorted(rounds):
            yield key, number, rounds[number]


def _labels(record: Record, over: str) -> float:
    labels = record["labels"]
    if over in labels:
        return float(labels[over])
    return sum(labels.values()) / len(labels) if labels else 0.0
