"""Lines over rounds for the web: hover, and menus for figures and for whom they are of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from feal.analysis.figures.contract import Rows
from feal.analysis.figures.lines import X_TITLES, Line, lines, panel_title, panels, x_ticks
from feal.analysis.figures.style import (
    SYMBOLS,
    Look,
    in_words,
    looks,
    seeds,
    seeds_note,
    translucent,
    whom,
    with_unit,
)
from feal.analysis.figures.web_grid import axis_number, grid_layout

if TYPE_CHECKING:
    from plotly.graph_objects import Figure as Web

Trace = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Hover:
    """What is told of a point: words that all points of a line share, and what is its own in them."""

    template: Callable[[Line], str]
    """Plotly's template, in which %{customdata[0]} is the first of `told`."""
    told: Callable[[dict[str, Any]], list[Any]]


def web_lines(
    rows: Rows,
    *,
    x: str = "labels",
    tiers: Sequence[str] = (),
    title: Callable[[str], str] = with_unit,
    styles: Mapping[str, Look] | None = None,
    about: str = "",
    note: str | None = None,
    shares: bool = False,
    hover: Hover | None = None,
) -> Web:
    """Lines for the web: a row of panels for each of the `tiers` (figures), or one row and a menu of figures.

    `styles` are the looks of the series in the order of drawing, those of strategies by default; `about` begins
    the note at the legend, and `note` is all of it; `shares` have axes from 0 on; `hover` is what is told of
    a point.
    """
    from plotly.graph_objects import Figure

    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    overs = list(dict.fromkeys(row["over"] for row in rows))
    tiers = [tier for tier in tiers if tier in metrics]
    styles = styles or looks(row["series"] for row in rows)
    columns = panels(rows)
    hover = hover or _HOVER
    rows = [{**row, "told": hover.told(row) if row["value"] is not None else []} for row in rows]
    drawn = lines(rows, x=x, order=styles)
    # Bands below all lines; many of them are paler, or they would hide each other.
    opacity = 0.14 if len(styles) <= 4 else 0.07
    bands, bodies = [], []
    for line in drawn:
        place = list(product(tiers or [line.metric], columns)).index((line.metric, line.panel))
        shared = _shared(line, place)
        bands.append(shared | _band_look(styles[line.series], opacity) | _band(line, overs[0], x))
        bodies.append(shared | _body_look(line, styles[line.series]) | _body(line, overs[0], x))
        bodies[-1]["hovertemplate"] = hover.template(line) + "<extra></extra>"
    _list_once(bodies, by_metric=not tiers)
    traces = [*bands, *bodies]
    menus = []
    if not tiers and len(metrics) > 1:
        menus.append([_figure_button(metric, traces, title) for metric in metrics])
        for trace in traces:
            trace["visible"] = trace["meta"]["metric"] == metrics[0]
    if len(overs) > 1:
        menus.append([_over_button(over, drawn, x) for over in overs])
    layout = grid_layout(
        tiers=[_wrapped(title(metric)) for metric in tiers or metrics[:1]],
        columns=[panel_title(panel) for panel in columns],
        x_title=X_TITLES[x],
        names=styles,
        note=about + seeds_note(rows) if note is None else note,
        menus=menus,
        ticks=x_ticks(rows, x),
        from_zero=shares,
    )
    return Figure(data=traces, layout=layout)


def _shared(line: Line, place: int) -> Trace:
    return {
        "type": "scatter",
        "name": line.series,
        "legendgroup": line.series,
        "xaxis": f"x{axis_number(place)}",
        "yaxis": f"y{axis_number(place)}",
        "meta": {"metric": line.metric, "panel": line.panel},
    }


def _band_look(look: Look, opacity: float) -> Trace:
    return {
        "mode": "lines",
        "fill": "toself",
        "fillcolor": translucent(look.colour, opacity),
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _body_look(line: Line, look: Look) -> Trace:
    return {
        "mode": "lines" if line.level else "lines+markers",
        "cliponaxis": False,
        "line": {"color": look.colour, "width": 2, "dash": line.dash},
        "marker": {"size": 6, "symbol": SYMBOLS[look.marker], "color": look.colour},
    }


def _list_once(traces: Sequence[Trace], *, by_metric: bool) -> None:
    """Let the legend have one entry for each series; `by_metric`: whichever figure is seen."""
    listed = set()
    for trace in traces:
        key = (trace["name"], trace["meta"]["metric"] if by_metric else "")
        trace["showlegend"] = key not in listed
        listed.add(key)


def _body(line: Line, over: str, x: str) -> dict[str, list[Any]]:
    points = line.points.get(over, [])
    return {
        "x": [row[x] for row in points],
        "y": [row["value"] for row in points],
        "customdata": [row["told"] for row in points],
    }


def _band(line: Line, over: str, x: str) -> dict[str, list[Any]]:
    sure = [row for row in line.points.get(over, []) if row["low"] is not None]
    return {
        "x": [row[x] for row in [*sure, *reversed(sure)]],
        "y": [
            round(value, 6) for value in [*(row["high"] for row in sure), *(row["low"] for row in reversed(sure))]
        ],
        "customdata": [],
    }


def _template(line: Line) -> str:
    return (
        f"<b>{line.arm}</b><br>{in_words(line.metric)} %{{y:.4f}}<br>%{{customdata[0]}}"
        "<br>round %{customdata[1]}, %{customdata[2]} labels per site"
    )


def _told(row: dict[str, Any]) -> list[Any]:
    interval = f", 95 % interval {row['low']:.4g} to {row['high']:.4g}" if row["low"] is not None else ""
    unfinished = f", {row['unfinished']} not finished" if row["unfinished"] else ""
    return [seeds(row["n"]) + interval + unfinished, row["round"], round(row["labels"], 2)]


_HOVER = Hover(template=_template, told=_told)


def _figure_button(metric: str, traces: Sequence[Trace], title: Callable[[str], str]) -> dict[str, Any]:
    # Which figure is seen is a matter of visibility, and whose figure one of data: so the two menus combine.
    return {
        "label": in_words(metric),
        "method": "update",
        "args": [
            {"visible": [trace["meta"]["metric"] == metric for trace in traces]},
            {"yaxis.title.text": _wrapped(title(metric))},
        ],
    }


def _over_button(over: str, drawn: Sequence[Line], x: str) -> dict[str, Any]:
    data = [part(line, over, x) for part in (_band, _body) for line in drawn]
    return {
        "label": whom(over),
        "method": "restyle",
        "args": [{key: [entry[key] for entry in data] for key in ("x", "y", "customdata")}],
    }


def _wrapped(title: str) -> str:
    return "<br>".join(wrap(title, 32))
