"""What was selected: the effect of the diversity relaxation, and labels found of each class."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from feal.analysis.arms import group_by_arm
from feal.analysis.outputs import count_found_labels
from feal.analysis.plots.base import (
    PLOTS,
    Chart,
    Plot,
    PlotRows,
    colour_series,
    describe_arm,
    estimate_mean,
    fade,
    make_menu,
    note_unfinished,
    shape_series,
)
from feal.analysis.plots.curves import (
    POOLED,
    SHARE,
    RoundMetrics,
    aggregate_rounds,
    describe_scope,
    draw_lines,
    style_sites,
)
from feal.analysis.plots.theme import DASHES, FAINT, GRID, style_series
from feal.analysis.runs import Run
from feal.rundir.records import Round, SiteSelection
from feal.selection import STRATEGIES

_SHARES = {"passed over": "Passed over (share of candidates)", "filled in": "Filled in (share of selected)"}

Found = Mapping[int, NDArray[np.float64]]
"""Labels of each class that a run selected, [classes], by seed."""


def _read_relaxation(runs: Sequence[Run]) -> PlotRows:
    """Return a row for each arm, share, site (or all together) and round after which samples were selected."""
    relaxing = [run for run in runs if _relaxes(run)]
    return aggregate_rounds(relaxing, _relaxation_shares, within=lambda _: SHARE)


def _draw_relaxation(rows: PlotRows) -> Chart:
    """Draw a panel for each share with a line for each site, and a menu of arms."""
    arms = {row["arm"] for row in rows}
    lines = []
    for row in rows:
        site = describe_scope(row["over"])
        lines.append({**row, "series": site, "arm": site, "over": row["arm"], "query_model": None})
    styles = style_sites([row["over"] for row in rows])
    chart = draw_lines(lines, x="round", tiers=_SHARES, styles=styles, scope_label="Strategy", from_zero=True)
    return replace(chart, note=f"{arms.pop()}. {chart.note}") if len(arms) == 1 else chart


def _relaxes(run: Run) -> bool:
    name = run.settings.strategy.name
    if name in STRATEGIES.names():
        return "tau" in STRATEGIES.get(name).Params.model_fields
    return any(site.rejected or site.filled for record in run.rounds for site in _queried(record).values())


def _queried(record: Round) -> dict[str, SiteSelection]:
    """Return the counts of the sites that were queried after the round; none is after the last."""
    return {site: counts for site, counts in record.diagnostics.selection.items() if counts.asked}


def _relaxation_shares(record: Round) -> RoundMetrics:
    queried = _queried(record)
    scopes = {POOLED: list(queried.values()), **{site: [counts] for site, counts in queried.items()}}
    passed_over, filled_in = {}, {}
    for over, sites in scopes.items() if queried else ():
        rejected, filled, selected = (
            sum(getattr(site, key) for site in sites) for key in ("rejected", "filled", "asked")
        )
        passed_over["passed over", over] = rejected / ((rejected + selected - filled) or 1)
        filled_in["filled in", over] = filled / selected
    return passed_over | filled_in


def _read_yield(runs: Sequence[Run]) -> PlotRows:
    """Return a row for each arm, round from the second on (the last one first) and class, the rarest first."""
    arms = [arm for arm in group_by_arm(runs) if arm.strategy != "full"]
    found = {arm.name: _count_labels(arm.runs) for arm in arms}
    random = next((found[arm.name] for arm in arms if arm.strategy == "random"), {})
    # By what random found in its last round, or else all arms together.
    newest = [by_round[max(by_round)] for by_round in ([random] if random else found.values()) if by_round]
    total = sum(counts for by_seed in newest for counts in by_seed.values())
    rows: PlotRows = []
    for number in sorted({number for by_round in found.values() for number in by_round}, reverse=True):
        for arm in arms:
            unit = "pixels" if runs[0].task == "segmentation" else "labels"
            about = {**describe_arm(arm), "unit": unit, "round": number}
            own = found[arm.name].get(number, {})
            for place in np.argsort(total, kind="stable") if own else ():
                values = _compare_yield(own, random.get(number, {}), place)
                rows.append({**about, "class": runs[0].classes[place], **values})
    return rows


def _draw_yield(rows: PlotRows) -> Chart:
    """Draw symbols by class, with a menu of rounds."""
    drawn = _place_symbols(rows)
    unit = rows[0]["unit"]
    title = f"{unit.capitalize()} found (random = 1)" if _is_relative(rows) else f"Share of the {unit} found"
    styles = style_series(row["arm"] for row in drawn)
    classes = list(dict.fromkeys(row["line"] for row in drawn))
    axis = alt.Axis(ticks=False, domain=False, labelLimit=130, grid=True, bandPosition=0, gridColor=GRID)
    symbols = (
        alt.Chart()
        .transform_filter("datum.round === round && datum.x !== null")
        .mark_point(size=60)
        .encode(
            x=alt.X("x:Q", title=title, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=6)),
            y=alt.Y("line:N", title=None, sort=classes, scale=alt.Scale(domain=classes, padding=0), axis=axis),
            yOffset=alt.YOffset("arm:N", scale=alt.Scale(domain=list(styles), padding=0.75)),
            color=colour_series(styles, "arm"),
            shape=shape_series(styles, "arm"),
            opacity=fade(),
            tooltip=[
                alt.Tooltip("arm:N", title="Strategy"),
                alt.Tooltip("class:N", title="Class"),
                alt.Tooltip("count:N", title=f"{unit.capitalize()} since round 1"),
                alt.Tooltip("share:Q", title="Share of its own", format=".1%"),
                alt.Tooltip("random:N", title="Random"),
                alt.Tooltip("ratio:Q", title="Relative to random", format=".2f"),
                alt.Tooltip("n:Q", title="Seeds"),
            ],
        )
    )
    line = alt.Chart(alt.InlineData(values=[{}])).mark_rule(color=FAINT, strokeDash=DASHES["dashed"])
    layers = [line.encode(x=alt.datum(1.0)), symbols] if _is_relative(rows) else [symbols]
    height = len(classes) * max(30, 10 * len(styles))
    return Chart(
        rows=drawn,
        tiers=[[alt.layer(*layers).properties(height=height)]],
        highlight="arm",
        menus=[make_menu("round", "Round", {row["round"]: row["round"] for row in drawn})],
        legend=list(styles),
        note=note_unfinished(rows),
        margin=min(150, 24 + 7 * max(map(len, classes))),
    )


def _count_labels(group: Sequence[Run]) -> dict[int, dict[int, NDArray[np.float64]]]:
    """Return the labels (or pixels) by class that were selected after the first round, by round and seed."""
    found: dict[int, dict[int, NDArray[np.float64]]] = {}
    for run in group:
        counts = count_found_labels(run)
        for record, so_far in zip(run.rounds[1:], counts[1:] - counts[:1], strict=True):
            if so_far.sum():
                found.setdefault(record.round, {})[run.settings.seed] = so_far
    return found


def _compare_yield(own: Found, random: Found, place: int) -> dict[str, Any]:
    """Return the estimate over an arm's seeds for one class, and its ratio to random over the seeds of both."""
    both = own.keys() & random.keys()
    expected = sum(random[seed][place] for seed in both)
    return {
        **estimate_mean((float(counts[place]) for counts in own.values()), within=(0.0, np.inf)),
        "share": float(np.mean([counts[place] / counts.sum() for counts in own.values()])),
        "random": float(expected / len(both)) if both else None,
        "ratio": float(sum(own[seed][place] for seed in both) / expected) if expected else None,
    }


def _is_relative(rows: PlotRows) -> bool:
    return any(row["ratio"] is not None and row["strategy"] != "random" for row in rows)


def _place_symbols(rows: PlotRows) -> PlotRows:
    """Return the symbols: relative to random if it is there, else shares of all labels."""
    is_relative = _is_relative(rows)
    # Of several rounds, the first rows are of the last round.
    random = {row["class"]: row["random"] for row in reversed(rows) if row["random"] is not None}
    return [
        {
            **row,
            "line": f"{name} ({format_count(random[name])})" if is_relative and name in random else name,
            "x": row["ratio"] if is_relative else row["share"],
            "round": f"after round {row['round']}",
            "count": _format_interval(row),
            "random": "none" if row["random"] is None else format_count(row["random"]),
        }
        for row in rows
        for name in [row["class"]]
        if not is_relative or row["strategy"] != "random"
    ]


def format_count(number: float) -> str:
    """Format a mean count, with a decimal where that matters.

    >>> format_count(24680.4), format_count(3.25), format_count(7.0)
    ('24,680', '3.2', '7')
    """
    return f"{number:,.0f}" if number >= 10 or number == round(number) else f"{number:.1f}"


def _format_interval(row: Mapping[str, Any]) -> str:
    low, high = row["low"], row["high"]
    interval = "" if low is None else f" (95 % interval {format_count(low)} to {format_count(high)})"
    return format_count(row["value"]) + interval


PLOTS.register("relaxation", summary="share of candidates that the relaxation rejects, and of places filled in")(
    Plot(
        title="Diversity relaxation",
        reading="Passed over: the share of candidates, best score first, that were rejected because near "
        "neighbours were already selected after that round. Filled in: the share of selected samples that were "
        "taken by score alone because no other candidates were left; anything above 0 means that tau or n is too "
        "strict.",
        section="selection",
        needs="a round after which `feal` selected samples",
        data=_read_relaxation,
        draw=_draw_relaxation,
    )
)


PLOTS.register("yield", summary="labels found of each class, relative to random; rare classes on top")(
    Plot(
        title="Class yield",
        reading="A symbol is a strategy: how many labels of a class it has found since the first round, as a "
        "multiple of what random found with the same seeds; right of the line at 1 it finds more. The rarest "
        "classes are on top, each with the mean number that random found: small numbers vary much by chance.",
        section="selection",
        needs="at least two rounds of runs with their sites' directories",
        data=_read_yield,
        draw=_draw_yield,
    )
)
