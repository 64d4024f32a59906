"""Tables of arms: metrics by round, differences to the reference, and one tidy table of all numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from statistics import multimode
from typing import TYPE_CHECKING, Any

import numpy as np

from feal.analysis.arms import Arm, Curve, Over, describe_metric, make_arms
from feal.analysis.compare import ArmDifference, ArmResult, Comparison, compare_arms, resolve_metric
from feal.analysis.grid import Cell, Grid
from feal.analysis.runs import read_runs
from feal.analysis.stats import mean_and_deviation
from feal.errors import FealError
from feal.metrics import lower_is_better

if TYPE_CHECKING:
    from pandas import DataFrame

EMPTY = Cell("-")
_OVER = {"pooled": "over all sites' test samples", "mean": "mean of the sites' values"}
_NAMES = ("strategy", "query model", "settings")
_COLUMNS = ("round", "labels_per_site", "value", "sd", "low", "high", "n", "rank", "reference")


@dataclass(frozen=True, kw_only=True)
class RoundValue:
    """A metric of an arm after a round, over seeds."""

    mean: float
    deviation: float
    """NaN for one seed."""
    n: int
    labels: float
    """Mean labels of a site."""
    rank: int | None = None
    """1 for the best of the round, 2 for the second best."""


@dataclass(frozen=True, kw_only=True)
class RoundTable:
    """The paper's table: arms by round."""

    metric: str
    over: Over
    rounds: tuple[int, ...]
    values: Mapping[str, Mapping[int, RoundValue]]
    """By the arm's name, then by round; a round without any value is missing."""
    arms: tuple[Arm, ...]

    @property
    def usual_n(self) -> int:
        """Return the number of seeds of most values; the others state theirs."""
        return max(multimode(value.n for by_round in self.values.values() for value in by_round.values()))


def tabulate_rounds(arms: Sequence[Arm], *, metric: str | None = None, over: Over = "pooled") -> RoundTable:
    """Return arms by round under a metric, by default the task's primary one.

    Only finished arms are ranked, without full supervision, which has all labels. The first round's labels are the
    same in all arms, so it has no ranks.

    Raises:
        FealError: no run has such a metric.
    """
    name = resolve_metric(arms, metric)
    values = {arm.name: _aggregate(arm.curves, name, over) for arm in arms}
    if not any(values.values()):
        raise FealError(f"No run has a {name} after any round: wait for a round's end; sites need test samples.")
    rounds = sorted({number for arm in arms if not arm.is_full for number in values[arm.name]}) or [1]
    ranked = [arm.name for arm in arms if arm.is_finished and not arm.is_full]
    for number in rounds[1:]:
        _rank_round(values, ranked, number, name)
    return RoundTable(metric=name, over=over, rounds=tuple(rounds), values=values, arms=tuple(arms))


def make_round_grid(table: RoundTable) -> Grid:
    """Return the paper's table: a line for each arm, full supervision on top with its value in the last column."""
    names = _name_columns(table.arms)
    seeds = f"{table.usual_n} seeds" if table.usual_n > 1 else "one seed, which has no deviation"
    return Grid(
        title=f"{_head(table.metric)}, {_OVER[table.over]}, by round: mean ± standard deviation of {seeds}",
        heading=(*_NAMES[:names], *_round_headings(table)),
        rows=tuple((*_name_cells(arm, names), *_round_cells(arm, table)) for arm in table.arms),
        names=names,
        above=sum(arm.is_full for arm in table.arms),
    )


def make_comparison_grid(found: Comparison) -> Grid:
    """Return a line for each arm: means over rounds, labels that it needs, and the difference to its reference."""
    names = _name_columns([result.arm for result in found.results])
    references = {result.difference.reference for result in found.results if result.difference}
    reference = next(iter(references)) if len(references) == 1 else "reference"
    has_plain = any(result.to_plain for result in found.results)
    numbers = (
        "seeds",
        _span(found.rounds),
        "area under the curve",
        f"labels of a site to {100 * found.share:g} % of full",
        f"difference to {reference}",
        "95 % interval",
        "pairs",
        *(("difference to random on the plain loss (95 % interval)",) if has_plain else ()),
    )
    return Grid(
        title=f"{_head(found.metric)} over {found.rounds} rounds",
        heading=(*_NAMES[:names], *numbers),
        rows=tuple(
            (
                *_name_cells(result.arm, names),
                Cell(str(result.n)),
                _spread_cell(*result.outcome),
                _spread_cell(*result.area),
                _labels_cell(result),
                *_difference_cells(result.difference, named=len(references) > 1),
                *((_plain_cell(result.to_plain),) if has_plain else ()),
            )
            for result in found.results
        ),
        names=names,
    )


def to_rows(table: RoundTable, found: Comparison) -> list[dict[str, Any]]:
    """Return all numbers in tidy form: a row for each arm and round, then one for each number of a whole arm."""
    rows = []
    for arm in table.arms:
        for number, value in table.values[arm.name].items():
            numbers = {"labels_per_site": value.labels, "value": value.mean, "sd": value.deviation}
            rows.append(_make_row(arm, table.metric, round=number, **numbers, n=value.n, rank=value.rank))
    for result in found.results:
        for name, (mean, deviation) in (("outcome", result.outcome), ("area", result.area)):
            rows.append(_make_row(result.arm, name, value=mean, sd=deviation, n=result.n))
        name = f"labels_to_{found.share:g}_of_full"
        rows.append(_make_row(result.arm, name, value=result.labels, n=result.n))
        for difference in filter(None, (result.difference, result.to_plain)):
            rows.append(
                _make_row(
                    result.arm,
                    f"difference_of_{difference.quantity}",
                    value=difference.mean,
                    sd=difference.deviation,
                    low=difference.low,
                    high=difference.high,
                    n=difference.pairs,
                    reference=difference.reference,
                )
            )
    return rows


def compare(
    *places: str | PathLike[str],
    metric: str | None = None,
    over: Over = "pooled",
    share: float = 0.95,
    to: str | None = None,
) -> DataFrame:
    """Compare the arms of the runs at or below the places, as a pandas data frame: all numbers of `feal compare`.

    A row for each arm and round, then rows for the outcome (mean of rounds 2 to R), the area under the curve, the
    labels to a share of full supervision, and the difference to the reference with its interval.

    Args:
        metric: the task's main metric by default.
        over: all test samples pooled, or the mean over sites.
        share: the share of full supervision that labels are counted to.
        to: the arm of reference; the nearest random one by default.

    Raises:
        FealError: there are no runs, they are of different experiments, or the metric or arm is unknown.
    """
    from pandas import DataFrame

    arms = make_arms(read_runs(map(Path, places)))
    table = tabulate_rounds(arms, metric=metric, over=over)
    return DataFrame(to_rows(table, compare_arms(arms, metric=metric, over=over, share=share, to=to)))


def _aggregate(curves: Sequence[Curve], metric: str, over: Over) -> dict[int, RoundValue]:
    found: dict[int, list[tuple[float, float]]] = {}
    for curve in curves:
        for point, value in zip(curve.points, curve.values(metric, over=over), strict=True):
            if np.isfinite(value):
                found.setdefault(point.round, []).append((value, point.labels_per_site))
    values = {}
    for number, pairs in sorted(found.items()):
        (mean, labels), (deviation, _) = mean_and_deviation(pairs)
        values[number] = RoundValue(
            mean=float(mean), deviation=float(deviation), n=len(pairs), labels=float(labels)
        )
    return values


def _rank_round(values: dict[str, dict[int, RoundValue]], names: Sequence[str], number: int, metric: str) -> None:
    """Mark the best and the second best of a round in place."""
    there = [name for name in names if number in values[name]]
    if len(there) < 2:
        return
    means = sorted({values[name][number].mean for name in there}, reverse=not lower_is_better(metric))
    for name in there:
        rank = means.index(values[name][number].mean) + 1
        if rank <= 2:
            values[name][number] = replace(values[name][number], rank=rank)


def _make_row(arm: Arm, metric: str, **values: object) -> dict[str, Any]:
    first = {"arm": arm.name, "strategy": arm.strategy, "query_model": arm.query_model, "loss": arm.loss}
    rest = {column: values.get(column) for column in _COLUMNS}
    return {**first, "finished": arm.is_finished, "metric": metric, **rest}


def _head(metric: str) -> str:
    name = describe_metric(metric)
    return name[0].upper() + name[1:] + (" (lower is better)" if lower_is_better(metric) else "")


def _span(rounds: int) -> str:
    return f"mean of rounds 2 to {rounds}" if rounds > 2 else "round 2" if rounds == 2 else "mean from round 2 on"


def _name_columns(arms: Sequence[Arm]) -> int:
    """Return the number of columns that name an arm: a third one only if some arm needs it."""
    return 3 if any(arm.differences for arm in arms) else 2


def _name_cells(arm: Arm, count: int) -> list[Cell]:
    unfinished = "" if arm.is_finished else " (unfinished)"
    return [Cell(arm.strategy + unfinished), Cell(arm.query_model), Cell(arm.differences)][:count]


def _round_headings(table: RoundTable) -> list[str]:
    """Return the rounds, with the labels of a site where they are the same in all arms."""
    headings = []
    for number in table.rounds:
        values = [table.values[arm.name].get(number) for arm in table.arms if not arm.is_full]
        labels = {round(value.labels, 1) for value in values if value is not None}
        headings.append(f"round {number}" + (f" ({labels.pop():g} labels)" if len(labels) == 1 else ""))
    return headings


def _round_cells(arm: Arm, table: RoundTable) -> list[Cell]:
    values = table.values[arm.name]
    if arm.is_full:
        blank = [Cell("")] * (len(table.rounds) - 1)
        return [*blank, _value_cell(values[max(values)], table.usual_n) if values else EMPTY]
    return [_value_cell(values[at], table.usual_n) if at in values else EMPTY for at in table.rounds]


def _value_cell(value: RoundValue, usual_n: int) -> Cell:
    seeds = "" if value.n == usual_n else f" (n={value.n})"
    return Cell(_format_spread(value.mean, value.deviation) + seeds, value.rank)


def _labels_cell(result: ArmResult) -> Cell:
    if math.isnan(result.all_labels):
        return EMPTY
    if math.isnan(result.labels):
        return Cell("not reached")
    at_most = "at most " if result.labels <= result.first_labels else ""
    return Cell(f"{at_most}{result.labels:.0f} of {result.all_labels:.0f}")


def _plain_cell(difference: ArmDifference | None) -> Cell:
    """Return difference and interval in one cell, so that a narrow screen does not separate them."""
    value, interval, _ = _difference_cells(difference, named=False)
    return value if interval is EMPTY else Cell(f"{value.text} ({interval.text})")


def _difference_cells(difference: ArmDifference | None, *, named: bool) -> tuple[Cell, Cell, Cell]:
    if difference is None:
        return EMPTY, EMPTY, EMPTY
    reference = f" to {difference.reference}" if named else ""
    interval = EMPTY if math.isnan(difference.low) else Cell(f"{difference.low:+.3f} to {difference.high:+.3f}")
    return Cell(f"{difference.mean:+.3f}{reference}"), interval, Cell(str(difference.pairs))


def _spread_cell(mean: float, deviation: float) -> Cell:
    return EMPTY if math.isnan(mean) else Cell(_format_spread(mean, deviation))


def _format_spread(mean: float, deviation: float) -> str:
    return f"{mean:.3f}" if math.isnan(deviation) else f"{mean:.3f} ± {deviation:.3f}"
