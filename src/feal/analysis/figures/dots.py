"""Dots in lines: one line a class, one dot an arm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from feal.analysis.figures.contract import Rows
from feal.analysis.figures.style import (
    COLUMN,
    FAINT,
    GRID,
    MARKERS,
    PAGE,
    SYMBOLS,
    legend_below,
    legend_height,
    looks,
    print_style,
    sheet,
)
from feal.analysis.figures.web_grid import grid_layout

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Print
    from plotly.graph_objects import Figure as Web

_SPREAD = 0.7
"""How much of a line's height its dots take."""
_MARGIN = 0.05
"""Beyond the outermost dots, as a share of the axis."""


def web_dots(rows: Rows, *, x_title: str, line: float | None, note: str = "") -> Web:
    """Dots for the web; rows have name, line, x, choice (what a menu offers) and hover."""
    from plotly.graph_objects import Figure

    places, styles = _lines(rows), looks(row["name"] for row in rows)
    choices = list(dict.fromkeys(row["choice"] for row in rows))
    data = {choice: [_dots(rows, name, choice, places, list(styles)) for name in styles] for choice in choices}
    traces = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "cliponaxis": False,
            "marker": {"size": 9, "symbol": SYMBOLS[look.marker], "color": look.colour},
            "hovertemplate": "%{customdata}<extra></extra>",
            **dots,
        }
        for (name, look), dots in zip(styles.items(), data[choices[0]], strict=True)
    ]
    buttons = [
        {
            "label": choice,
            "method": "restyle",
            "args": [{key: [dots[key] for dots in data[choice]] for key in ("x", "y", "customdata")}],
        }
        for choice in choices
    ]
    height = 60 + len(places) * max(34, 11 * len(styles))
    layout = grid_layout(
        tiers=[""],
        columns=[""],
        x_title=x_title,
        names=styles,
        note=note,
        menus=[buttons] if len(choices) > 1 else (),
        panel=height,
    )
    layout["xaxis"] |= {"rangemode": "tozero", "minallowed": 0}
    layout["yaxis"] |= {
        "tickvals": list(places.values()),
        "ticktext": list(places),
        "ticks": "",
        "showgrid": False,
    }
    layout["yaxis"]["range"] = [-0.6, len(places) - 0.4]
    between = [_rule("y", place + 0.5, color=GRID, width=1) for place in range(len(places) - 1)]
    layout["shapes"] = [*between, *([_rule("x", line, color=FAINT, width=1.5, dash="dash")] if line else [])]
    return Figure(data=traces, layout=layout)


def printed_dots(rows: Rows, *, x_title: str, line: float | None, note: str = "") -> Print:
    """Dots for print, of the first choice among the rows."""
    rows = [row for row in rows if row["choice"] == rows[0]["choice"]]
    places, styles = _lines(rows), looks(row["name"] for row in rows)
    width = COLUMN if len(styles) <= 8 else PAGE
    of_lines = len(places) * max(0.26, 0.075 * len(styles))
    height = 0.6 + of_lines + legend_height(styles, width=width, note=note)
    with print_style():
        figure = sheet(width=width, height=height)
        axes = figure.subplots()
        handles = {}
        for name, look in styles.items():
            dots = _dots(rows, name, rows[0]["choice"], places, list(styles))
            handles[name] = axes.scatter(
                dots["x"], dots["y"], s=13, color=look.colour, marker=MARKERS[look.marker], linewidths=0
            )
        if line is not None:
            axes.axvline(line, color=FAINT, linestyle=(0, (3, 2)), linewidth=0.8, zorder=1)
        for place in range(len(places) - 1):
            axes.axhline(place + 0.5, color=GRID, linewidth=0.5, zorder=1)
        axes.set_yticks(list(places.values()), list(places))
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.set(xlabel=x_title, ylim=(-0.6, len(places) - 0.4))
        left, right = axes.get_xlim()
        # The margin was a share of a narrower span.
        axes.set_xlim(min(0.0, left), right + _MARGIN * max(0.0, left))
        legend_below(figure, handles, note=note)
    return figure


def _rule(across: str, place: float, **line: Any) -> dict[str, Any]:
    """A line from edge to edge, at a place on the axis that it runs across."""
    along = "y" if across == "x" else "x"
    return {
        "type": "line",
        "layer": "below",
        "line": line,
        f"{along}ref": "paper",
        f"{along}0": 0,
        f"{along}1": 1,
        f"{across}0": place,
        f"{across}1": place,
    }


def _lines(rows: Rows) -> dict[str, float]:
    """The place of each line, the first on top."""
    names = list(dict.fromkeys(row["line"] for row in rows))
    return {name: float(len(names) - 1 - index) for index, name in enumerate(names)}


def _dots(
    rows: Rows, name: str, choice: str, places: dict[str, float], names: Sequence[str]
) -> dict[str, list[Any]]:
    own = [row for row in rows if row["name"] == name and row["choice"] == choice and row["x"] is not None]
    below = _SPREAD * ((names.index(name) + 0.5) / len(names) - 0.5)
    return {
        "x": [row["x"] for row in own],
        "y": [places[row["line"]] - below for row in own],
        "customdata": [row["hover"] for row in own],
    }
