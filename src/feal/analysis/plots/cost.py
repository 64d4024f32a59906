"""Cost: seconds by phase, and bytes that cross the sites' borders, per round."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from feal.analysis.arms import group_by_arm
from feal.analysis.plots.base import (
    PLOTS,
    Chart,
    Plot,
    PlotRows,
    describe_arm,
    estimate_mean,
    fade,
    make_scale,
    note_unfinished,
)
from feal.analysis.runs import Run
from feal.rundir.layout import RunDirectory, round_weights
from feal.rundir.records import Step

_COLOURS = {
    "train": "#0072B2",
    "cache": "#009E73",
    "evaluate": "#56B4E9",
    "select": "#D55E00",
    "ask": "#E69F00",
    "diagnose": "#999999",
    "to sites": "#332288",
    "to coordinator": "#88CCEE",
}
_SELECTING = ("select", "ask")
_KINDS = {"seconds": "Seconds per round, all sites", "bytes": "Megabytes per round, all sites"}


def _read_cost(runs: Sequence[Run]) -> PlotRows:
    """Return a row for each arm and phase (kind `seconds`) or direction (kind `bytes`)."""
    rows: PlotRows = []
    for arm in group_by_arm(runs):
        totals = [{**_seconds(run), **_bytes(run)} for run in arm.runs if run.rounds]
        for kind, part in sorted({key for total in totals for key in total}, key=_order):
            numbers = estimate_mean((total.get((kind, part)) for total in totals), within=(0.0, float("inf")))
            rows.append({**describe_arm(arm), "kind": kind, "part": part, **numbers})
    return rows


def _draw_cost(rows: PlotRows) -> Chart:
    """Draw bars of arms, of seconds and of megabytes."""
    arms = sorted({row["arm"] for row in rows})
    parts = list(dict.fromkeys(row["part"] for row in rows))
    colours = make_scale({part: _COLOURS.get(part, "#BBBBBB") for part in parts})
    axis = alt.Axis(ticks=False, labelLimit=160, labelPadding=5)
    panels = [
        alt.Chart()
        .transform_filter(f"datum.kind === '{kind}'")
        .mark_bar()
        .encode(
            x=alt.X("value:Q", title=title, axis=alt.Axis(tickCount=5)),
            y=alt.Y("arm:N", title=None, sort=arms, axis=axis),
            color=alt.Color("part:N", scale=colours),
            opacity=fade(),
            order="order:Q",
            tooltip=[
                alt.Tooltip("arm:N", title="Strategy"),
                alt.Tooltip("part:N", title="Phase" if kind == "seconds" else "Direction"),
                alt.Tooltip("text:N", title="Per round"),
                alt.Tooltip("n:Q", title="Seeds"),
            ],
        )
        .properties(height=30 + 24 * len(arms))
        for kind, title in _KINDS.items()
        if any(row["kind"] == kind for row in rows)
    ]
    return Chart(
        rows=[{**_describe(row), "order": parts.index(row["part"])} for row in rows],
        tiers=[panels],
        highlight="part",
        legend=parts,
        note=note_unfinished(rows),
        margin=min(180, 20 + 7 * max(map(len, arms))),
    )


def _seconds(run: Run) -> dict[tuple[str, str], float]:
    """Return seconds by phase, as mean over the rounds."""
    selecting = [
        record for record in run.rounds if any(site.asked for site in record.diagnostics.selection.values())
    ]
    found = {}
    for phase in dict.fromkeys(phase for record in run.rounds for phase in record.seconds):
        over = selecting if phase in _SELECTING and selecting else run.rounds
        found["seconds", phase] = sum(record.seconds.get(phase, 0.0) for record in over) / len(over)
    return found


def _bytes(run: Run) -> dict[tuple[str, str], float]:
    """Return bytes of weights by direction, as mean over the rounds; none where a round's weights are gone.

    A site without labels received weights and sent none.
    """
    down = up = 0
    steps = [event for event in run.events if isinstance(event, Step)]
    for record in run.rounds:
        weights = RunDirectory(run.path).weights_file(round_weights(record.round))
        if not weights.is_file():
            return {}
        losses = [loss for step in steps if step.round == record.round for loss in step.loss.values()]
        size = weights.stat().st_size
        down += size * (len(losses) + len(record.diagnostics.selection))
        up += size * sum(loss is not None for loss in losses)
    count = len(run.rounds)
    return {("bytes", "to sites"): down / count, ("bytes", "to coordinator"): up / count}


def _order(key: tuple[str, str]) -> tuple[int, int, str]:
    kind, part = key
    places = list(_COLOURS)
    return list(_KINDS).index(kind), places.index(part) if part in places else len(places), part


def _describe(row: Mapping[str, Any]) -> dict[str, Any]:
    factor, unit = (1e-6, "MB") if row["kind"] == "bytes" else (1.0, "s")
    value = row["value"] * factor
    spread = f" ± {row['sd']:,.3f}" if row["sd"] is not None and unit == "s" else ""
    return {**row, "value": value, "text": f"{value:,.3f}{spread} {unit}"}


PLOTS.register("cost", summary="seconds by phase and strategy, and bytes sent, per round")(
    Plot(
        title="Cost of a round",
        reading="Seconds are the total of all sites in a round, by phase; selecting and asking are means over the "
        "rounds in which samples were selected. Megabytes are the weights that crossed the sites' borders: to "
        "every site and back in each communication round, and to every site at the round's end.",
        section="cost",
        needs="a finished round",
        data=_read_cost,
        draw=_draw_cost,
    )
)
