"""Cost: seconds by phase, and bytes that cross the sites' borders, per round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from feal.analysis.plots.base import PLOTS, Chart, PlotRows, fade
from feal.analysis.plots.series import count_seeds, describe_arm, estimate_mean, note_unfinished
from feal.analysis.runs import Run, group_by_arm
from feal.rundir.layout import RunDirectory, round_weights
from feal.rundir.records import Round, Step

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


@PLOTS.register("cost", summary="seconds by phase and strategy, and bytes sent, per round")
class Cost:
    """Time and traffic of a round, as mean over rounds, then over seeds."""

    title: ClassVar[str] = "Cost of a round"
    reading: ClassVar[str] = (
        "Seconds are the total of all sites in a round, by phase; selecting and asking are means over the "
        "rounds in which samples were selected. Megabytes are the weights that crossed the sites' borders: to "
        "every site and back in each communication round, and to every site at the round's end."
    )
    section: ClassVar[str] = "cost"
    needs: ClassVar[str] = "a finished round"

    @staticmethod
    def data(runs: Sequence[Run]) -> PlotRows:
        """Return a row for each arm and phase (kind `seconds`) or direction (kind `bytes`)."""
        rows: PlotRows = []
        for arm, group in group_by_arm(runs).items():
            totals = [{**_seconds(run), **_bytes(run)} for run in group if run.rounds]
            for kind, part in sorted({key for total in totals for key in total}, key=_order):
                numbers = estimate_mean((total.get((kind, part)) for total in totals), within=(0.0, float("inf")))
                rows.append({**describe_arm(arm, group), "kind": kind, "part": part, **numbers})
        return rows

    @staticmethod
    def draw(rows: PlotRows) -> Chart:
        """Draw bars of arms, of seconds and of megabytes."""
        import altair as alt

        kinds = [kind for kind in _KINDS if any(row["kind"] == kind for row in rows)]
        arms = sorted({row["arm"] for row in rows})
        parts = list(dict.fromkeys(row["part"] for row in rows))
        colours = alt.Scale(domain=parts, range=[_COLOURS.get(part, "#BBBBBB") for part in parts])
        panels = [
            alt.Chart()
            .transform_filter(f"datum.kind === '{kind}'")
            .mark_bar()
            .encode(
                x=alt.X("value:Q", title=_KINDS[kind], axis=alt.Axis(tickCount=5)),
                y=alt.Y("arm:N", title=None, sort=arms, axis=alt.Axis(ticks=False, labelLimit=160)),
                color=alt.Color("part:N", title=None, scale=colours),
                opacity=fade(),
                order="order:Q",
                tooltip=[
                    alt.Tooltip("arm:N", title="Strategy"),
                    alt.Tooltip("part:N", title="Phase" if kind == "seconds" else "Direction"),
                    alt.Tooltip("text:N", title="Per round"),
                    alt.Tooltip("seeds:N", title="Seeds"),
                ],
            )
            .properties(height=30 + 24 * len(arms))
            for kind in kinds
        ]
        drawn = [_drawn(row, parts) for row in rows if row["value"] is not None]
        margin = min(180, 20 + 7 * max(map(len, arms)))
        return Chart(
            rows=drawn,
            tiers=[panels],
            highlight="part",
            legend=parts,
            note=note_unfinished(rows),
            margin=margin,
        )


def _seconds(run: Run) -> dict[tuple[str, str], float]:
    """Return seconds by phase, as mean over the rounds."""
    selecting = [record for record in run.rounds if _has_selected(record)]
    found = {}
    for phase in dict.fromkeys(phase for record in run.rounds for phase in record.seconds):
        over = selecting if phase in _SELECTING and selecting else run.rounds
        found["seconds", phase] = sum(record.seconds.get(phase, 0.0) for record in over) / len(over)
    return found


def _has_selected(record: Round) -> bool:
    return any(site.asked for site in record.diagnostics.selection.values())


def _bytes(run: Run) -> dict[tuple[str, str], float]:
    """Return bytes of weights by direction, as mean over the rounds; none where a round's weights are gone.

    A site without labels received weights and sent none.
    """
    down = up = 0
    for record in run.rounds:
        weights = RunDirectory(run.path).weights_file(round_weights(record.round))
        if not weights.is_file():
            return {}
        losses = [
            loss
            for event in run.events
            if isinstance(event, Step) and event.round == record.round
            for loss in event.loss.values()
        ]
        size = weights.stat().st_size
        down += size * (len(losses) + len(record.diagnostics.selection))
        up += size * sum(loss is not None for loss in losses)
    count = len(run.rounds)
    return {("bytes", "to sites"): down / count, ("bytes", "to coordinator"): up / count}


def _order(key: tuple[str, str]) -> tuple[int, int, str]:
    kind, part = key
    places = list(_COLOURS)
    return list(_KINDS).index(kind), places.index(part) if part in places else len(places), part


def _drawn(row: Mapping[str, Any], parts: Sequence[str]) -> dict[str, Any]:
    is_bytes = row["kind"] == "bytes"
    value = row["value"] / 1e6 if is_bytes else row["value"]
    spread = f" ± {row['sd']:,.3f}" if row["sd"] is not None and not is_bytes else ""
    return {
        "arm": row["arm"],
        "kind": row["kind"],
        "part": row["part"],
        "order": parts.index(row["part"]),
        "value": value,
        "text": f"{value:,.3f}{spread} {'MB' if is_bytes else 's'}",
        "seeds": count_seeds(row["n"]),
    }
