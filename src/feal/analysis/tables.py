"""Tables of arms: metrics by round, differences to the reference; as markdown, LaTeX, CSV or a data frame."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from feal.analysis.arms import Arm, Measure, describe_metric, make_arms, resolve_measure
from feal.analysis.compare import ArmDifference, ArmResult, Comparison, compare_arms
from feal.analysis.runs import Over, read_runs
from feal.errors import FealError
from feal.fileio import write_text

if TYPE_CHECKING:
    from pandas import DataFrame

_DIGITS = 6
"""Significant digits in CSV."""
_OVER = {"pooled": "over all sites' test samples", "mean": "mean of the sites' values"}
_NAMES = ("strategy", "query model", "settings")
_COLUMNS = ("round", "labels_per_site", "value", "sd", "low", "high", "n", "rank", "reference")
_LATEX = str.maketrans(
    {
        **{letter: f"\\{letter}" for letter in "{}%_&#$"},
        "\\": "\\textbackslash{}",
        "±": "$\\pm$",
        "~": "\\textasciitilde{}",
        "^": "\\textasciicircum{}",
    }
)


class Cell(NamedTuple):
    """A cell's text, and whether it is the best (1) or the second best (2) of its column."""

    text: str
    rank: int | None = None


EMPTY = Cell("-")


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table of text; the first `names` columns are words, the others numbers."""

    title: str
    heading: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    names: int
    above: int = 0
    """Rows on top that a rule separates from the others."""

    def to_markdown(self) -> str:
        """Return a markdown table: the best bold, the second best underlined.

        >>> print(Grid(title="t", heading=("a", "b"), rows=((Cell("x|y"), Cell("1", 1)),), names=1).to_markdown())
        t
        <BLANKLINE>
        | a | b |
        |---|--:|
        | x\\|y | **1** |
        """
        rows = self._write(str.maketrans({"|": "\\|"}), best="**{}**", second="<u>{}</u>")
        ruler = ["---"] * self.names + ["--:"] * (len(self.heading) - self.names)
        heading, *lines = (f"| {' | '.join(cells)} |" for cells in rows)
        return "\n".join([self.title, "", heading, f"|{'|'.join(ruler)}|", *lines])

    def to_latex(self) -> str:
        """Return a tabular with booktabs' rules: the best bold, the second best underlined.

        >>> cells = (Cell("95 % x"), Cell("1 ± 2", 2))
        >>> print(Grid(title="t", heading=("a_b", "c"), rows=(cells,), names=1).to_latex())
        % t
        \\begin{tabular}{lr}
        \\toprule
        a\\_b & c \\\\
        \\midrule
        95 \\% x & \\underline{1 $\\pm$ 2} \\\\
        \\bottomrule
        \\end{tabular}
        """
        rows = self._write(_LATEX, best="\\textbf{{{}}}", second="\\underline{{{}}}")
        heading, *lines = (f"{' & '.join(cells)} \\\\" for cells in rows)
        if 0 < self.above < len(lines):
            lines.insert(self.above, "\\midrule")
        columns = "l" * self.names + "r" * (len(self.heading) - self.names)
        start = [f"% {self.title}", f"\\begin{{tabular}}{{{columns}}}", "\\toprule", heading, "\\midrule"]
        return "\n".join([*start, *lines, "\\bottomrule", "\\end{tabular}"])

    def _write(self, escapes: dict[int, str], *, best: str, second: str) -> list[list[str]]:
        """Return the heading and the rows as escaped text, ranked cells in the template for their rank."""
        templates = {None: "{}", 1: best, 2: second}
        rows = [[templates[cell.rank].format(cell.text.translate(escapes)) for cell in row] for row in self.rows]
        return [[name.translate(escapes) for name in self.heading], *rows]


def to_csv(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows with the same keys as CSV: a heading, six significant digits, nothing for None and NaN."""
    table = io.StringIO()
    writer = csv.DictWriter(table, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _format_value(value) for key, value in row.items()} for row in rows)
    return table.getvalue()


def write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows as a CSV file, see `to_csv`."""
    write_text(path, to_csv(rows))


@dataclass(frozen=True, kw_only=True)
class RoundTable:
    """The paper's table: arms by round."""

    measure: Measure
    arms: tuple[Arm, ...]
    rounds: tuple[int, ...]
    values: DataFrame
    """By arm and round: value, sd (NaN for one seed), n, labels_per_site, rank (1 and 2 of a round, else NaN)."""

    @property
    def usual_n(self) -> int:
        """Return the number of seeds of most values; the others state theirs."""
        return int(self.values["n"].mode().max())

    def of(self, arm: Arm) -> dict[int, Any]:
        """Return the rows of an arm by round; a round without any value is missing."""
        rows = self.values[self.values.index.get_level_values("arm") == arm.name]
        return {row.Index[1]: row for row in rows.itertuples()}


def tabulate_rounds(arms: Sequence[Arm], *, metric: str | None = None, over: Over = "pooled") -> RoundTable:
    """Return arms by round under a metric, by default the task's primary one.

    Only finished arms are ranked, without full supervision, which has all labels. The first round's labels are the
    same in all arms, so it has no ranks.

    Raises:
        FealError: no run has such a metric.
    """
    from pandas import DataFrame

    measure = resolve_measure(arms, metric, over=over)
    seeds = [
        (arm.name, record.round, value, labels)
        for arm in arms
        for run in arm.counted_runs
        for record, value, labels in zip(run.rounds, measure.of(run), run.labels_per_site(), strict=True)
        if math.isfinite(value)
    ]
    if not seeds:
        raise FealError(
            f"No run has a {measure.metric} after any round: wait for a round's end; sites need test samples."
        )
    by_round = DataFrame(seeds, columns=["arm", "round", "value", "labels"]).groupby(["arm", "round"])
    values = by_round.agg(
        value=("value", "mean"), sd=("value", "std"), n=("value", "size"), labels_per_site=("labels", "mean")
    )
    names, numbers = values.index.get_level_values("arm"), values.index.get_level_values("round")
    rounds = sorted(set(numbers[~names.isin([arm.name for arm in arms if arm.is_full])])) or [1]
    ranked = names.isin([arm.name for arm in arms if arm.is_finished and not arm.is_full])
    rivals = values["value"][ranked & (numbers > rounds[0])].groupby("round")
    places = rivals.rank("dense", ascending=measure.lower_is_better)
    values["rank"] = places[(places <= 2) & (rivals.transform("size") > 1)]
    return RoundTable(measure=measure, arms=tuple(arms), rounds=tuple(rounds), values=values)


def make_round_grid(table: RoundTable) -> Grid:
    """Return the paper's table: a line for each arm, full supervision on top with its value in the last column."""
    names = _name_columns(table.arms)
    seeds = f"{table.usual_n} seeds" if table.usual_n > 1 else "one seed, which has no deviation"
    where = _OVER[table.measure.over]
    return Grid(
        title=f"{_head(table.measure)}, {where}, by round: mean ± standard deviation of {seeds}",
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
        title=f"{_head(found.measure)} over {found.rounds} rounds",
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
    rows = [
        _make_row(arm, table.measure.metric, round=number, **{**value._asdict(), "rank": _rank(value)})
        for arm in table.arms
        for number, value in table.of(arm).items()
    ]
    for result in found.results:
        for name, (mean, deviation) in (
            ("outcome", result.outcome),
            ("area", result.area),
            (f"labels_to_{found.share:g}_of_full", (result.labels, None)),
        ):
            rows.append(_make_row(result.arm, name, value=mean, sd=deviation, n=result.n))
        for difference in filter(None, (result.difference, result.to_plain)):
            numbers = {**vars(difference), "value": difference.mean, "sd": difference.deviation}
            metric = f"difference_of_{difference.quantity}"
            rows.append(_make_row(result.arm, metric, **numbers, n=difference.pairs))
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


def _make_row(arm: Arm, metric: str, /, **values: Any) -> dict[str, Any]:
    first = {"arm": arm.name, "strategy": arm.strategy, "query_model": arm.query_model, "loss": arm.loss}
    rest = {column: values.get(column) for column in _COLUMNS}
    return {**first, "finished": arm.is_finished, "metric": metric, **rest}


def _rank(value: Any) -> int | None:
    return None if math.isnan(value.rank) else int(value.rank)


def _format_value(value: object) -> object:
    if not isinstance(value, float):
        return value
    return None if math.isnan(value) else f"{value:.{_DIGITS}g}"


def _head(measure: Measure) -> str:
    name = describe_metric(measure.metric)
    notes = [measure.variant, "lower is better" if measure.lower_is_better else ""]
    note = ", ".join(filter(None, notes))
    return name[0].upper() + name[1:] + (f" ({note})" if note else "")


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
    values = [table.of(arm) for arm in table.arms if not arm.is_full]
    headings = []
    for number in table.rounds:
        labels = {round(of_arm[number].labels_per_site, 1) for of_arm in values if number in of_arm}
        headings.append(f"round {number}" + (f" ({labels.pop():g} labels)" if len(labels) == 1 else ""))
    return headings


def _round_cells(arm: Arm, table: RoundTable) -> list[Cell]:
    values = table.of(arm)
    if arm.is_full:
        blank = [Cell("")] * (len(table.rounds) - 1)
        return [*blank, _value_cell(values[max(values)], table.usual_n) if values else EMPTY]
    return [_value_cell(values[at], table.usual_n) if at in values else EMPTY for at in table.rounds]


def _value_cell(value: Any, usual_n: int) -> Cell:
    seeds = "" if value.n == usual_n else f" (n={value.n})"
    return Cell(_format_spread(value.value, value.sd) + seeds, _rank(value))


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
