"""Dirichlet densities on triangles, drawn side by side for the web and for print."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from feal.analysis.figures.contract import Rows
from feal.analysis.figures.style import INK, WEB_FONT, print_style, sheet, web_layout
from feal.analysis.figures.triangle_sheet import (
    FAINTEST,
    LEFT,
    LETTERS,
    STEPS,
    Floats,
    Panel,
    Sheet,
    Text,
    sheet_of,
)
from feal.analysis.simplex import CORNERS, HEIGHT, raster

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure as Print
    from plotly.graph_objects import Figure as Web

_WIDE_SCALE = 105
"""Pixels of a triangle's side where there is room."""
_SCALE = "density over that of no evidence"
_BAR = 0.08
"""Height of the bar of colours in print, in inches."""


def web_triangles(rows: Rows) -> Web:
    """The triangles for the web; the mean tells its numbers on hovering."""
    from plotly.graph_objects import Figure as Web

    figure = Web()
    if not rows:
        return figure
    places = sheet_of(rows)
    x, y, _ = raster(STEPS)
    for panel in places.filled:
        place = {"x0": panel.x + x[0], "dx": x[1] - x[0], "y0": panel.y + y[0], "dy": y[1] - y[0]}
        figure.add_heatmap(z=panel.picture(), **place, zsmooth="best", coloraxis="coloraxis", hoverinfo="skip")
    figure.add_scatter(**_path(places, _COVERS), fill="toself", fillcolor="white", line_width=0, **_MUTE)
    figure.add_scatter(**_path(places, CORNERS[[0, 1, 2, 0]][None]), line={"color": INK, "width": 1}, **_MUTE)
    notes = [*places.letters, *(panel.note for panel in places.panels)]
    figure.add_scatter(**_texts(notes), mode="text", textfont_size=10, hoverinfo="skip")
    means = np.array([panel.mean() for panel in places.filled])
    figure.add_scatter(
        x=means[:, 0],
        y=means[:, 1],
        mode="markers",
        marker={"color": "white", "size": 6, "line": {"color": "black", "width": 1}},
        text=[_said(panel.row) for panel in places.filled],
        hovertemplate="%{text}<extra></extra>",
    )
    for texts, anchor in ((places.headings, {"yanchor": "bottom"}), (places.labels, {"xanchor": "right"})):
        for right, height, text in texts:
            figure.add_annotation(x=right, y=height, text=text.replace("\n", "<br>"), showarrow=False, **anchor)
    legend = {"text": "<br>".join(textwrap.wrap(corner_names(rows), 52)), "yshift": 60, "font_size": 12}
    figure.add_annotation(**legend, xref="paper", yref="paper", x=0.5, y=1, yanchor="bottom", showarrow=False)
    figure.update_xaxes(range=(-LEFT, places.width), visible=False, fixedrange=True)
    y_axis = {"scaleanchor": "x", "constraintoward": "top", "visible": False, "fixedrange": True}
    figure.update_yaxes(range=(-places.height, 0), **y_axis)
    # A telephone leaves 370 pixels, which decide how large triangles are.
    narrow_scale = min(_WIDE_SCALE, 370 / (places.width + LEFT))
    wide, narrow = (round(scale * places.height) + 110 for scale in (_WIDE_SCALE, narrow_scale))
    figure.update_layout(
        **web_layout(
            height=wide,
            meta={"wide": {"height": wide}, "narrow": {"height": narrow}},
            margin={"l": 4, "r": 4, "t": 100, "b": 4},
            font={"family": WEB_FONT, "size": 10, "color": INK},
            showlegend=False,
            coloraxis=_web_colours(places),
        )
    )
    return figure


def printed_triangles(rows: Rows) -> Print:
    """The triangles for print."""
    places = sheet_of(rows)
    with print_style():
        figure = sheet(width=max(3.5, places.width + LEFT), height=places.height + 0.9)
        if rows:
            _print(figure, places, title=corner_names(rows))
    return figure


def _print(figure: Print, places: Sheet, *, title: str) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    # A place of its own: one taken from the triangles' would be a share of their height, however high that is.
    axes, below = figure.subplots(2, 1, height_ratios=(places.height, _BAR))
    ticks = places.ticks
    colours = Normalize(FAINTEST, places.brightest)
    for panel in places.panels:
        _print_panel(axes, panel, colours)
    for x, y, text in places.letters:
        axes.text(x, y, text, ha="center", va="center", fontsize=6)
    for x, y, text in places.headings:
        axes.text(x, y, text, ha="center", va="bottom")
    for x, y, text in places.labels:
        axes.text(x, y, text, ha="right", va="center")
    axes.set(xlim=(-LEFT, places.width), ylim=(-places.height, 0), aspect="equal")
    axes.set_axis_off()
    figure.suptitle(title, fontsize=8)
    drawn = ScalarMappable(norm=colours, cmap="viridis")
    bar = figure.colorbar(drawn, cax=below, orientation="horizontal", label=_SCALE)
    bar.set_ticks(list(ticks), labels=list(ticks.values()))


def _print_panel(axes: Axes, panel: Panel, colours: Normalize) -> None:
    from matplotlib.patches import Polygon

    outline = Polygon(panel.at(CORNERS), fill=False, edgecolor=INK, linewidth=0.7)
    axes.add_patch(outline)
    if panel.alpha:
        extent = (panel.x, panel.x + 1, panel.y, panel.y + HEIGHT)
        look: dict[str, Any] = {"cmap": "viridis", "origin": "lower", "interpolation": "bilinear"}
        axes.imshow(panel.picture(), norm=colours, extent=extent, **look).set_clip_path(outline)
        axes.plot(*panel.mean(), marker="o", markersize=3, color="white", markeredgecolor="black")
    axes.text(*panel.note, ha="center", va="center", fontsize=6)


def corner_names(rows: Rows) -> str:
    """Which class stands at which corner."""
    names = [f"{letter} = {rows[0][f'class_{letter.lower()}']}" for letter in LETTERS]
    # Lines may break between classes only.
    return "   ".join(name.replace(" ", "\N{NO-BREAK SPACE}") for name in names)


_MUTE: dict[str, Any] = {"mode": "lines", "hoverinfo": "skip"}
# What of a picture lies outside its triangle: one right triangle on either side.
_COVERS = np.array(
    [
        [[-0.04, 0.0], [-0.04, HEIGHT + 0.04], [0.5, HEIGHT + 0.04], [0.5, HEIGHT], [0.0, 0.0], [-0.04, 0.0]],
        [[1.04, 0.0], [1.04, HEIGHT + 0.04], [0.5, HEIGHT + 0.04], [0.5, HEIGHT], [1.0, 0.0], [1.04, 0.0]],
    ]
)


def _path(sheet: Sheet, lines: Floats) -> dict[str, list[float | None]]:
    """Lines [n, points, 2] of every triangle as one trace, with gaps between them."""
    path: dict[str, list[float | None]] = {"x": [], "y": []}
    for panel in sheet.panels:
        for line in panel.at(lines).tolist():
            path["x"] += [*(round(x, 4) for x, _ in line), None]
            path["y"] += [*(round(y, 4) for _, y in line), None]
    return path


def _texts(texts: Sequence[Text]) -> dict[str, list[Any]]:
    return {"x": [x for x, _, _ in texts], "y": [y for _, y, _ in texts], "text": [text for _, _, text in texts]}


def _said(row: dict[str, Any]) -> str:
    lines = [f"{row[f'class_{letter}']}: {row[f'alpha_{letter}']:.1f}" for letter in "abc"]
    head = f"{row['column']}, predicted {row['predicted']}"
    return "<br>".join([head, f"{row['samples']} samples, mean concentration", *lines])


def _web_colours(places: Sheet) -> dict[str, Any]:
    place = {"orientation": "h", "x": 0.5, "y": 1, "yanchor": "bottom", "thickness": 10, "len": 0.8}
    bar = {
        **place,
        "title": {"text": _SCALE, "side": "top"},
        "tickvals": list(places.ticks),
        "ticktext": list(places.ticks.values()),
    }
    return {"colorscale": "Viridis", "cmin": FAINTEST, "cmax": places.brightest, "colorbar": bar}
