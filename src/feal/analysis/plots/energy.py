"""Domain shift: densities of the sites' energies, and how much they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from feal.analysis.outputs import read_energies
from feal.analysis.plots.base import PLOTS, Chart, PlotRows
from feal.analysis.plots.theme import DASHES, site_colours
from feal.analysis.runs import Run, pick_arm
from feal.analysis.stats import expand_histogram, kernel_densities, ks_tests
from feal.metrics.statistics import ENERGY_BINS, ENERGY_RANGE
from feal.rundir.records import Round

if TYPE_CHECKING:
    from feal.analysis.plots.base import Panel

_BIN = (ENERGY_RANGE[1] - ENERGY_RANGE[0]) / ENERGY_BINS
_LEVELS = {"p < 0.001": "#00204D", "p < 0.05": "#575D6D", "p < 0.5": "#A69D75", "p ≥ 0.5": "#FFEA46"}
"""Colours of p-values, from Cividis."""

Samples = Mapping[str, NDArray[np.float64]]


@PLOTS.register("energy", summary="densities of energies at each site, and p-values between sites")
class Energy:
    """The shift between the sites' test images as the global model sees them."""

    title: ClassVar[str] = "Similarity of the sites' images to the global model"
    reading: ClassVar[str] = (
        "Curves are kernel densities of the energy of each site's test images under the global model (the "
        "lower, the more familiar an image), of one run's newest round. A cell is the p-value of a two-sample "
        "Kolmogorov-Smirnov test between two sites, not corrected for the number of pairs: with a small one, "
        "so large a difference is unlikely to arise by chance between sites that are alike."
    )
    section: ClassVar[str] = "shift"
    needs: ClassVar[str] = "a finished round with test images"

    @staticmethod
    def data(runs: Sequence[Run]) -> PlotRows:
        """Return densities and p-values of one arm's first seed, in its newest round with test images."""
        arm, members = pick_arm(runs)
        run = members[0]
        for record in reversed(run.rounds):
            samples, exact = _read_samples(run, record)
            if samples:
                about = {"arm": arm, "seed": run.settings.seed, "round": record.round, "exact": exact}
                return [{**about, **row} for row in (*_density_rows(samples, exact), *_test_rows(samples))]
        return []

    @staticmethod
    def draw(rows: PlotRows) -> Chart:
        """Draw the densities beside the matrix of p-values."""
        sites = _sites(rows)
        cells = _matrix(rows, sites)
        densities = [
            {"site": row["site"], "energy": row["energy"], "density": row["density"], "samples": row["samples"]}
            for row in rows
            if row["other"] is None
        ]
        return Chart(
            rows=[*densities, *cells],
            tiers=[[_draw_densities(densities, sites), *([_draw_matrix(sites)] if cells else [])]],
            legend=[f"{site} (n = 1000)" for site in sites],
            note=_note(rows),
            margin=min(130, 30 + 7 * max(map(len, sites))),
        )


def _draw_densities(rows: PlotRows, sites: Sequence[str]) -> Panel:
    import altair as alt

    colours, counts = site_colours(sites), {row["site"]: row["samples"] for row in rows}
    labels = {site: f"{site} (n = {counts[site]})" for site in sites if site in counts}
    for row in rows:
        row["label"] = labels[row["site"]]
    scale = alt.Scale(domain=list(labels.values()), range=[colours[site] for site in labels])
    dashes = alt.Scale(
        domain=list(labels.values()), range=[dash for _, dash in zip(labels, cycle(DASHES.values()), strict=False)]
    )
    lines: alt.Chart = (
        alt.Chart()
        .transform_filter("isValid(datum.density)")
        .mark_line()
        .encode(
            x=alt.X(
                "energy:Q",
                title="Energy, -log Σ exp(logit), in nats",
                axis=alt.Axis(grid=False, tickCount=6),
                scale=alt.Scale(zero=False, nice=False),
            ),
            y=alt.Y("density:Q", title=None, scale=alt.Scale(domainMin=0), axis=alt.Axis(tickCount=5)),
            color=alt.Color("label:N", title=None, scale=scale),
            strokeDash=alt.StrokeDash("label:N", title=None, scale=dashes),
            tooltip=[
                alt.Tooltip("site:N", title="Site"),
                alt.Tooltip("samples:Q", title="Test images"),
                alt.Tooltip("energy:Q", title="Energy", format=".2f"),
                alt.Tooltip("density:Q", title="Density", format=".3f"),
            ],
        )
        .properties(height=240, title="Density of energies, per nat")
    )
    return lines


def _draw_matrix(sites: Sequence[str]) -> Panel:
    import altair as alt

    base = (
        alt.Chart()
        .transform_filter("isValid(datum.one)")
        .encode(
            x=alt.X(
                "one:N", title=None, sort=list(sites), axis=alt.Axis(labelAngle=-35, domain=False, ticks=False)
            ),
            y=alt.Y("two:N", title=None, sort=list(sites), axis=alt.Axis(domain=False, ticks=False)),
            tooltip=[
                alt.Tooltip("one:N", title="Site"),
                alt.Tooltip("two:N", title="and site"),
                alt.Tooltip("text:N", title="p"),
                alt.Tooltip("statistic:Q", title="Distance", format=".3f"),
            ],
        )
    )
    scale = alt.Scale(domain=list(_LEVELS), range=list(_LEVELS.values()))
    cells = base.mark_rect(stroke="white", strokeWidth=1).encode(
        color=alt.Color("level:N", title=None, scale=scale)
    )
    text = base.mark_text(fontSize=10).encode(
        text="text:N", color=alt.condition("datum.p < 0.05", alt.value("white"), alt.value("black"))
    )
    return alt.layer(cells, text).properties(height=max(200, 28 * len(sites)), title="p-values between sites")


def _read_samples(run: Run, record: Round) -> tuple[Samples, bool]:
    """Return energies by site, and whether they are exact; from the histograms where samples are missing."""
    own = {site: values for site, values in read_energies(run, record.round).items() if len(values)}
    counted = {site: counts for site, counts in record.energy.items() if sum(counts)}
    if own and own.keys() >= counted.keys():
        return own, True
    low, high = ENERGY_RANGE
    return {site: expand_histogram(counts, low=low, high=high) for site, counts in counted.items()}, False


_EMPTY: dict[str, Any] = dict.fromkeys(("other", "energy", "density", "statistic", "p"))


def _density_rows(samples: Samples, exact: bool) -> PlotRows:
    places, found = kernel_densities(samples, narrowest=0.0 if exact else _BIN)
    return [
        {"site": site, "samples": len(samples[site]), **_EMPTY, "energy": energy, "density": density}
        for site in sorted(samples)
        for energy, density in zip(places.tolist(), found[site].tolist(), strict=True)
    ]


def _test_rows(samples: Samples) -> PlotRows:
    return [
        {"site": one, "samples": len(samples[one]), **_EMPTY, "other": other, **test._asdict()}
        for (one, other), test in ks_tests(samples).items()
    ]


def _sites(rows: PlotRows) -> list[str]:
    return sorted({row[key] for row in rows for key in ("site", "other")} - {None})


def _matrix(rows: PlotRows, sites: Sequence[str]) -> PlotRows:
    """Return a cell for each ordered pair of different sites that was tested."""
    tests = {frozenset((row["site"], row["other"])): row for row in rows if row["other"] is not None}
    return [
        {
            "one": one,
            "two": two,
            "p": test["p"],
            "level": list(_LEVELS)[sum(test["p"] >= bound for bound in (0.001, 0.05, 0.5))],
            "statistic": test["statistic"],
            "text": format_p_value(test["p"]),
        }
        for one, two in product(sites, sites)
        if (test := tests.get(frozenset((one, two)))) is not None
    ]


def format_p_value(p: float) -> str:
    """Format a p-value for a cell.

    >>> format_p_value(0.03151), format_p_value(0.0004), format_p_value(1.0)
    ('.032', '<.001', '1.00')
    """
    if p < 0.0005:
        return "<.001"
    return f"{p:.3f}".removeprefix("0") if p < 0.9995 else "1.00"


def _note(rows: PlotRows) -> str:
    first = rows[0]
    how = (
        "single samples" if first["exact"] else f"histograms with bins of {_BIN:g} nats, so p-values are too large"
    )
    about = f"{first['arm']}, seed {first['seed']}, round {first['round']}"
    return f"{about}; energies of {how}."
