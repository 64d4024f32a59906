"""Stacked bars, one an arm: in panels of different units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from feal.analysis.figures.contract import Rows
from feal.analysis.figures.style import COLUMN, PAGE, legend_below, legend_height, print_style, sheet
from feal.analysis.figures.web_grid import axis_number, grid_layout

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Print
    from plotly.graph_objects import Figure as Web


def web_bars(rows: Rows, *, titles: Mapping[str, str], colours: Mapping[str, str], note: str = "") -> Web:
    """Bars for the web; rows have arm, panel, part, value and hover.

    Args:
        titles: of each panel's x axis, in their order.
        colours: of each part, in the order of stacking.
        note: a line of explanation at the legend.
    """
    from plotly.graph_objects import Figure

    arms = _arms(rows)
    traces: list[dict[str, Any]] = []
    for place, panel in enumerate(titles):
        for part, colour in colours.items():
            own = [row for row in rows if (row["panel"], row["part"]) == (panel, part)]
            if own:
                traces.append(
                    {
                        "type": "bar",
                        "orientation": "h",
                        "name": part,
                        "x": [row["value"] for row in own],
                        "y": [row["arm"] for row in own],
                        "xaxis": f"x{axis_number(place)}",
                        "yaxis": f"y{axis_number(place)}",
                        "marker": {"color": colour},
                        "customdata": [row["hover"] for row in own],
                        "hovertemplate": "%{customdata}<extra></extra>",
                        "meta": {"panel": panel},
                    }
                )
    layout = grid_layout(
        tiers=[""],
        columns=[""] * len(titles),
        x_title="",
        names=colours,
        note=note,
        panel=40 + 24 * len(arms),
    )
    for place, title in enumerate(titles.values()):
        number = axis_number(place)
        layout[f"xaxis{number}"]["title"]["text"] = title
        layout[f"yaxis{number}"] |= {
            "categoryorder": "array",
            "categoryarray": arms,
            "ticks": "",
            "showgrid": False,
        }
    return Figure(data=traces, layout={**layout, "barmode": "stack", "bargap": 0.3})


def printed_bars(rows: Rows, *, titles: Mapping[str, str], colours: Mapping[str, str], note: str = "") -> Print:
    """Bars for print; see `web_bars`."""
    arms = _arms(rows)
    width = PAGE if len(titles) > 1 else COLUMN
    height = 0.7 + 0.17 * len(arms) + legend_height(colours, width=width, note=note)
    with print_style():
        figure = sheet(width=width, height=height)
        grid = figure.subplots(1, len(titles), sharey=True, squeeze=False)[0]
        handles: dict[str, Any] = {}
        for axes, (panel, title) in zip(grid, titles.items(), strict=True):
            left = dict.fromkeys(arms, 0.0)
            for row in (row for part in colours for row in rows if (row["panel"], row["part"]) == (panel, part)):
                place, colour = arms.index(row["arm"]), colours[row["part"]]
                bar = axes.barh(place, row["value"], left=left[row["arm"]], height=0.7, color=colour)
                handles.setdefault(row["part"], bar)
                left[row["arm"]] += row["value"]
            axes.set_yticks(range(len(arms)), arms)
            axes.tick_params(axis="y", length=0)
            axes.grid(visible=False, axis="y")
            axes.set_xlabel(title)
        legend_below(figure, handles, note=note)
    return figure


def _arms(rows: Rows) -> list[str]:
    """From the bottom up, so that the first by name is on top."""
    return sorted({row["arm"] for row in rows}, reverse=True)
