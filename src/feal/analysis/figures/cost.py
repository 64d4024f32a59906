"""Cost: seconds by phase, and bytes that cross the sites' borders, of a round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from feal.analysis.figures.bars import printed_bars, web_bars
from feal.analysis.figures.contract import FIGURES, Rows
from feal.analysis.figures.seeds import estimate, series_of
from feal.analysis.figures.style import seeds, unfinished_note
from feal.analysis.runs import Record, Run, arms

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Print
    from plotly.graph_objects import Figure as Web

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
_CHOOSING = ("select", "ask")
_KINDS = {"seconds": "Seconds per round, all sites", "bytes": "Megabytes per round, all sites"}


@FIGURES.register("cost", summary="seconds by phase and strategy, and bytes sent, of a round")
class Cost:
    """Time and traffic of a round, as mean over rounds, then over seeds."""

    title: ClassVar[str] = "Cost of a round"
    reading: ClassVar[str] = (
        "Seconds are what the sites together spent in a round, by phase; selecting and asking are means over the "
        "rounds in which samples were chosen. Megabytes are of the weights that crossed the sites' borders: to "
        "every site and back in each communication round, and to every site at the round's end."
    )
    section: ClassVar[str] = "cost"
    needs: ClassVar[str] = "a finished round"

    @staticmethod
    def data(runs: Sequence[Run]) -> Rows:
        """A row for each arm and phase (kind `seconds`) or direction (kind `bytes`)."""
        rows: Rows = []
        for arm, group in arms(runs).items():
            totals = [{**_seconds(run), **_bytes(run)} for run in group if run.rounds]
            for kind, part in sorted({key for total in totals for key in total}, key=_order):
                figures = estimate((total.get((kind, part)) for total in totals), within=(0.0, float("inf")))
                rows.append({**series_of(arm, group), "kind": kind, "part": part, **figures})
        return rows

    @staticmethod
    def web(rows: Rows) -> Web:
        """Bars of arms, of seconds and of megabytes."""
        return web_bars(_drawn(rows), titles=_titles(rows), colours=_colours(rows), note=unfinished_note(rows))

    @staticmethod
    def printed(rows: Rows) -> Print:
        """Bars of arms, of seconds and of megabytes."""
        return printed_bars(_drawn(rows), titles=_titles(rows), colours=_colours(rows), note=unfinished_note(rows))


def _seconds(run: Run) -> dict[tuple[str, str], float]:
    """Seconds by phase, as mean over the rounds."""
    choosing = [record for record in run.rounds if _chose(record)]
    found = {}
    for phase in dict.fromkeys(phase for record in run.rounds for phase in record["seconds"]):
        over = choosing if phase in _CHOOSING and choosing else run.rounds
        found["seconds", phase] = sum(record["seconds"].get(phase, 0.0) for record in over) / len(over)
    return found


def _chose(record: Record) -> bool:
    return any(site["asked"] for site in record["diagnostics"].get("selection", {}).values())


def _bytes(run: Run) -> dict[tuple[str, str], float]:
    """Bytes of weights by direction, as mean over the rounds; none where a round's weights are gone.

    A site that had nothing to train on got weights and sent none.
    """
    down = up = 0
    for record in run.rounds:
        weights = run.path / "weights" / f"round-{record['round']:03}.safetensors"
        if not weights.is_file():
            return {}
        losses = [
            loss
            for event in run.events
            if event["event"] == "step" and event["round"] == record["round"]
            for loss in event["loss"].values()
        ]
        size = weights.stat().st_size
        down += size * (len(losses) + len(record["diagnostics"].get("selection", {})))
        up += size * sum(loss is not None for loss in losses)
    count = len(run.rounds)
    return {("bytes", "to sites"): down / count, ("bytes", "to coordinator"): up / count}


def _order(key: tuple[str, str]) -> tuple[int, int, str]:
    kind, part = key
    places = list(_COLOURS)
    return list(_KINDS).index(kind), places.index(part) if part in places else len(places), part


def _drawn(rows: Rows) -> Rows:
    return [
        {
            "arm": row["arm"],
            "panel": row["kind"],
            "part": row["part"],
            "value": row["value"] / 1e6 if row["kind"] == "bytes" else row["value"],
            "hover": _hover(row),
        }
        for row in rows
        if row["value"] is not None
    ]


def _titles(rows: Rows) -> dict[str, str]:
    return {kind: title for kind, title in _KINDS.items() if any(row["kind"] == kind for row in rows)}


def _colours(rows: Rows) -> dict[str, str]:
    return {part: _COLOURS.get(part, "#BBBBBB") for part in dict.fromkeys(row["part"] for row in rows)}


def _hover(row: dict[str, Any]) -> str:
    value = f"{row['value'] / 1e6:,.3f} MB" if row["kind"] == "bytes" else f"{row['value']:,.3f} s"
    spread = ""
    if row["sd"] is not None and row["kind"] == "seconds":
        spread = f" ± {row['sd']:,.3f}"
    return f"<b>{row['arm']}</b><br>{row['part']}: {value}{spread} per round<br>{seeds(row['n'])}"
