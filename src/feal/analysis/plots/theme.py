"""Colours, symbols, type and words that all plots share."""

import hashlib
from collections.abc import Iterable
from itertools import cycle
from typing import Any, NamedTuple

COLUMN, PAGE = 350, 716
"""Widths in pixels of a plot for one and for two columns of a paper; a phone is as wide as a column."""
PRINT_SCALE = 0.72
"""Points in print per pixel: a page of 716 pixels is 7.16 inches wide, and type of 12 pixels has 8.6 points."""
INK, FAINT, GRID = "#222222", "#6B6B6B", "#E4E4E4"
FONT = "DejaVu Sans"
"""The family that comes with matplotlib, so that plots look the same on every machine."""

SHAPES = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "cross",
    "triangle-down",
    "triangle-right",
    "M0,-.6L.14,-.2L.57,-.2L.23,.08L.35,.5L0,.25L-.35,.5L-.23,.08L-.57,-.2L-.14,-.2Z",
)
DASHES = {"solid": [1, 0], "dashed": [6, 3], "dotted": [2, 2], "dash-dotted": [8, 3, 2, 3]}

# Okabe and Ito's palette, then colours of Paul Tol's "muted" one: distinct under all common colour deficiencies.
_STRATEGY_COLOURS = {
    "feal": "#D55E00",
    "random": "#6E6E6E",
    "entropy": "#0072B2",
    "badge": "#009E73",
    "coreset": "#E69F00",
    "logo": "#CC79A7",
    "kafal": "#56B4E9",
    "strata": "#882255",
    "gradnorm": "#999933",
    "tod": "#332288",
    "full": "#000000",
    # As far from the others as they can be for all kinds of sight.
    "maxherding": "#1800F0",
    "uherding": "#783000",
    "rarity-herding": "#6060F0",
    "margin": "#3018C0",
    "typiclust": "#901878",
    "probcover": "#78A860",
    "dropquery": "#6090F0",
    "clasp-pe": "#906048",
    "random-class": "#0060C0",
    "random-foreground": "#A84818",
    "mixed": "#603030",
}
_OTHER_COLOURS = ("#44AA99", "#AA4499", "#117733", "#88CCEE", "#DDCC77", "#CC6677")
_SITE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#332288", "#999933", "#882255")

CONFIG: dict[str, Any] = {
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelColor": INK,
        "titleColor": INK,
        "domainColor": FAINT,
        "tickColor": FAINT,
        "tickSize": 4,
        "gridColor": GRID,
        "labelLimit": 200,
        "titlePadding": 6,
    },
    "legend": {
        "orient": "bottom",
        "title": None,
        "labelFontSize": 12,
        "labelColor": INK,
        "labelLimit": 320,
        "symbolSize": 60,
        "symbolOpacity": 1,
        "symbolStrokeWidth": 2,
        "columnPadding": 14,
        "rowPadding": 4,
    },
    "title": {
        "anchor": "start",
        "frame": "group",
        "fontSize": 13,
        # Of two fonts, the one that a PDF has first is random: a second weight would change its bytes.
        "fontWeight": "normal",
        "color": INK,
        "subtitleFontSize": 12,
        "subtitleColor": FAINT,
        "offset": 8,
    },
    "concat": {"spacing": 28},
    "line": {"strokeWidth": 2},
    "point": {"size": 40, "filled": True, "opacity": 1},
}


MATPLOTLIB_STYLE: Any = {
    "font.family": FONT,
    "font.size": 7,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7,
    "xtick.labelsize": 6.5,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.6,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "feal",
}


class Style(NamedTuple):
    """The colour of a series, and a shape for readers who cannot tell colours apart."""

    colour: str
    shape: str


def site_colours(sites: Iterable[str]) -> dict[str, str]:
    """Return a colour for each site by its rank in the order of names; colours repeat after nine.

    >>> site_colours(["birch", "alder"])
    {'alder': '#0072B2', 'birch': '#D55E00'}
    """
    return dict(zip(sorted(sites), cycle(_SITE_COLOURS), strict=False))


def arm_colour(arm: str) -> str:
    """Return the colour of an arm: that of its strategy, the first word; a user's strategy has one by its name.

    >>> arm_colour("feal"), arm_colour("entropy local"), arm_colour("entropy global plain")
    ('#D55E00', '#0072B2', '#0072B2')
    """
    strategy = _first_word(arm)
    if strategy in _STRATEGY_COLOURS:
        return _STRATEGY_COLOURS[strategy]
    return _OTHER_COLOURS[hashlib.sha256(strategy.encode()).digest()[0] % len(_OTHER_COLOURS)]


def style_series(series: Iterable[str]) -> dict[str, Style]:
    """Return a style for each series, in drawing order: full and random below, feal on top."""
    found: dict[str, Style] = {}
    for name in sorted(set(series), key=_drawing_order):
        colour, before = arm_colour(name), list(found.values())
        # The first shape that no series of the same colour has, and as few of other colours as possible.
        uses = {
            shape: (before.count(Style(colour, shape)), [s.shape for s in before].count(shape)) for shape in SHAPES
        }
        found[name] = Style(colour, min(SHAPES, key=uses.__getitem__))
    return found


def _drawing_order(name: str) -> tuple[int, str]:
    return {"full": 0, "random": 1, "feal": 3}.get(_first_word(name), 2), name


def _first_word(name: str) -> str:
    return name.split()[0].rstrip(",") if name.split() else name
