"""Domain shift: densities of the sites' energies, and how much they differ."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import cycle, permutations

import altair as alt
import numpy as np
from numpy.typing import NDArray

from feal.analysis.arms import pick_arm
from feal.analysis.outputs import read_energies
from feal.analysis.plots.base import PLOTS, Chart, Panel, Plot, PlotRows, make_scale
from feal.analysis.plots.theme import DASHES, site_colours
from feal.analysis.runs import Run
from feal.analysis.stats import expand_histogram, kernel_densities, ks_tests
from feal.metrics.statistics import ENERGY_BINS, ENERGY_RANGE
from feal.rundir.records import Round

_BIN = (ENERGY_RANGE[1] - ENERGY_RANGE[0]) / ENERGY_BINS
_LEVELS = {"p < 0.001": "#00204D", "p < 0.05": "#575D6D", "p < 0.5": "#A69D75", "p ≥ 0.5": "#FFEA46"}
"""Colours of p-values, from Cividis."""

Samples = Mapping[str, NDArray[np.float64]]


def _read_energy(runs: Sequence[Run]) -> PlotRows:
    """Return densities and p-values of one arm's first seed, in its newest round with test images."""
    arm = pick_arm(runs)
    run = arm.runs[0]
    for record in reversed(run.rounds):
        samples, exact = _read_samples(run, record)
        if samples:
            about = {"arm": arm.name, "seed": run.settings.seed, "round": record.round, "exact": exact}
            return [{**about, **row} for row in _compare_sites(samples, exact=exact)]
    return []


def _read_samples(run: Run, record: Round) -> tuple[Samples, bool]:
    """Return energies by site, and whether they are exact; from the histograms where samples are missing."""
    own = {site: values for site, values in read_energies(run, record.round).items() if len(values)}
    counted = {site: counts for site, counts in record.energy.items() if sum(counts)}
    if own and own.keys() >= counted.keys():
        return own, True
    low, high = ENERGY_RANGE
    return {site: expand_histogram(counts, low=low, high=high) for site, counts in counted.items()}, False


def _compare_sites(samples: Samples, *, exact: bool) -> PlotRows:
    places, found = kernel_densities(samples, narrowest=0.0 if exact else _BIN)
    densities = [
        (site, {"energy": energy, "density": density})
        for site in sorted(samples)
        for energy, density in zip(places.tolist(), found[site].tolist(), strict=True)
    ]
    tests = [(one, {"other": other, **test._asdict()}) for (one, other), test in ks_tests(samples).items()]
    empty = dict.fromkeys(("other", "energy", "density", "statistic", "p"))
    return [{"site": site, "samples": len(samples[site]), **empty, **row} for site, row in densities + tests]


def _draw_energy(rows: PlotRows) -> Chart:
    """Draw the densities beside the matrix of p-values."""
    sites = sorted({row[key] for row in rows for key in ("site", "other")} - {None})
    labels = {row["site"]: f"{row['site']} (n = {row['samples']})" for row in rows if row["other"] is None}
    kept = ("site", "energy", "density", "samples")
    densities = [
        {**{key: row[key] for key in kept}, "label": labels[row["site"]]} for row in rows if row["other"] is None
    ]
    cells = [
        {
            "one": one,
            "two": two,
            "p": row["p"],
            "statistic": row["statistic"],
            "level": list(_LEVELS)[bisect_right([0.001, 0.05, 0.5], row["p"])],
            "text": format_p_value(row["p"]),
        }
        for row in rows
        if row["other"] is not None
        for one, two in permutations((row["site"], row["other"]))
    ]
    binned = f"histograms with bins of {_BIN:g} nats, so p-values are too large"
    about = f"{rows[0]['arm']}, seed {rows[0]['seed']}, round {rows[0]['round']}"
    return Chart(
        rows=[*densities, *cells],
        tiers=[[_draw_densities(labels, sites), *([_draw_matrix(sites)] if cells else [])]],
        legend=list(labels.values()),
        note=f"{about}; energies of {'single samples' if rows[0]['exact'] else binned}.",
        margin=min(130, 30 + 7 * max(map(len, sites))),
    )


def _draw_densities(labels: Mapping[str, str], sites: Sequence[str]) -> Panel:
    colours, dashes = site_colours(sites), dict(zip(labels.values(), cycle(DASHES.values()), strict=False))
    axis = alt.Axis(grid=False, tickCount=6, title="Energy, -log Σ exp(logit), in nats")
    lines: alt.Chart = (
        alt.Chart()
        .transform_filter("isValid(datum.density)")
        .mark_line()
        .encode(
            x=alt.X("energy:Q", axis=axis, scale=alt.Scale(zero=False, nice=False)),
            y=alt.Y("density:Q", title=None, scale=alt.Scale(domainMin=0), axis=alt.Axis(tickCount=5)),
            color=alt.Color("label:N", scale=make_scale({label: colours[site] for site, label in labels.items()})),
            strokeDash=alt.StrokeDash("label:N", scale=make_scale(dashes)),
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
    sort, axis = list(sites), alt.Axis(domain=False, ticks=False, labelAngle=-35)
    base = (
        alt.Chart()
        .transform_filter("isValid(datum.one)")
        .encode(
            x=alt.X("one:N", title=None, sort=sort, axis=axis),
            y=alt.Y("two:N", title=None, sort=sort, axis=alt.Axis(domain=False, ticks=False)),
            tooltip=[
                alt.Tooltip("one:N", title="Site"),
                alt.Tooltip("two:N", title="and site"),
                alt.Tooltip("text:N", title="p"),
                alt.Tooltip("statistic:Q", title="Distance", format=".3f"),
            ],
        )
    )
    levels = alt.Color("level:N", scale=make_scale(_LEVELS))
    ink = alt.condition("datum.p < 0.05", alt.value("white"), alt.value("black"))
    return alt.layer(
        base.mark_rect(stroke="white", strokeWidth=1).encode(color=levels),
        base.mark_text(fontSize=10).encode(text="text:N", color=ink),
    ).properties(height=max(200, 28 * len(sites)), title="p-values between sites")


def format_p_value(p: float) -> str:
    """Format a p-value for a cell.

    >>> format_p_value(0.03151), format_p_value(0.0004), format_p_value(1.0)
    ('.032', '<.001', '1.00')
    """
    if p < 0.0005:
        return "<.001"
    return f"{p:.3f}".removeprefix("0") if p < 0.9995 else "1.00"


PLOTS.register("energy", summary="densities of energies at each site, and p-values between sites")(
    Plot(
        title="Similarity of the sites' images to the global model",
        reading="Curves are kernel densities of the energy of each site's test images under the global model (the "
        "lower, the more familiar an image), of one run's newest round. A cell is the p-value of a two-sample "
        "Kolmogorov-Smirnov test between two sites, not corrected for the number of pairs: with a small one, so "
        "large a difference is unlikely to arise by chance between sites that are alike.",
        section="shift",
        needs="a finished round with test images",
        data=_read_energy,
        draw=_draw_energy,
    )
)
