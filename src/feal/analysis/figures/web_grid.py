"""A grid of panels for the web: side by side on a wide screen, one under the other on a narrow one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Any

from feal.analysis.figures.style import GRID, INK, web_axis, web_layout, web_legend

_PANEL, _GAP, _X_AXIS, _LEGEND_ROW, _MENU, _TOOLS = 270, 88, 66, 22, 42, 26
"""Heights in pixels: of a panel, from one to the next, of the last one's axis, of a legend's row, of a menu,
and of the tools that plotly shows under the mouse."""
_WIDE, _NARROW = 900, 330
"""Widths in pixels that legends are laid out for."""


def grid_layout(
    *,
    tiers: Sequence[str],
    columns: Sequence[str],
    x_title: str,
    names: Iterable[str],
    note: str = "",
    menus: Sequence[Sequence[dict[str, Any]]] = (),
    ticks: Sequence[float] = (),
    from_zero: bool = False,
    panel: int = _PANEL,
) -> dict[str, Any]:
    """The layout of a grid; panels are numbered row by row, so that the second one's axes are x2 and y2.

    `layout["meta"]` holds two sets of arguments for `Plotly.relayout`: `narrow` stacks the panels for a phone,
    `wide` puts them side by side again.

    Args:
        tiers: for each row of panels the title of its y axis, which its panels share.
        columns: what stands over each column of panels.
        x_title: title of every x axis.
        names: what the legend lists.
        note: a line of explanation above the legend.
        menus: buttons of drop-down menus above the panels, two at most.
        ticks: where x axes have their ticks; anywhere by default.
        from_zero: whether y axes begin at 0.
        panel: height of a panel in pixels.
    """
    names = list(names)
    # Side by side on paper or a tablet, panels are narrower than a long title.
    x_title = "<br>".join(wrap(x_title, 24)) if len(columns) > 1 else x_title
    headings = 26 if any(columns) else 8
    layout = web_layout(
        showlegend=True,
        legend=web_legend(),
        updatemenus=[_menu(buttons) for buttons in menus],
        annotations=[_heading(text, place) for place, text in enumerate(columns) if text],
    )
    below: dict[str, Any] = {"rangemode": "tozero", "minallowed": 0} if from_zero else {}
    for tier, y_title in enumerate(tiers):
        for column in range(len(columns)):
            number = axis_number(tier * len(columns) + column)
            layout[f"xaxis{number}"] = web_axis(x_title, anchor=f"y{number}", **_ticks(ticks))
            layout[f"yaxis{number}"] = web_axis("" if column else y_title, anchor=f"x{number}", **below)
            if column:
                layout[f"yaxis{number}"]["matches"] = f"y{axis_number(tier * len(columns))}"
    shape = (len(tiers), len(columns))
    wide = _side_by_side(*shape, panel) | _foot(names, note, width=_WIDE) | _menus_in_a_row(menus)
    narrow = _stacked(*shape, panel) | _foot(names, note, width=_NARROW) | _menus_in_a_column(menus)
    for arrangement in (wide, narrow):
        arrangement["margin.t"] += headings
        arrangement["height"] += arrangement["margin.t"] + arrangement["margin.b"]
    layout["meta"] = {"wide": wide, "narrow": narrow}
    return _with(layout, wide)


def axis_number(place: int) -> str:
    """What follows `x` or `y` in the name of a panel's axis, by its place from 0 on."""
    return str(place + 1) if place else ""


def _side_by_side(tiers: int, columns: int, panel: int) -> dict[str, Any]:
    height = tiers * panel + (tiers - 1) * _GAP
    gap = 0.03
    width = (1 - gap * (columns - 1)) / columns
    change: dict[str, Any] = {"height": height, "margin.l": 64, "margin.r": 16}
    for place in range(tiers * columns):
        tier, column = divmod(place, columns)
        upper = 1 - tier * (panel + _GAP) / height
        left = column * (width + gap)
        number = axis_number(place)
        change[f"xaxis{number}.domain"] = [left, min(1.0, left + width)]
        change[f"yaxis{number}.domain"] = [max(0.0, upper - panel / height), upper]
        change[f"yaxis{number}.showticklabels"] = column == 0
    return change


def _stacked(tiers: int, columns: int, panel: int) -> dict[str, Any]:
    count = tiers * columns
    height = count * panel + (count - 1) * _GAP
    change: dict[str, Any] = {"height": height, "margin.l": 56, "margin.r": 8}
    for place in range(count):
        upper = 1 - place * (panel + _GAP) / height
        number = axis_number(place)
        change[f"xaxis{number}.domain"] = [0.0, 1.0]
        change[f"yaxis{number}.domain"] = [max(0.0, upper - panel / height), upper]
        change[f"yaxis{number}.showticklabels"] = True
    return change


def _foot(names: Sequence[str], note: str, *, width: int) -> dict[str, Any]:
    """Room for the legend, whose entries are as wide as the longest."""
    columns = max(1, width // (7 * max(map(len, names), default=1) + 52))
    noted = wrap(note, width // 6)
    rows = -(-len(names) // columns) + len(noted)
    return {"margin.b": _X_AXIS + _LEGEND_ROW * rows, "legend.title.text": "<br>".join(noted)}


def _menu(buttons: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "buttons": list(buttons),
        "type": "dropdown",
        "direction": "down",
        "x": 0,
        "xanchor": "left",
        "y": 1,
        "yanchor": "bottom",
        "bgcolor": "white",
        "bordercolor": GRID,
        "font": {"size": 13, "color": INK},
        "showactive": True,
    }


def _menus_in_a_row(menus: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
    change: dict[str, Any] = {"margin.t": _MENU if menus else _TOOLS}
    left = 0
    for place, buttons in enumerate(menus):
        change |= {f"updatemenus[{place}].pad.l": left, f"updatemenus[{place}].pad.b": 30}
        left += 7 * max(len(button["label"]) for button in buttons) + 60
    return change


def _menus_in_a_column(menus: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
    change: dict[str, Any] = {"margin.t": _MENU * len(menus) + 4}
    for place in range(len(menus)):
        above = 30 + _MENU * (len(menus) - 1 - place)
        change |= {f"updatemenus[{place}].pad.l": 0, f"updatemenus[{place}].pad.b": above}
    return change


def _ticks(places: Sequence[float]) -> dict[str, Any]:
    return {"tickmode": "array", "tickvals": list(places)} if places else {}


def _heading(text: str, place: int) -> dict[str, Any]:
    number = axis_number(place)
    return {
        "text": text,
        "showarrow": False,
        "xref": f"x{number} domain",
        "yref": f"y{number} domain",
        "x": 0.5,
        "y": 1,
        "yanchor": "bottom",
        "yshift": 4,
        "font": {"size": 14, "color": INK},
    }


def _with(layout: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """The layout after what `Plotly.relayout` would do to it."""
    for path, value in change.items():
        *parents, last = path.replace("[", ".").replace("]", "").split(".")
        inside: Any = layout
        for name in parents:
            inside = inside[int(name)] if name.isdigit() else inside.setdefault(name, {})
        inside[last] = value
    return layout
