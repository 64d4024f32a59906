"""Lines over rounds, one for each series with its interval, in panels by query model as in the paper."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from feal.analysis.arms import describe_metric
from feal.analysis.plots.base import Chart, Menu, PlotRows, fade
from feal.analysis.plots.series import MEAN, POOLED, count_seeds, describe_scope, note_seeds
from feal.analysis.plots.theme import DASHES, INK, SHAPES, Style, site_colours, style_series

if TYPE_CHECKING:
    import altair as alt

    from feal.analysis.plots.base import Panel

QUERY_MODELS = {"global": "Global query model", "local": "Local query model", "ensemble": "Ensemble of both"}
X_TITLES = {"labels": "Labels per site", "round": "Round", "confidence": "Probability of the predicted class"}
PANEL_HEIGHT = 220
_UNITS = {"hd95": "pixels"}
_FEW_TICKS, _FEW_BANDS = 7, 4
_KEPT = ("arm", "series", "query_model", "metric", "over", "round", "labels", "value", "low", "high")


def metric_title(metric: str) -> str:
    """Return a metric's name as a heading, with its unit.

    >>> metric_title("hd95"), metric_title("accuracy")
    ('HD95 (pixels)', 'Accuracy')
    """
    unit = _UNITS.get(metric.partition("_")[0])
    words = describe_metric(metric)
    return words[0].upper() + words[1:] + (f" ({unit})" if unit else "")


def style_sites(overs: Sequence[str]) -> dict[str, Style]:
    """Return a style for each site, by its name in words; that of all sites together is dark."""
    overs = list(dict.fromkeys(overs))
    colours = site_colours([over for over in overs if over not in (POOLED, MEAN)])
    return {
        describe_scope(over): Style(colour=colours.get(over, INK), shape=SHAPES[index % len(SHAPES)])
        for index, over in enumerate(overs)
    }


def draw_lines(
    rows: PlotRows,
    *,
    x: str = "labels",
    tiers: Sequence[str] = (),
    title: Callable[[str], str] = metric_title,
    styles: Mapping[str, Style] | None = None,
    scopes: Callable[[str], str] = describe_scope,
    scope_label: str = "Of",
    about: str = "",
    from_zero: bool = False,
) -> Chart:
    """Return lines: a row of panels for each of the `tiers` (metrics), or one row and a menu of metrics.

    `styles` are those of the series in drawing order, by default the strategies'; `scopes` names what the second
    menu chooses; `about` begins the note; `from_zero` starts y axes at 0.
    """
    styles = styles or style_series(row["series"] for row in rows)
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    tiers = [tier for tier in tiers if tier in metrics]
    shifts = _shift_series(rows, list(styles), x)
    models = list_query_models(rows)
    marks = LineMarks(rows, styles, x=x, mark="bar" if any(shifts.values()) else "band", from_zero=from_zero)
    newest = {row["arm"]: row["round"] for row in sorted(rows, key=lambda row: row["round"])}
    panels = []
    for tier in tiers or (None,):
        heading: Any = title(tier) if tier else _choose({metric: title(metric) for metric in metrics}, "metric")
        chosen = f"datum.metric === {json.dumps(tier)}" if tier else "datum.metric === metric"
        chosen += " && datum.over === over"
        panels.append([marks.draw(chosen, query_model=model, heading=heading) for model in models])
    menus = [
        Menu(name="metric", label="Metric", options={metric: describe_metric(metric) for metric in metrics}),
        Menu(name="over", label=scope_label, options={row["over"]: scopes(row["over"]) for row in rows}),
    ]
    return Chart(
        rows=[
            {**_drawn(row, x, shifts[row["series"]] or 0.0), "level": marks.is_level(row), "dash": marks.dash(row)}
            for row in rows
            if not marks.is_level(row) or row["round"] == newest[row["arm"]]
        ],
        # One column of tiers is wasted room: they stand side by side, each with its own scale.
        tiers=panels if len(models) > 1 else [[panel for (panel,) in panels]],
        is_y_shared=len(models) > 1,
        menus=menus[1:] if tiers else menus,
        highlight="series",
        legend=list(styles),
        note=about + note_seeds(rows, mark=marks.mark),
    )


def list_query_models(rows: PlotRows) -> list[str | None]:
    """Return the query models of the rows in the paper's order; one None where no arm has one."""
    there = {row["query_model"] for row in rows}
    return [name for name in QUERY_MODELS if name in there] or [None]


class LineMarks:
    """Draws the lines of a panel: intervals, lines, symbols, and a level for full supervision."""

    def __init__(
        self, rows: PlotRows, styles: Mapping[str, Style], *, x: str, mark: str = "band", from_zero: bool = False
    ) -> None:
        self.mark = mark
        self._rows, self._styles, self._x, self._from_zero = rows, styles, x, from_zero
        self._has_models = list_query_models(rows) != [None]
        self._has_others = any(row["strategy"] != "full" for row in rows)

    def is_level(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row is drawn as a level over all rounds: everything was labelled at once."""
        return bool(row["strategy"] == "full" and self._has_others and self._x != "confidence")

    def draw(
        self, chosen: str, *, query_model: str | None, heading: Any, tooltip: Sequence[alt.Tooltip] | None = None
    ) -> Panel:
        """Return a panel of the rows that satisfy `chosen`, with arms that have no query model."""
        import altair as alt

        if query_model:
            chosen += f" && (datum.query_model === null || datum.query_model === {json.dumps(query_model)})"
        base = alt.Chart().transform_filter(f"({chosen}) && datum.value !== null")
        known = base.transform_filter("datum.low !== null && !datum.level")
        x, y, colour = self._encode_x(), self._encode_y("value"), self._encode("color")
        shown = fade()
        if self.mark == "band":
            interval = known.mark_area().encode(y=self._encode_y("low"), y2="high:Q", opacity=fade(0.14))
        else:
            interval = known.mark_rule(strokeWidth=1).encode(
                y=self._encode_y("low"), y2="high:Q", opacity=fade(0.7)
            )
        lines = base.transform_filter("!datum.level")
        layers = [
            interval.encode(x=x, color=colour),
            lines.mark_line().encode(
                x=x,
                y=y,
                color=colour,
                strokeDash=self._encode_dash(),
                opacity=shown,
                detail="arm:N",
            ),
            lines.mark_point().encode(
                x=x,
                y=y,
                color=colour,
                shape=self._encode("shape"),
                opacity=shown,
                tooltip=list(tooltip) if tooltip is not None else self._tooltip(),
            ),
        ]
        if any(map(self.is_level, self._rows)):
            layers.insert(
                1,
                base.transform_filter("datum.level")
                .mark_rule(strokeWidth=2)
                .encode(
                    y=y,
                    color=colour,
                    strokeDash=self._encode_dash(),
                    opacity=shown,
                    tooltip=self._tooltip(),
                ),
            )
        if self._from_zero:
            # An axis of nothing but zeros has a height all the same.
            layers.insert(0, alt.Chart(alt.InlineData(values=[{}])).mark_point(opacity=0).encode(y=alt.datum(0.1)))
        subtitle: dict[str, Any] = {"subtitle": QUERY_MODELS[query_model]} if query_model else {}
        return alt.layer(*layers).properties(height=PANEL_HEIGHT, title=alt.TitleParams(heading, **subtitle))

    def _encode(self, channel: str) -> Any:
        import altair as alt

        kind = alt.Color if channel == "color" else alt.Shape
        values = [style.colour if channel == "color" else style.shape for style in self._styles.values()]
        return kind("series:N", title=None, scale=alt.Scale(domain=list(self._styles), range=values))

    def _encode_dash(self) -> alt.StrokeDash:
        import altair as alt

        # By a column of its own: merged into the legend of series, it would make outlines of symbols dashed.
        scale = alt.Scale(domain=list(DASHES), range=list(DASHES.values()))
        return alt.StrokeDash("dash:N", scale=scale, legend=None)

    def dash(self, row: Mapping[str, Any]) -> str:
        """Return the kind of a row's line: dotted for full supervision, dashed for an arm without query model."""
        if self.is_level(row):
            return "dotted"
        return "dashed" if self._has_models and row["query_model"] is None else "solid"

    def _encode_x(self) -> alt.X:
        import altair as alt

        ticks = _few_ticks(self._rows, self._x)
        axis: dict[str, Any] = {"grid": False, "tickCount": 6, "title": X_TITLES[self._x]}
        if self._x != "confidence":
            axis |= {"format": "d", "tickMinStep": 1}
        if ticks:
            axis["values"] = ticks
        return alt.X("x:Q", axis=alt.Axis(**axis), scale=self._scale(zero=False, padding=8))

    def _encode_y(self, name: str) -> alt.Y:
        import altair as alt

        return alt.Y(f"{name}:Q", title=None, axis=alt.Axis(tickCount=5), scale=self._scale(zero=self._from_zero))

    def _scale(self, **more: Any) -> alt.Scale:
        import altair as alt

        return alt.Scale(domain=[-0.02, 1.02], nice=False) if self._x == "confidence" else alt.Scale(**more)

    def _tooltip(self) -> list[alt.Tooltip]:
        import altair as alt

        return [
            alt.Tooltip("arm:N", title="Strategy"),
            alt.Tooltip("value:Q", title="Value", format=".4f"),
            alt.Tooltip("interval:N", title="95 % interval"),
            alt.Tooltip("seeds:N", title="Seeds"),
            alt.Tooltip("round:Q", title="Round"),
            alt.Tooltip("labels:Q", title="Labels per site", format=".4~g"),
        ]


def _choose(texts: Mapping[str, str], parameter: str) -> Any:
    """Return an expression for the text of the chosen value."""
    import altair as alt

    if len(texts) == 1:
        return next(iter(texts.values()))
    return alt.ExprRef(f"({json.dumps(dict(texts))})[{parameter}]")


def _drawn(row: Mapping[str, Any], x: str, shift: float) -> dict[str, Any]:
    unfinished = f", {row['unfinished']} not finished" if row["unfinished"] else ""
    return {
        **{key: row[key] for key in _KEPT},
        "x": row[x] + shift,
        "interval": "none" if row["low"] is None else f"{row['low']:.4g} to {row['high']:.4g}",
        "seeds": count_seeds(row["n"]) + unfinished,
    }


def _few_ticks(rows: PlotRows, x: str) -> list[float]:
    """Return the places of points if they are few; none where ticks at round numbers are better."""
    places = sorted({row[x] for row in rows if row["strategy"] != "full"}) if x != "confidence" else []
    return places if len(places) <= _FEW_TICKS else []


def _shift_series(rows: PlotRows, names: Sequence[str], x: str) -> dict[str, float | None]:
    """Return how far each series is moved sideways: none where bands have room, else less than half a step."""
    moved = [name for name in names if any(row["series"] == name and row["strategy"] != "full" for row in rows)]
    if len(moved) <= _FEW_BANDS or all(row["low"] is None for row in rows):
        return dict.fromkeys(names)
    places = sorted({row[x] for row in rows})
    step = min((b - a for a, b in pairwise(places)), default=1.0) * min(0.05, 0.5 / len(moved))
    return {name: (moved.index(name) - (len(moved) - 1) / 2) * step if name in moved else 0.0 for name in names}
