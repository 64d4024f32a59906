"""Domain shift: densities of the sites' energies, and how unlike they are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from feal.analysis.colours import site_colours
from feal.analysis.density import compare_pairs, densities, from_histogram
from feal.analysis.figures.contract import FIGURES, Rows
from feal.analysis.figures.style import PAGE, print_style, sheet, web_axis, web_layout
from feal.analysis.kept import energies
from feal.analysis.runs import Run, shown_arm
from feal.federation.statistics import ENERGY_BINS, ENERGY_RANGE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Print
    from plotly.graph_objects import Figure as Web

_BIN = (ENERGY_RANGE[1] - ENERGY_RANGE[0]) / ENERGY_BINS
_AXIS = "energy of a test sample, -log Σ exp(logit), in nats"
_DENSITY = "density, per nat"
_CURVE = {"x": "energy", "y": "density"}
_DASHES = (("solid", "-"), ("dash", "--"), ("dot", ":"), ("dashdot", "-."))
"""Lines for the web and for print."""
_SMALLEST = -6.0
_TICKS = {-6.0: "≤ 10⁻⁶", -3.0: "0.001", math.log10(0.05): "0.05", 0.0: "1"}

Samples = Mapping[str, NDArray[np.float64]]


@FIGURES.register("energy", summary="densities of energies at each site, and p-values between sites")
class Energy:
    """How far the sites' test images lie apart for the global model."""

    title: ClassVar[str] = "How alike the sites' images are to the global model"
    reading: ClassVar[str] = (
        "Curves are kernel densities of the energy of each site's test images under the global model (the lower, "
        "the more familiar an image), of one run's newest round. A cell is the p-value of a two-sample "
        "Kolmogorov-Smirnov test between two sites, not corrected for the number of pairs: a small one means that "
        "so large a difference hardly comes by chance between sites that are alike."
    )
    section: ClassVar[str] = "shift"
    needs: ClassVar[str] = "a finished round with test images"

    @staticmethod
    def data(runs: Sequence[Run]) -> Rows:
        """Densities and p-values of the first seed of the arm shown, in its newest round with test images."""
        arm, members = shown_arm(runs)
        run = members[0]
        for record in reversed(run.rounds):
            samples, exact = _samples(run, record)
            if samples:
                about = {"arm": arm, "seed": run.settings.seed, "round": record["round"], "exact": exact}
                return [{**about, **row} for row in (*_density_rows(samples, exact), *_test_rows(samples))]
        return []

    @staticmethod
    def web(rows: Rows) -> Web:
        """Densities above, the matrix of p-values below."""
        from plotly.subplots import make_subplots

        sites = _sites(rows)
        pairs = len(sites) > 1
        heights = [0.42, 0.58] if pairs else [1.0]
        figure = make_subplots(len(heights), 1, row_heights=heights, vertical_spacing=0.22)
        for place, (site, colour) in enumerate(site_colours(sites).items()):
            line = {"color": colour, "dash": _DASHES[place % len(_DASHES)][0], "width": 2}
            figure.add_scatter(**_curve(rows, site), name=_named(rows, site), line=line, row=1, col=1)
        figure.update_xaxes(web_axis(_AXIS), row=1, col=1)
        figure.update_yaxes(web_axis(_DENSITY, rangemode="tozero"), row=1, col=1)
        if pairs:
            matrix = _matrix(rows, sites)
            figure.add_heatmap(
                z=_shades(matrix),
                x=sites,
                y=sites,
                text=[[_written(value) for value in line] for line in matrix.tolist()],
                texttemplate="%{text}",
                textfont_size=10,
                hovertemplate="%{y} and %{x}: p = %{text}<extra></extra>",
                coloraxis="coloraxis",
                xgap=1,
                ygap=1,
                row=2,
                col=1,
            )
            figure.update_xaxes(web_axis(_tested(rows, "<br>"), showgrid=False), row=2, col=1)
            figure.update_yaxes(web_axis(autorange="reversed", showgrid=False), row=2, col=1)
        figure.update_layout(
            **web_layout(
                height=820 if pairs else 420,
                margin={"l": 10, "r": 10, "t": 10, "b": 10},
                legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0},
                coloraxis=_web_colours(),
            )
        )
        return figure

    @staticmethod
    def printed(rows: Rows) -> Print:
        """Densities on the left, the matrix of p-values on the right."""
        sites = _sites(rows)
        pairs = len(sites) > 1
        with print_style():
            figure = sheet(width=PAGE if pairs else 3.8, height=3.2)
            if rows:
                left, *right = figure.subplots(1, 2 if pairs else 1, squeeze=False)[0]
                _print_densities(left, rows, sites)
                figure.legend(loc="outside upper center", ncols=min(len(sites), 4))
                for axes in right:
                    _print_matrix(axes, _matrix(rows, sites), sites)
                    axes.set_xlabel(_tested(rows, "\n"))
        return figure


def _samples(run: Run, record: Mapping[str, Any]) -> tuple[Samples, bool]:
    """Energies by site, and whether they are the samples' own; those of the histograms where one is missing."""
    own = {site: values for site, values in energies(run, record["round"]).items() if len(values)}
    counted = {site: counts for site, counts in record.get("energy", {}).items() if sum(counts)}
    if own and own.keys() >= counted.keys():
        return own, True
    low, high = ENERGY_RANGE
    return {site: from_histogram(counts, low=low, high=high) for site, counts in counted.items()}, False


_EMPTY: dict[str, Any] = dict.fromkeys(("other", "energy", "density", "statistic", "p"))


def _density_rows(samples: Samples, exact: bool) -> Rows:
    places, found = densities(samples, narrowest=0.0 if exact else _BIN)
    return [
        {"site": site, "samples": len(samples[site]), **_EMPTY, "energy": energy, "density": density}
        for site in sorted(samples)
        for energy, density in zip(places.tolist(), found[site].tolist(), strict=True)
    ]


def _test_rows(samples: Samples) -> Rows:
    return [
        {"site": one, "samples": len(samples[one]), **_EMPTY, "other": other, **test._asdict()}
        for (one, other), test in compare_pairs(samples).items()
    ]


def _sites(rows: Rows) -> list[str]:
    return sorted({row[key] for row in rows for key in ("site", "other")} - {None})


def _named(rows: Rows, site: str) -> str:
    count = next((row["samples"] for row in rows if row["site"] == site), None)
    return site if count is None else f"{site} (n = {count})"


def _curve(rows: Rows, site: str) -> dict[str, NDArray[np.float32]]:
    own = [row for row in rows if row["site"] == site and row["other"] is None]
    return {axis: np.array([row[key] for row in own], np.float32) for axis, key in _CURVE.items()}


def _matrix(rows: Rows, sites: Sequence[str]) -> NDArray[np.float64]:
    """p-values by site and site, the same on both sides of a diagonal that is empty (NaN)."""
    matrix = np.full((len(sites), len(sites)), np.nan)
    for row in rows:
        if row["other"] is not None:
            one, other = sites.index(row["site"]), sites.index(row["other"])
            matrix[one, other] = matrix[other, one] = row["p"]
    return matrix


def _shades(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Decimal logarithms, as far as colours go."""
    logarithms: NDArray[np.float64] = np.log10(matrix.clip(10.0**_SMALLEST, 1))
    return logarithms


def _written(p: float) -> str:
    """A p-value in a cell.

    >>> _written(0.03151), _written(0.0004), _written(1.0), _written(math.nan)
    ('.032', '<.001', '1.00', '')
    """
    if math.isnan(p):
        return ""
    if p < 0.0005:
        return "<.001"
    return f"{p:.3f}".removeprefix("0") if p < 0.9995 else "1.00"


def _tested(rows: Rows, line: str) -> str:
    first = rows[0]
    exact = "of single samples" if first["exact"] else f"of histograms by {_BIN:g} nats, so rather too large"
    what = f"{first['arm']}, seed {first['seed']}, round {first['round']}"
    return line.join(["p-values, Kolmogorov-Smirnov,", exact, what])


def _web_colours() -> dict[str, Any]:
    place = {"len": 0.5, "y": 0, "yanchor": "bottom", "thickness": 12}
    bar = {**place, "title": "p", "tickvals": list(_TICKS), "ticktext": list(_TICKS.values())}
    return {"colorscale": "Cividis", "cmin": _SMALLEST, "cmax": 0, "colorbar": bar}


def _print_densities(axes: Axes, rows: Rows, sites: Sequence[str]) -> None:
    for place, (site, colour) in enumerate(site_colours(sites).items()):
        curve = _curve(rows, site)
        style = _DASHES[place % len(_DASHES)][1]
        axes.plot(curve["x"], curve["y"], color=colour, linestyle=style, label=_named(rows, site))
    axes.set(xlabel=_AXIS, ylabel=_DENSITY)
    axes.set_ylim(bottom=0)


def _print_matrix(axes: Axes, matrix: NDArray[np.float64], sites: Sequence[str]) -> None:
    shades = _shades(matrix)
    drawn = axes.imshow(shades, cmap="cividis", vmin=_SMALLEST, vmax=0)
    for row, line in enumerate(matrix.tolist()):
        for column, p in enumerate(line):
            dark = shades[row, column] < _SMALLEST / 2
            colour = "white" if dark else "black"
            axes.text(column, row, _written(p), ha="center", va="center", fontsize=6, color=colour)
    axes.grid(visible=False)
    axes.set_xticks(range(len(sites)), sites, rotation=45, ha="right")
    axes.set_yticks(range(len(sites)), sites)
    bar = axes.figure.colorbar(drawn, ax=axes, shrink=0.8)
    bar.set_ticks(list(_TICKS), labels=list(_TICKS.values()))
