"""Arms by round and what they come to, as tables of words and as one tidy table of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from feal.analysis.arms import Arm
from feal.analysis.by_round import ByRound, Cell, Line
from feal.analysis.comparison import Row
from feal.analysis.grids import Entry, Grid
from feal.analysis.verdicts import Verdict, Verdicts
from feal.federation.statistics import lower_is_better

_OVER = {"pooled": "over all sites' test samples", "mean": "mean of the sites' figures"}
NOTHING = Entry("-")


def round_grid(table: ByRound) -> Grid:
    """The paper's table: a line for each arm, the bound on top with its only figure in the last column."""
    apart = _apart([line.arm for line in table.lines])
    seeds = f"{table.usual} seeds" if table.usual > 1 else "one seed, which has no deviation"
    return Grid(
        title=f"{_called(table.metric)}, {_OVER[table.over]}, by round: mean ± standard deviation of {seeds}",
        heading=(*_NAMES[: 3 if apart else 2], *_round_headings(table)),
        rows=tuple((*_names(line.arm, apart), *_cells(line, table)) for line in table.lines),
        names=3 if apart else 2,
        above=sum(line.arm.bound for line in table.lines),
    )


def verdict_grid(found: Verdicts) -> Grid:
    """A line for each arm: figures over all rounds, labels that it needs, and the difference to the reference."""
    apart = _apart([line.arm for line in found.lines])
    references = {line.difference["reference"] for line in found.lines if line.difference}
    to = next(iter(references)) if len(references) == 1 else "reference"
    beside = any(line.to_plain for line in found.lines)
    level = f"labels of a site to {100 * found.share:g} % of full"
    figures = (
        "seeds",
        _span(found.rounds),
        "area under the curve",
        level,
        f"difference to {to}",
        "95 % interval",
        "pairs",
        *(("difference to random on the plain loss (95 % interval)",) if beside else ()),
    )
    return Grid(
        title=f"{_called(found.metric)} over {found.rounds} rounds",
        heading=(*_NAMES[: 3 if apart else 2], *figures),
        rows=tuple(
            (*_names(line.arm, apart), *_figures(line, named=len(references) > 1, beside=beside))
            for line in found.lines
        ),
        names=3 if apart else 2,
    )


def tidy_rows(table: ByRound, found: Verdicts) -> list[Row]:
    """Everything as numbers: a row for each arm and round, then one for each figure of a whole arm."""
    rows: list[Row] = []
    for line in table.lines:
        for number, cell in line.cells.items():
            figures = {"labels_per_site": cell.labels, "value": cell.mean, "sd": cell.deviation}
            rows.append(_row(line.arm, table.metric, round=number, **figures, n=cell.n, rank=cell.rank))
    for judged in found.lines:
        for name, (value, deviation) in (("outcome", judged.outcome), ("area", judged.area)):
            rows.append(_row(judged.arm, name, value=value, sd=deviation, n=judged.n))
        rows.append(_row(judged.arm, f"labels_to_{found.share:g}_of_full", value=judged.labels, n=judged.n))
        for difference in filter(None, (judged.difference, judged.to_plain)):
            kept = {key: difference[key] for key in ("sd", "low", "high", "n", "reference")}
            name = f"difference_of_{difference['figure']}"
            rows.append(_row(judged.arm, name, value=difference["difference"], **kept))
    return rows


_NAMES = ("strategy", "query model", "settings")
_COLUMNS = ("round", "labels_per_site", "value", "sd", "low", "high", "n", "rank", "reference")


def _row(arm: Arm, figure: str, **values: object) -> Row:
    first = {"arm": arm.name, "strategy": arm.strategy, "query_model": arm.query_model, "loss": arm.loss}
    rest = {column: values.get(column) for column in _COLUMNS}
    return {**first, "finished": arm.finished, "figure": figure, **rest}


def _called(metric: str) -> str:
    name = metric.upper() if metric == "hd95" else metric.replace("_", " ").capitalize()
    return f"{name} (lower is better)" if lower_is_better(metric) else name


def _span(rounds: int) -> str:
    return f"mean of rounds 2 to {rounds}" if rounds > 2 else "round 2" if rounds == 2 else "mean from round 2 on"


def _apart(arms: Sequence[Arm]) -> bool:
    return any(arm.apart for arm in arms)


def _names(arm: Arm, apart: bool) -> list[Entry]:
    unfinished = "" if arm.finished else " (unfinished)"
    return [Entry(arm.strategy + unfinished), Entry(arm.query_model), *([Entry(arm.apart)] if apart else [])]


def _round_headings(table: ByRound) -> list[str]:
    """Rounds with the labels of a site, where they are the same in all arms."""
    headings = []
    for number in table.rounds:
        lines = [line for line in table.lines if not line.arm.bound and number in line.cells]
        labels = {round(line.cells[number].labels, 1) for line in lines}
        headings.append(f"round {number}" + (f" ({labels.pop():g} labels)" if len(labels) == 1 else ""))
    return headings


def _cells(line: Line, table: ByRound) -> list[Entry]:
    if line.arm.bound:
        cells = list(line.cells.values())[-1:]
        blank = [Entry("")] * (len(table.rounds) - 1)
        return [*blank, *([_cell(cells[0], table.usual)] if cells else [NOTHING])]
    return [_cell(line.cells[at], table.usual) if at in line.cells else NOTHING for at in table.rounds]


def _cell(cell: Cell, usual: int) -> Entry:
    seeds = "" if cell.n == usual else f" (n={cell.n})"
    return Entry(_spread(cell.mean, cell.deviation) + seeds, cell.rank)


def _figures(line: Verdict, *, named: bool, beside: bool) -> list[Entry]:
    return [
        Entry(str(line.n)),
        _entry(_spread(*line.outcome), line.outcome[0]),
        _entry(_spread(*line.area), line.area[0]),
        _labels(line),
        *_difference(line.difference, named=named),
        *((_to_plain(line.to_plain),) if beside else ()),
    ]


def _labels(line: Verdict) -> Entry:
    if math.isnan(line.all_labels):
        return NOTHING
    if math.isnan(line.labels):
        return Entry("not reached")
    at_most = "at most " if line.labels <= line.first_labels else ""
    return Entry(f"{at_most}{line.labels:.0f} of {line.all_labels:.0f}")


def _to_plain(row: Row | None) -> Entry:
    """In one cell, so that a narrow screen does not part them."""
    difference, interval, _ = _difference(row, named=False)
    return difference if interval is NOTHING else Entry(f"{difference.text} ({interval.text})")


def _difference(row: Row | None, *, named: bool) -> tuple[Entry, Entry, Entry]:
    if row is None:
        return NOTHING, NOTHING, NOTHING
    against = f" to {row['reference']}" if named else ""
    interval = _entry(f"{row['low']:+.3f} to {row['high']:+.3f}", row["low"])
    return Entry(f"{row['difference']:+.3f}{against}"), interval, Entry(str(row["n"]))


def _spread(mean: float, deviation: float) -> str:
    return f"{mean:.3f}" if math.isnan(deviation) else f"{mean:.3f} ± {deviation:.3f}"


def _entry(text: str, value: float) -> Entry:
    return NOTHING if math.isnan(value) else Entry(text)
