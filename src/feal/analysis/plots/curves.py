"""Lines over rounds, one for each series with its interval, in panels by query model; learning curves."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

import altair as alt

from feal.analysis.arms import describe_metric, group_by_arm
from feal.analysis.plots.base import (
    PLOTS,
    Chart,
    Panel,
    Plot,
    PlotRows,
    colour_series,
    describe_arm,
    estimate_mean,
    fade,
    make_menu,
    make_scale,
    note_unfinished,
    shape_series,
)
from feal.analysis.plots.theme import DASHES, INK, SHAPES, Style, site_colours, style_series
from feal.analysis.runs import Run
from feal.rundir.records import Round

POOLED = "pooled"
"""All sites' test samples together."""
MEAN = "mean"
"""The mean of the sites' values."""
ANY, SHARE = (-math.inf, math.inf), (0.0, 1.0)
"""Ranges of possible values."""
QUERY_MODELS = {"global": "Global query model", "local": "Local query model", "ensemble": "Ensemble of both"}
PANEL_HEIGHT = 220
_X_TITLES = {"labels": "Labels per site", "round": "Round"}
_FEW_TICKS, _FEW_BANDS = 7, 4
_TOOLTIP = [
    alt.Tooltip("arm:N", title="Strategy"),
    alt.Tooltip("value:Q", title="Value", format=".4f"),
    alt.Tooltip("interval:N", title="95 % interval"),
    alt.Tooltip("seeds:N", title="Seeds"),
    alt.Tooltip("round:Q", title="Round"),
    alt.Tooltip("labels:Q", title="Labels per site", format=".4~g"),
]

RoundValues = list[tuple[float, float | None]]
"""Labels and value of each seed."""
RoundMetrics = Mapping[tuple[str, str], float | None]
"""Values of one round by metric and scope: `POOLED`, `MEAN`, or a site."""


def _read_curves(runs: Sequence[Run]) -> PlotRows:
    """Return a row for each arm, metric, site (or pooled, or mean) and round."""
    return aggregate_rounds(
        runs, _metrics, within=lambda metric: (0.0, math.inf) if metric.startswith("hd95") else SHARE
    )


def _metrics(record: Round) -> RoundMetrics:
    return {
        (metric, over): value
        for metric, values in record.metrics.items()
        for over, value in {POOLED: values.pooled, MEAN: values.mean, **values.sites}.items()
    }


def aggregate_rounds(
    runs: Sequence[Run],
    read: Callable[[Round], RoundMetrics],
    *,
    within: Callable[[str], tuple[float, float]] = lambda _: ANY,
) -> PlotRows:
    """Return a row for each arm, metric, scope and round: the estimate over seeds.

    `labels` are those of a site (on average, where the row is of all sites) that the round was trained on;
    `within` gives a metric's range of possible values.

    Raises:
        FealError: a seed twice in one arm.
    """
    rows: PlotRows = []
    for arm in group_by_arm(runs):
        found: dict[tuple[str, str], dict[int, RoundValues]] = defaultdict(lambda: defaultdict(list))
        for record in (record for run in arm.runs for record in run.rounds):
            for key, value in read(record).items():
                found[key][record.round].append((_labels(record, key[1]), value))
        rows += [
            {
                **describe_arm(arm),
                "metric": metric,
                "over": over,
                "round": number,
                "labels": fmean(labels for labels, _ in seeds),
                **estimate_mean((value for _, value in seeds), within=within(metric)),
            }
            for (metric, over), rounds in found.items()
            for number, seeds in sorted(rounds.items())
        ]
    return rows if any(row["n"] for row in rows) else []


def _labels(record: Round, over: str) -> float:
    labels = record.labels
    return labels[over] if over in labels else fmean(labels.values() or [0])


def describe_scope(over: str) -> str:
    """Return what a value is of, in words."""
    return {POOLED: "all sites pooled", MEAN: "mean of sites"}.get(over, over)


def style_sites(overs: Sequence[str]) -> dict[str, Style]:
    """Return a style for each site, by its name in words; that of all sites together is dark."""
    overs = list(dict.fromkeys(overs))
    colours = site_colours([over for over in overs if over not in (POOLED, MEAN)])
    return {
        describe_scope(over): Style(colours.get(over, INK), SHAPES[index % len(SHAPES)])
        for index, over in enumerate(overs)
    }


def metric_title(metric: str) -> str:
    """Return a metric's name as a heading, with its unit.

    >>> metric_title("hd95"), metric_title("accuracy")
    ('HD95 (pixels)', 'Accuracy')
    """
    words = describe_metric(metric)
    return words[0].upper() + words[1:] + (" (pixels)" if metric.startswith("hd95") else "")


def list_query_models(rows: PlotRows) -> list[str | None]:
    """Return the query models of the rows in the paper's order; one None where no arm has one."""
    there = {row["query_model"] for row in rows}
    return [name for name in QUERY_MODELS if name in there] or [None]


def draw_lines(
    rows: PlotRows,
    *,
    x: str = "labels",
    tiers: Mapping[str, str] | None = None,
    title: Callable[[str], str] = metric_title,
    styles: Mapping[str, Style] | None = None,
    scope_label: str = "Of",
    from_zero: bool = False,
) -> Chart:
    """Return lines: a row of panels for each of the `tiers` (headings by metric), or one and a menu of metrics.

    `title` gives the heading of a metric of the menu; `styles` are those of the series in drawing order, by
    default the strategies'; `scope_label` names the menu of scopes; `from_zero` starts y axes at 0.
    """
    styles = styles or style_series(row["series"] for row in rows)
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    by_menu: Any = alt.ExprRef(f"({json.dumps({metric: title(metric) for metric in metrics})})[metric]")
    by_tier = {json.dumps(metric): heading for metric, heading in (tiers or {}).items() if metric in metrics}
    models = list_query_models(rows)
    shifts = _shift_series(rows, list(styles), x)
    mark = "bar" if shifts else "band"
    # An axis of nothing but zeros has a height all the same.
    height = alt.Chart(alt.InlineData(values=[{}])).mark_point(opacity=0).encode(y=alt.datum(0.1))
    panels = [
        [
            draw_panel(
                f"datum.metric === {metric} && datum.over === over",
                query_model=model,
                heading=heading,
                styles=styles,
                x=_encode_x(rows, x),
                y_scale=alt.Scale(zero=from_zero),
                tooltip=_TOOLTIP,
                mark=mark,
                below=[height] if from_zero else [],
            )
            for model in models
        ]
        for metric, heading in (by_tier or {"metric": by_menu}).items()
    ]
    menus = [
        make_menu("metric", "Metric", {metric: describe_metric(metric) for metric in metrics}),
        make_menu("over", scope_label, {row["over"]: describe_scope(row["over"]) for row in rows}),
    ]
    return Chart(
        rows=_mark_rows(rows, x, shifts),
        # One column of tiers is wasted room: they stand side by side, each with its own scale.
        tiers=panels if len(models) > 1 else [[panel for (panel,) in panels]],
        is_y_shared=len(models) > 1,
        menus=menus[1:] if tiers else menus,
        highlight="series",
        legend=list(styles),
        note=_note_seeds(rows, mark=mark),
    )


def draw_panel(
    chosen: str,
    *,
    query_model: str | None,
    heading: Any,
    styles: Mapping[str, Style],
    x: alt.X,
    y_scale: alt.Scale,
    tooltip: Sequence[alt.Tooltip],
    mark: str = "band",
    below: Sequence[alt.Chart] = (),
) -> Panel:
    """Layer intervals (`band` or `bar`), levels over all rounds, lines and symbols, above the layers `below`.

    Rows have `x`, `value`, `series`, `arm`, `query_model`, `dash`, and may have an interval from `low` to `high`
    or be a `level` (drawn as a line across); those that satisfy `chosen` are shown, of one query model or without.
    """

    def y(column: str) -> alt.Y:
        return alt.Y(f"{column}:Q", title=None, axis=alt.Axis(tickCount=5), scale=y_scale)

    base = filter_rows(chosen, query_model).encode(color=colour_series(styles), opacity=fade())
    # By a column of its own: merged into the legend of series, it would make outlines of symbols dashed.
    dash = alt.StrokeDash("dash:N", scale=make_scale(DASHES), legend=None)
    levels = base.transform_filter("datum.level").mark_rule(strokeWidth=2)
    lines = base.transform_filter("!datum.level").encode(x=x)
    known = lines.transform_filter("isValid(datum.low)")
    interval = known.mark_area() if mark == "band" else known.mark_rule(strokeWidth=1)
    return alt.layer(
        *below,
        interval.encode(y=y("low"), y2="high:Q", opacity=fade(0.14 if mark == "band" else 0.7)),
        levels.encode(y=y("value"), strokeDash=dash, tooltip=list(tooltip)),
        lines.mark_line().encode(y=y("value"), strokeDash=dash, detail="arm:N"),
        lines.mark_point().encode(y=y("value"), shape=shape_series(styles), tooltip=list(tooltip)),
    ).properties(
        height=PANEL_HEIGHT,
        title=alt.TitleParams(heading, subtitle=QUERY_MODELS[query_model] if query_model else alt.Undefined),
    )


def filter_rows(chosen: str, query_model: str | None) -> alt.Chart:
    """Return a chart of the rows that satisfy an expression, of one query model or without any."""
    if query_model:
        chosen += f" && (datum.query_model === null || datum.query_model === {json.dumps(query_model)})"
    return alt.Chart().transform_filter(f"{chosen} && datum.value !== null")


def _encode_x(rows: PlotRows, x: str) -> alt.X:
    places = sorted({row[x] for row in rows if row["strategy"] != "full"})
    # Ticks are where the points are, if those are few.
    ticks = alt.Undefined if not places or len(places) > _FEW_TICKS else places
    axis = alt.Axis(grid=False, tickCount=6, title=_X_TITLES[x], format="d", tickMinStep=1, values=ticks)
    return alt.X("x:Q", axis=axis, scale=alt.Scale(zero=False, padding=8))


def _mark_rows(rows: PlotRows, x: str, shifts: Mapping[str, float]) -> PlotRows:
    """Return rows as they are drawn; full supervision, where all is labelled at once, is a level of one row."""
    newest = {row["arm"]: row["round"] for row in sorted(rows, key=lambda row: row["round"])}
    has_others = any(row["strategy"] != "full" for row in rows)
    has_models = list_query_models(rows) != [None]
    drawn = []
    for row in rows:
        is_level = has_others and row["strategy"] == "full"
        if is_level and row["round"] != newest[row["arm"]]:
            continue
        unfinished = f", {row['unfinished']} not finished" if row["unfinished"] else ""
        drawn.append(
            {
                **row,
                "x": row[x] + shifts.get(row["series"], 0.0),
                "interval": "none" if row["low"] is None else f"{row['low']:.4g} to {row['high']:.4g}",
                "seeds": ("one seed" if row["n"] == 1 else f"{row['n']} seeds") + unfinished,
                "level": is_level,
                "dash": "dotted" if is_level else choose_dash(row, has_models=has_models),
            }
        )
    return drawn


def choose_dash(row: Mapping[str, Any], *, has_models: bool) -> str:
    """Return the kind of a line: dashed for an arm without query model where others have one."""
    return "dashed" if has_models and row["query_model"] is None else "solid"


def _shift_series(rows: PlotRows, names: Sequence[str], x: str) -> dict[str, float]:
    """Return how far series are moved sideways, less than half a step; nothing where bands have room."""
    moved = [name for name in names if any(row["series"] == name and row["strategy"] != "full" for row in rows)]
    if len(moved) <= _FEW_BANDS or all(row["low"] is None for row in rows):
        return {}
    places = sorted({row[x] for row in rows})
    step = min((b - a for a, b in pairwise(places)), default=1.0) * min(0.05, 0.5 / len(moved))
    return {name: (place - (len(moved) - 1) / 2) * step for place, name in enumerate(moved)}


def _note_seeds(rows: PlotRows, *, mark: str) -> str:
    """Explain lines and their bands (or bars), with the number of seeds."""
    numbers = sorted({row["n"] for row in rows if row["n"]})
    if not numbers or numbers[-1] == 1:
        text = "One seed, so no interval."
    else:
        some = f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"{numbers[-1]}"
        alone = " (none for a single seed)" if numbers[0] == 1 else ""
        text = f"Mean over {some} seeds; {mark}: 95 % interval of the mean, Student's t{alone}."
    return f"{text} {note_unfinished(rows)}".strip()


PLOTS.register("curves", summary="learning curves by query model, with intervals over seeds")(
    Plot(
        title="Learning curves",
        reading="Each line is a strategy: a metric on the test data against the labels per site, as mean over "
        "seeds with the 95 % interval of the mean (Student's t). Each panel is a query model; strategies without "
        "one are dashed and the same in every panel, and the dotted line is full supervision.",
        section="learning",
        needs="a finished round of runs whose sites have test data",
        data=_read_curves,
        draw=draw_lines,
    )
)
