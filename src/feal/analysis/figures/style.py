"""How figures look, in both forms: sizes, type, lines, and the words for figures and whom they are of."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any

from feal.analysis.colours import colour_of, site_colours
from feal.analysis.figures.contract import Rows
from feal.analysis.figures.seeds import MEAN, POOLED

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Print

COLUMN, PAGE = 3.5, 7.16
"""Widths of one and of two columns of a paper, in inches."""
INK, FAINT, GRID = "#222222", "#6B6B6B", "#E4E4E4"
WEB_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star", "triangle-down", "cross")
MARKERS = ("o", "s", "D", "^", "X", "*", "v", "P")
"""The same in print."""

_PRINT: Any = {
    # The one family that comes with matplotlib, so that a figure is the same on every machine.
    "font.family": "DejaVu Sans",
    "font.size": 7,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": 6.5,
    "legend.title_fontsize": 6,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 3,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "feal",
}
_UNITS = {"hd95": "pixels"}
_NAMES = {"hd95": "HD95", "dice": "Dice", "calibration_error": "expected calibration error"}


@contextmanager
def print_style() -> Iterator[None]:
    """Everything that is drawn or saved inside looks as in a paper: small type, embedded fonts, no date."""
    from matplotlib import rc_context

    with rc_context(_PRINT):
        yield


def saved(figure: Print, *, format: str) -> bytes:
    """A figure as the bytes of a PDF, SVG or PNG file, the same whenever it is drawn from the same rows."""
    content = io.BytesIO()
    undated: dict[str, dict[str, Any]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    with print_style():
        figure.savefig(content, format=format, metadata=undated.get(format))
    return content.getvalue()


def sheet(*, width: float, height: float) -> Print:
    """An empty figure for print, in inches, whose parts keep out of each other's way."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def legend_below(figure: Print, handles: Mapping[str, Any], *, note: str = "") -> None:
    """A legend under the whole figure, with a small line of explanation above it."""
    columns = min(len(handles), _legend_columns(handles, width=figure.get_figwidth()))
    legend = figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=columns,
        title=_wrapped(note, width=figure.get_figwidth()) or None,
        alignment="center",
        handlelength=2.2,
        columnspacing=1.2,
    )
    legend.get_title().set_color(FAINT)


def legend_height(names: Iterable[str], *, width: float, note: str = "") -> float:
    """Of the legend of these names with its note, in a figure of that width; both in inches."""
    names = list(names)
    rows = -(-len(names) // _legend_columns(names, width=width))
    return 0.16 * rows + 0.1 * len(_wrapped(note, width=width).splitlines())


def _wrapped(note: str, *, width: float) -> str:
    """Into lines as long as the figure is wide."""
    return fill(note, int(22 * width))


def _legend_columns(names: Iterable[str], *, width: float) -> int:
    """As many as the longest name leaves room for."""
    return max(1, int(width / (0.052 * max(map(len, names), default=1) + 0.42)))


def web_layout(**more: Any) -> dict[str, Any]:
    """The layout that all figures for the web share; `more` adds to it."""
    return {
        "template": "none",
        "font": {"family": WEB_FONT, "size": 13, "color": INK},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "hoverlabel": {"font": {"family": WEB_FONT, "size": 13}, "align": "left"},
        "hovermode": "closest",
        "autosize": True,
        **more,
    }


def web_axis(title: str = "", **more: Any) -> dict[str, Any]:
    """An axis for the web: calm lines, a title, room for its numbers."""
    return {
        "title": {"text": title, "standoff": 8, "font": {"size": 13}},
        "gridcolor": GRID,
        "linecolor": FAINT,
        "showline": True,
        "zeroline": False,
        "ticks": "outside",
        "tickcolor": FAINT,
        "ticklen": 4,
        "tickfont": {"size": 12},
        "automargin": True,
        **more,
    }


def web_legend(note: str = "") -> dict[str, Any]:
    """A legend under the whole figure, with a small line of explanation above it."""
    return {
        "orientation": "h",
        "traceorder": "normal",
        "yref": "container",
        "y": 0,
        "yanchor": "bottom",
        "x": 0,
        "xanchor": "left",
        "title": {"text": note, "side": "top", "font": {"size": 12, "color": FAINT}},
    }


@dataclass(frozen=True, kw_only=True)
class Look:
    """How a series is drawn: the strategy's colour, and a marker for those who cannot tell colours apart."""

    colour: str
    marker: int
    """Place in `SYMBOLS` and `MARKERS`."""


def looks(series: Iterable[str]) -> dict[str, Look]:
    """A look for each series, in the order in which they are drawn: bounds and random below, feal on top."""
    found: dict[str, Look] = {}
    for name in sorted(dict.fromkeys(series), key=_order):
        colour = colour_of(name)
        found[name] = Look(colour=colour, marker=_marker(colour, list(found.values())))
    return found


def _marker(colour: str, before: Sequence[Look]) -> int:
    """The first that no other series of that colour has, and as few of other colours as can be."""

    def taken(marker: int) -> tuple[int, int]:
        same = [look for look in before if look.marker == marker]
        return sum(look.colour == colour for look in same), len(same)

    return min(range(len(SYMBOLS)), key=taken)


def site_looks(overs: Iterable[str]) -> dict[str, Look]:
    """A look for each site, by its words; that of all sites together is dark."""
    overs = list(dict.fromkeys(overs))
    colours = site_colours([over for over in overs if over not in (POOLED, MEAN)])
    return {whom(over): Look(colour=colours.get(over, INK), marker=index % 8) for index, over in enumerate(overs)}


def translucent(colour: str, opacity: float) -> str:
    """A colour of the form #RRGGBB as CSS with an opacity.

    >>> translucent("#D55E00", 0.2)
    'rgba(213, 94, 0, 0.2)'
    """
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {opacity})"


def in_words(metric: str) -> str:
    """A figure's name as people write it.

    >>> in_words("balanced_accuracy"), in_words("hd95_cup"), in_words("calibration_error")
    ('balanced accuracy', 'HD95 cup', 'expected calibration error')
    """
    if metric in _NAMES:
        return _NAMES[metric]
    first, _, rest = metric.partition("_")
    return " ".join(filter(None, (_NAMES.get(first, first), rest.replace("_", " "))))


def with_unit(metric: str) -> str:
    """A figure's name for an axis, with its unit.

    >>> with_unit("hd95"), with_unit("accuracy")
    ('HD95 (pixels)', 'Accuracy')
    """
    unit = _UNITS.get(metric.partition("_")[0])
    words = in_words(metric)
    return words[0].upper() + words[1:] + (f" ({unit})" if unit else "")


def whom(over: str) -> str:
    """Whom a figure is of, in words."""
    return {POOLED: "all sites pooled", MEAN: "mean of sites"}.get(over, over)


def seeds(number: int) -> str:
    """A number of seeds in words.

    >>> seeds(1), seeds(3)
    ('one seed', '3 seeds')
    """
    return f"{number} seeds" if number != 1 else "one seed"


def seeds_note(rows: Rows, *, mark: str = "band") -> str:
    """What lines and their bands (or bars) are, and how many seeds stand behind them."""
    return " ".join(filter(None, (_over_seeds(rows, mark), unfinished_note(rows))))


def _over_seeds(rows: Rows, mark: str) -> str:
    numbers = sorted({row["n"] for row in rows if row["n"]})
    if not numbers or numbers[-1] == 1:
        return "One seed, so no interval."
    some = f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"{numbers[-1]}"
    alone = " (none where there is one seed)" if numbers[0] == 1 else ""
    return f"Mean over {some} seeds; {mark}: 95 % interval of the mean, Student's t{alone}."


def unfinished_note(rows: Rows) -> str:
    """A sentence where runs are not finished; they count as far as they go."""
    return "Some runs are not finished." if any(row["unfinished"] for row in rows) else ""


def _order(name: str) -> tuple[int, str]:
    strategy = name.split()[0].rstrip(",") if name.split() else name
    return {"full": 0, "random": 1, "feal": 3}.get(strategy, 2), name
