"""Lines over rounds, a series each with its interval: in panels by query model, as the paper has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from feal.analysis.figures.contract import Rows
from feal.analysis.figures.style import (
    COLUMN,
    MARKERS,
    PAGE,
    Look,
    legend_below,
    legend_height,
    looks,
    print_style,
    seeds_note,
    sheet,
    with_unit,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Print
    from matplotlib.lines import Line2D

QUERY_MODELS = ("global", "local", "ensemble")
X_TITLES = {"labels": "Labels per site", "round": "Round", "confidence": "Probability of the predicted class"}
_FEW_TICKS, _FEW_BANDS = 7, 4
_DASHES = {"solid": "-", "dash": (0, (4, 1.5)), "dot": (0, (1, 1.5))}


@dataclass(frozen=True, kw_only=True)
class Line:
    """One series in one panel, of one figure."""

    metric: str
    panel: str | None
    """A query model; None where no arm has one."""
    series: str
    reference: bool
    """Whether it has no query model and stands in every panel for comparison."""
    points: dict[str, Rows]
    """By whom the figure is of, in the order of rounds."""
    level: bool = False
    """Whether it is one figure for all rounds."""

    @property
    def arm(self) -> str:
        """The series with its query model and all."""
        return str(next(iter(self.points.values()))[0]["arm"])

    @property
    def dash(self) -> Literal["solid", "dash", "dot"]:
        """Dotted where level, dashed where it has no query model while others have one."""
        return "dot" if self.level else "dash" if self.reference else "solid"


def panels(rows: Rows) -> list[str | None]:
    """The query models that the rows have, in the paper's order; one panel without a name if there is none."""
    there = {row["query_model"] for row in rows}
    return [name for name in QUERY_MODELS if name in there] or [None]


def panel_title(panel: str | None) -> str:
    """What stands over a panel."""
    return {"global": "Global query model", "local": "Local query model"}.get(
        panel or "", "Ensemble of both" if panel else ""
    )


def x_ticks(rows: Rows, x: str) -> list[float]:
    """Where lines have their points, if these are few; none where they are many and ticks better be round."""
    places = sorted({row[x] for row in rows if not _bounds([row])}) if x != "confidence" else []
    return places if len(places) <= _FEW_TICKS else []


def lines(rows: Rows, *, x: str = "labels", order: Iterable[str] = ()) -> list[Line]:
    """The rows as lines, series without a query model in every panel, in the order in which they are drawn.

    What has everything labelled is level: its last figure, over all that the others' lines span.
    """
    series = list(order) or list(looks(row["series"] for row in rows))
    found = []
    for metric in dict.fromkeys(row["metric"] for row in rows):
        for panel in panels(rows):
            shown = [row for row in rows if row["metric"] == metric and row["query_model"] in (panel, None)]
            for name in series:
                own = [row for row in shown if row["series"] == name and row["value"] is not None]
                if own:
                    found.append(
                        Line(
                            metric=metric,
                            panel=panel,
                            series=name,
                            reference=panel is not None and own[0]["query_model"] is None,
                            points=_points(own, shown, x),
                            level=_bounds(own),
                        )
                    )
    return found


def printed_lines(
    rows: Rows,
    *,
    x: str = "labels",
    tiers: Sequence[str] = (),
    title: Callable[[str], str] = with_unit,
    styles: Mapping[str, Look] | None = None,
    about: str = "",
    note: str | None = None,
    shares: bool = False,
) -> Print:
    """Lines for print: a row of panels for each of the `tiers` (figures; the first alone by default).

    Of the sites' figures the first is drawn, the pooled one as a rule. `styles` are the looks of the series in the
    order of drawing, those of strategies by default; `about` begins the note at the legend, and `note` is
    all of it; `shares` have axes from 0 on.
    """
    rows = _first_over(rows)
    tiers = [tier for tier in tiers if any(row["metric"] == tier for row in rows)] or [rows[0]["metric"]]
    rows = [row for row in rows if row["metric"] in tiers]
    columns, styles = panels(rows), styles or looks(row["series"] for row in rows)
    width = PAGE if len(columns) > 1 or len(styles) > 8 else COLUMN
    shifts = _shifts(rows, list(styles), x)
    mark = "bar" if any(shifts.values()) else "band"
    said = about + seeds_note(rows, mark=mark) if note is None else note
    below = 0.1 + legend_height(styles, width=width, note=said)
    with print_style():
        figure = sheet(width=width, height=1.9 * len(tiers) + 0.35 + below)
        grid = figure.subplots(len(tiers), len(columns), sharex=True, sharey="row", squeeze=False)
        places = {(t, p): grid[i][j] for i, t in enumerate(tiers) for j, p in enumerate(columns)}
        handles: dict[str, Line2D] = {}
        for line in lines(rows, x=x, order=styles):
            axes = places[line.metric, line.panel]
            handle = _draw(axes, line, styles[line.series], x=x, shift=shifts[line.series])
            handles.setdefault(line.series, handle)
        for (metric, panel), axes in places.items():
            _dress(axes, x_ticks(rows, x), whole=x != "confidence", from_zero=shares)
            if metric == tiers[0]:
                axes.set_title(panel_title(panel))
            if metric == tiers[-1]:
                axes.set_xlabel(X_TITLES[x])
            if panel == columns[0]:
                axes.set_ylabel(fill(title(metric), 30))
        legend_below(figure, {name: handles[name] for name in styles if name in handles}, note=said)
    return figure


def _first_over(rows: Rows) -> Rows:
    return [row for row in rows if row["over"] == rows[0]["over"]]


def _points(own: Rows, shown: Rows, x: str) -> dict[str, Rows]:
    points: dict[str, Rows] = {}
    for row in own:
        points.setdefault(row["over"], []).append(row)
    if not _bounds(own):
        return points
    return {over: _levelled(rows[-1], shown, x) for over, rows in points.items()}


def _bounds(own: Rows) -> bool:
    return bool(own[0]["strategy"] == "full")


def _levelled(bound: dict[str, Any], shown: Rows, x: str) -> Rows:
    others = {row[x] for row in shown if row["over"] == bound["over"] and not _bounds([row])}
    return [{**bound, x: place} for place in sorted(others) or [bound[x]]]


def _draw(axes: Axes, line: Line, look: Look, *, x: str, shift: float | None) -> Line2D:
    """A line with a band; or, moved sideways by `shift`, with bars: many of them can still be told apart."""
    points = next(iter(line.points.values()))
    sure = [row for row in points if row["low"] is not None]
    places, low, high = ([row[key] for row in sure] for key in (x, "low", "high"))
    if shift is None:
        axes.fill_between(places, low, high, color=look.colour, alpha=0.14, linewidth=0)
    elif not line.level:
        axes.vlines([place + shift for place in places], low, high, color=look.colour, linewidth=0.6, alpha=0.7)
    [handle] = axes.plot(
        [row[x] + (0 if line.level else shift or 0) for row in points],
        [row["value"] for row in points],
        color=look.colour,
        linestyle=_DASHES[line.dash],
        marker="" if line.level and len(points) > 1 else MARKERS[look.marker],
    )
    return handle


def _shifts(rows: Rows, names: Sequence[str], x: str) -> dict[str, float | None]:
    """How far each series is moved sideways: not at all where bands have room, else less than half a step."""
    moved = [name for name in names if any(row["series"] == name and not _bounds([row]) for row in rows)]
    if len(moved) <= _FEW_BANDS or all(row["low"] is None for row in rows):
        return dict.fromkeys(names)
    places = sorted({row[x] for row in rows})
    step = min((b - a for a, b in pairwise(places)), default=1.0) * min(0.05, 0.5 / len(moved))
    return {name: (moved.index(name) - (len(moved) - 1) / 2) * step if name in moved else 0.0 for name in names}


def _dress(axes: Axes, ticks: Sequence[float], *, whole: bool, from_zero: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    if from_zero:
        nothing = not any(np.any(line.get_ydata()) for line in axes.lines)
        highest = 1.0 if nothing else axes.get_ylim()[1]
        axes.set_ylim(-0.02 * highest, highest)
    if ticks:
        axes.set_xticks(ticks)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=whole))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    axes.margins(x=0.05)
