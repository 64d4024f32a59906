"""The contract of a plot: tidy rows from runs, and one definition for the report and for files."""

import io
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import altair as alt
import matplotlib as mpl
import vl_convert
from matplotlib.figure import Figure

from feal.analysis.arms import Arm
from feal.analysis.plots.theme import COLUMN, CONFIG, FAINT, MATPLOTLIB_STYLE, PAGE, PRINT_SCALE, Style
from feal.analysis.runs import Run
from feal.analysis.stats import mean_and_deviation, student_interval
from feal.registry import Registry

PlotRows = list[dict[str, Any]]
"""A tidy table: the same keys in every row, plain values, None where there is no value."""
ImageFormat = Literal["pdf", "svg", "png"]
Panel = alt.Chart | alt.LayerChart | alt.FacetChart

VEGALITE = "6.4"
"""The release of Vega-Lite that files and the report are drawn by."""
PNG_SCALE = 3.0
HIGHLIGHT = "highlight"
"""The parameter that a click on the legend sets."""
MIN_PANEL, MAX_PANEL = 120, 640
"""Smallest and largest width of a panel in pixels."""
_LETTER = 6.8
"""Mean width of a letter in pixels."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A plot in Vega-Lite: panels side by side, or one below the other where the page is narrow."""

    rows: PlotRows
    tiers: Sequence[Sequence[Panel]]
    """Rows of panels; the panels of a row stand side by side."""
    is_y_shared: bool = False
    """Whether the panels of a row have the same y scale."""
    menus: Sequence[alt.Parameter] = ()
    highlight: str | None = None
    """The column whose values a click on the legend highlights."""
    legend: Sequence[str] = ()
    """Entries, by the longest of which the legend has columns."""
    note: str = ""
    margin: int = 64
    """Pixels beside each panel for the labels of its y axis."""

    @property
    def columns(self) -> int:
        """Return the number of panels side by side on a wide page."""
        return max(map(len, self.tiers))

    @property
    def width(self) -> int:
        """Return the width in pixels, that of a paper's column or page."""
        return PAGE if self.columns > 1 else COLUMN

    def to_spec(self) -> dict[str, Any]:
        """Return the Vega-Lite specification; `usermeta` is what the report needs to fit it to another width."""
        inner = min(MAX_PANEL, max(MIN_PANEL, (self.width - 12) // self.columns - self.margin))
        apart: dict[str, Any] = {} if self.highlight else {"color": "independent", "strokeDash": "independent"}
        y: Any = "shared" if self.is_y_shared else "independent"
        tiers = [
            alt.concat(*(panel.properties(width=inner) for panel in tier), columns=self.columns)
            for tier in self.tiers
        ]
        # Without highlighting each panel has a legend of its own, no wider than the panel.
        legends = 1 if self.highlight else self.columns
        entry = legends * (round(_LETTER * max(map(len, self.legend), default=1)) + 44)
        chart = alt.vconcat(
            *(tier.resolve_scale(y=y, **apart) for tier in tiers),
            data=alt.InlineData(values=[{key: _shorten(row[key]) for key in row} for row in self.rows]),
            config={**CONFIG, "legend": {**CONFIG["legend"], "columns": max(1, self.width // entry)}},
            usermeta={"columns": self.columns, "margin": self.margin, "entry": entry, "panel": MAX_PANEL},
        )
        spec: dict[str, Any] = chart.resolve_scale(**apart).add_params(*self.menus).to_dict()
        if self.highlight:
            # Altair warns about a selection that several panels share.
            select = {"type": "point", "fields": [self.highlight]}
            views = [_name_view(panel, f"panel-{at}") for at, panel in enumerate(list_panels(spec))]
            spec.setdefault("params", []).append(
                {"name": HIGHLIGHT, "select": select, "bind": "legend", "views": views}
            )
        return spec


def list_panels(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the panels of a specification."""
    return [panel for tier in spec["vconcat"] for panel in tier["concat"]]


def _name_view(panel: dict[str, Any], name: str) -> str:
    """Name the first layer that has a colour: a legend takes its behaviour from that one."""
    layers = panel.get("layer", [panel])
    next(layer for layer in layers if "field" in layer["encoding"].get("color", {}))["name"] = name
    return name


def _shorten(value: Any) -> Any:
    """Return a number with six significant digits, which is more than can be seen."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None


def make_menu(name: str, label: str, options: Mapping[str, str]) -> alt.Parameter:
    """Return a choice that the report offers: a parameter of the chart's expressions, and labels of its values."""
    values, labels = list(options), list(options.values())
    bind = alt.binding_select(options=values, labels=labels, name=f"{label}: ")
    return alt.param(name=name, value=values[0], bind=bind if len(values) > 1 else alt.Undefined)


def fade(opacity: float = 1.0) -> alt.OpacityValue:
    """Return an opacity that falls where the legend highlights another series."""
    return alt.OpacityValue(opacity / 10, condition={"param": HIGHLIGHT, "value": opacity})


def make_scale(values: Mapping[str, Any]) -> alt.Scale:
    """Return a scale that assigns a colour, shape or dash to each name."""
    return alt.Scale(domain=list(values), range=list(values.values()))


def colour_series(styles: Mapping[str, Style], column: str = "series") -> alt.Color:
    """Return the colours of series by their names in a column."""
    return alt.Color(f"{column}:N", scale=make_scale({name: style.colour for name, style in styles.items()}))


def shape_series(styles: Mapping[str, Style], column: str = "series") -> alt.Shape:
    """Return the symbols of series by their names in a column."""
    return alt.Shape(f"{column}:N", scale=make_scale({name: style.shape for name, style in styles.items()}))


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A plot of runs: `data` computes, `draw` defines how the rows are shown."""

    title: str
    reading: str
    """How to read it, in two sentences."""
    section: str
    """Its part of the report: learning, selection, uncertainty, shift, cost."""
    needs: str
    """What runs must hold to be shown."""
    data: Callable[[Sequence[Run]], PlotRows]
    """The plot's numbers; no row where runs hold nothing to show, a `FealError` where they do not fit together."""
    draw: Callable[[PlotRows], Chart | Figure]
    """The definition of the plot from at least one row."""
    shows_patients: bool = False
    """Whether it contains patients' images."""


PLOTS: Registry[Plot] = Registry("plot")


def read_plot_rows(plot: Plot, runs: Sequence[Run], *, pictures: bool = False) -> PlotRows:
    """Return a plot's rows; a plot of patients' images has none unless `pictures` are asked for."""
    return [] if plot.shows_patients and not pictures else plot.data(runs)


def describe_arm(arm: Arm) -> dict[str, Any]:
    """Return the columns that identify an arm; `unfinished` counts its runs that are not finished."""
    return {
        "arm": arm.name,
        "series": arm.series,
        "strategy": arm.strategy,
        "query_model": arm.query_model or None,
        "unfinished": sum(run.status != "finished" for run in arm.runs),
    }


def estimate_mean(
    values: Iterable[float | None], *, within: tuple[float, float] = (-math.inf, math.inf)
) -> dict[str, Any]:
    """Return mean over seeds, standard deviation, 95 % interval of the mean (Student's t) and number of seeds.

    Seeds without a value are left out; what too few seeds cannot tell is None. The interval is cut to `within`,
    the range of possible values.

    >>> estimate_mean([0.5, None])
    {'value': 0.5, 'sd': None, 'low': None, 'high': None, 'n': 1}
    """
    known = [value for value in values if value is not None]
    found: dict[str, Any] = {"value": None, "sd": None, "low": None, "high": None, "n": len(known)}
    if known:
        mean, deviation = map(float, mean_and_deviation(known))
        found["value"] = mean
    if len(known) > 1:
        low, high = student_interval(mean, deviation, len(known))
        found |= {"sd": deviation, "low": max(low, within[0]), "high": min(high, within[1])}
    return found


def note_unfinished(rows: PlotRows) -> str:
    """Return a note where some runs are not finished; they count up to their last complete round."""
    return "Some runs are not finished." if any(row["unfinished"] for row in rows) else ""


def save_plot(drawing: Chart | Figure, format: ImageFormat) -> bytes:
    """Return the content of a PDF, SVG or PNG file, the same bytes for the same rows."""
    if isinstance(drawing, Figure):
        content = io.BytesIO()
        undated: dict[str, dict[str, Any]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
        with mpl.rc_context(MATPLOTLIB_STYLE):
            drawing.savefig(content, format=format, metadata=undated.get(format))
        return content.getvalue()
    # The fonts of matplotlib are on every machine.
    vl_convert.register_font_directory(str(Path(mpl.get_data_path()) / "fonts" / "ttf"))
    spec = drawing.to_spec()
    if drawing.note:
        lines = textwrap.wrap(drawing.note, int(drawing.width / (_LETTER * 0.95)))
        look = {"orient": "bottom", "fontSize": 10, "fontWeight": "normal", "color": FAINT}
        spec["title"] = {"text": lines, **look}
    if format == "png":
        return vl_convert.vegalite_to_png(spec, vl_version=VEGALITE, scale=PNG_SCALE)
    svg = vl_convert.vegalite_to_svg(spec, vl_version=VEGALITE)
    if format == "svg":
        return svg.encode()
    # A PDF has a point for each pixel of the SVG's width and height, which its view box fills.
    pdf = vl_convert.svg_to_pdf(re.sub(r'(<svg[^>]*?) width="([\d.]+)" height="([\d.]+)"', _shrink, svg, count=1))
    # Resources are listed in random order; sorting them moves no object.
    return re.sub(rb"(?: +/\w+ \d+ 0 R\n)+", lambda lines: b"".join(sorted(lines[0].splitlines(True))), pdf)


def _shrink(match: re.Match[str]) -> str:
    width, height = (PRINT_SCALE * float(match[number]) for number in (2, 3))
    return f'{match[1]} width="{width:.2f}" height="{height:.2f}"'
