"""The contract of a plot: tidy rows from runs, and one definition for the report and for files."""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from feal.analysis.plots.theme import COLUMN, CONFIG, FAINT, FONT, INK, PAGE, PRINT_SCALE
from feal.analysis.runs import Run
from feal.registry import Registry

if TYPE_CHECKING:
    import altair as alt
    from matplotlib.figure import Figure

    Panel = alt.Chart | alt.LayerChart | alt.FacetChart

PlotRows = list[dict[str, Any]]
"""A tidy table: the same keys in every row, plain values, None where there is no value."""
ImageFormat = Literal["pdf", "svg", "png"]

VEGALITE = "6.4"
"""The release of Vega-Lite that files and the report are drawn by."""
PNG_SCALE = 3.0
HIGHLIGHT = "highlight"
"""The parameter that a click on the legend sets."""
MIN_PANEL, MAX_PANEL = 120, 640
"""Smallest and largest width of a panel in pixels."""
_LETTER = 6.8
"""Mean width of a letter in pixels."""
_MATPLOTLIB: Any = {
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


@dataclass(frozen=True, kw_only=True)
class Menu:
    """A choice that the report offers: a parameter of the chart's expressions, and the labels of its values."""

    name: str
    label: str
    options: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A plot in Vega-Lite: panels side by side, or one below the other where the page is narrow."""

    rows: PlotRows
    tiers: Sequence[Sequence[Panel]]
    """Rows of panels; the panels of a row stand side by side."""
    is_y_shared: bool = False
    """Whether the panels of a row have the same y scale."""
    menus: Sequence[Menu] = ()
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

    def to_spec(self, *, width: int | None = None) -> dict[str, Any]:
        """Return the Vega-Lite specification for a width in pixels, by default that of a paper's column or page.

        `usermeta` holds what the report needs to fit it to another width.
        """
        import altair as alt

        width = width or (PAGE if self.columns > 1 else COLUMN)
        columns = self.columns if width > COLUMN else 1
        inner = min(MAX_PANEL, max(MIN_PANEL, (width - 12) // columns - self.margin))
        scales: dict[str, Any] = {"y": "shared" if self.is_y_shared else "independent"}
        if self.highlight is None:
            scales |= {"color": "independent", "strokeDash": "independent"}
        rows = [
            alt.concat(*(panel.properties(width=inner) for panel in tier), columns=columns).resolve_scale(**scales)
            for tier in self.tiers
        ]
        entry = round(_LETTER * max(map(len, self.legend), default=1)) + 44
        chart = alt.vconcat(
            *rows,
            data=alt.InlineData(values=_round(self.rows)),
            config={**CONFIG, "legend": {**CONFIG["legend"], "columns": max(1, width // entry)}},
            usermeta={"columns": self.columns, "margin": self.margin, "entry": entry, "panel": MAX_PANEL},
        )
        if self.highlight is None:
            chart = chart.resolve_scale(color="independent", strokeDash="independent")
        spec: dict[str, Any] = chart.add_params(*map(_make_parameter, self.menus)).to_dict()
        if self.highlight is not None:
            # Altair warns about a selection that several panels share.
            select = {"type": "point", "fields": [self.highlight]}
            views = [_name_view(panel, str(at)) for at, panel in enumerate(list_panels(spec))]
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
    view = next(layer for layer in layers if "field" in layer["encoding"].get("color", {}))
    view["name"] = f"panel-{name}"
    return f"panel-{name}"


def _make_parameter(menu: Menu) -> alt.Parameter:
    import altair as alt

    values, labels = list(menu.options), list(menu.options.values())
    bind = alt.binding_select(options=values, labels=labels, name=f"{menu.label}: ")
    return alt.param(name=menu.name, value=values[0], bind=bind if len(values) > 1 else alt.Undefined)


def fade(opacity: float = 1.0) -> alt.OpacityValue:
    """Return an opacity that falls where the legend highlights another series."""
    import altair as alt

    return alt.OpacityValue(opacity / 10, condition={"param": HIGHLIGHT, "value": opacity})


class Plot(Protocol):
    """A plot of runs: `data` computes, `draw` defines how the rows are shown."""

    title: ClassVar[str]
    reading: ClassVar[str]
    """How to read it, in two sentences."""
    section: ClassVar[str]
    """Its part of the report: learning, selection, uncertainty, shift, cost."""
    needs: ClassVar[str]
    """What runs must hold to be shown."""

    @staticmethod
    def data(runs: Sequence[Run]) -> PlotRows:
        """Return the plot's numbers; no row where the runs hold nothing to show.

        Raises:
            FealError: the runs do not fit together.
        """

    @staticmethod
    def draw(rows: PlotRows) -> Chart | Figure:
        """Return the definition of the plot; the rows are at least one."""


PLOTS: Registry[type[Plot]] = Registry("plot")


def read_plot_rows(plot: type[Plot], runs: Sequence[Run], *, pictures: bool = False) -> PlotRows:
    """Return a plot's rows; a plot of patients' images has none unless `pictures` are asked for."""
    if shows_patients(plot) and not pictures:
        return []
    return plot.data(runs)


def shows_patients(plot: type[Plot]) -> bool:
    """Return whether a plot contains patients' images."""
    return bool(getattr(plot, "shows_patients", False))


def save_plot(drawing: Chart | Figure, format: ImageFormat) -> bytes:
    """Return the content of a PDF, SVG or PNG file, the same bytes for the same rows."""
    if not isinstance(drawing, Chart):
        return save_figure(drawing, format)
    import vl_convert

    _register_fonts()
    spec = drawing.to_spec()
    if drawing.note:
        width = PAGE if drawing.columns > 1 else COLUMN
        spec["title"] = {
            "text": textwrap.wrap(drawing.note, int(width / (_LETTER * 0.95))),
            "orient": "bottom",
            "fontSize": 10,
            "fontWeight": "normal",
            "color": FAINT,
        }
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


@contextmanager
def matplotlib_style() -> Iterator[None]:
    """Draw or save inside with the type and lines of a paper; also a decorator."""
    from matplotlib import rc_context

    with rc_context(_MATPLOTLIB):
        yield


def save_figure(figure: Figure, format: ImageFormat) -> bytes:
    """Return the content of a file of a matplotlib figure, without a date."""
    content = io.BytesIO()
    undated: dict[str, dict[str, Any]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    with matplotlib_style():
        figure.savefig(content, format=format, metadata=undated.get(format))
    return content.getvalue()


@cache
def _register_fonts() -> None:
    """Let files be drawn with the fonts of matplotlib, which are on every machine."""
    import matplotlib as mpl
    import vl_convert

    vl_convert.register_font_directory(str(Path(mpl.get_data_path()) / "fonts" / "ttf"))


def _round(rows: PlotRows) -> PlotRows:
    """Return rows with six significant digits, which is more than can be seen."""
    return [{key: _short(value) for key, value in row.items()} for row in rows]


def _short(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None
