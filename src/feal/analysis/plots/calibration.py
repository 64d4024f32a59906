"""Reliability: whether predictions are right as often as their probability says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from feal.analysis.plots.base import PLOTS, Chart, Menu, PlotRows
from feal.analysis.plots.lines import LineMarks, list_query_models
from feal.analysis.plots.series import count_seeds, describe_arm, note_unfinished
from feal.analysis.plots.theme import DASHES, FAINT, style_series
from feal.analysis.runs import Run, group_by_arm

_NOTE = "Bins of all sites and seeds together; dashed grey: perfect calibration."
_TITLE = "Share of correct predictions"
_MAX_LISTED = 8
"""Series up to which a panel lists their calibration errors."""


@PLOTS.register("reliability", summary="reliability diagram with the expected calibration error, by round")
class Reliability:
    """Share of correct predictions against their probability."""

    title: ClassVar[str] = "Reliability"
    reading: ClassVar[str] = (
        "A point is a bin of test predictions: its height is the share of correct ones, its horizontal "
        "position their mean probability; below the diagonal a model is overconfident, above it "
        "underconfident. ECE is the expected calibration error, the mean distance to the diagonal over "
        "predictions, as mean over seeds; with many arms it is only in the .csv file."
    )
    section: ClassVar[str] = "uncertainty"
    needs: ClassVar[str] = "rounds of runs with test data"

    @staticmethod
    def data(runs: Sequence[Run]) -> PlotRows:
        """Return a row for each arm, round (the last one first) and bin that is not empty."""
        rows = [
            {**describe_arm(arm, group), **row}
            for arm, group in group_by_arm(runs).items()
            for number in sorted({record.round for run in group for record in run.rounds}, reverse=True)
            for row in _add_bins(group, number)
        ]
        return sorted(rows, key=lambda row: -row["round"])

    @staticmethod
    def draw(rows: PlotRows) -> Chart:
        """Draw panels by query model, with a menu of rounds."""
        import altair as alt

        drawn = _drawn(rows)
        styles = style_series(row["series"] for row in drawn)
        marks = LineMarks(drawn, styles, x="confidence")
        columns = list_query_models(rows)
        diagonal = (
            alt.Chart(alt.InlineData(values=[{"x": 0, "value": 0}, {"x": 1, "value": 1}]))
            .mark_line(color=FAINT, strokeDash=DASHES["dashed"], strokeWidth=1)
            .encode(x="x:Q", y="value:Q")
        )
        tooltip = [
            alt.Tooltip("arm:N", title="Strategy"),
            alt.Tooltip("value:Q", title="Correct", format=".3f"),
            alt.Tooltip("x:Q", title="Mean probability", format=".3f"),
            alt.Tooltip("count:Q", title="Predictions", format=","),
            alt.Tooltip("error:N", title="Expected calibration error"),
            alt.Tooltip("seeds:N", title="Seeds"),
        ]
        panels = []
        for model in columns:
            lines = marks.draw("datum.over === over", query_model=model, heading=_TITLE, tooltip=tooltip)
            listed = alt.Chart().transform_filter(
                f"datum.panel === {json.dumps(model or '')} && datum.over === over"
            )
            text = listed.mark_text(align="right", baseline="bottom", fontSize=10).encode(
                x=alt.datum(1.0),
                y="place:Q",
                text="text:N",
                color=alt.Color(
                    "series:N", scale=alt.Scale(domain=list(styles), range=[s.colour for s in styles.values()])
                ),
            )
            layers = alt.layer(diagonal, text, *lines.layer)
            panels.append(layers.properties(title=lines.title, height=lines.height))
        return Chart(
            rows=[*drawn, *_list_errors(drawn)],
            tiers=[panels],
            is_y_shared=True,
            highlight="series",
            menus=[Menu(name="over", label="Round", options={row["over"]: row["over"] for row in drawn})],
            legend=list(styles),
            note=" ".join(filter(None, (_NOTE, note_unfinished(rows)))),
        )


def _add_bins(group: Sequence[Run], number: int) -> PlotRows:
    records = [record for run in group for record in run.rounds if record.round == number]
    kept = [record for record in records if record.diagnostics.calibration]
    if not kept:
        return []
    errors = [record.metrics["calibration_error"].pooled or 0.0 for record in kept]
    columns = [
        [
            sum(parts)
            for parts in zip(*(getattr(record.diagnostics.calibration, key) for record in kept), strict=True)
        ]
        for key in ("count", "confidence", "correct")
    ]
    return [
        {
            "round": number,
            "bin": place,
            "confidence": confidence / count,
            "value": correct / count,
            "count": count,
            "calibration_error": sum(errors) / len(errors),
            "n": len(kept),
        }
        for place, (count, confidence, correct) in enumerate(zip(*columns, strict=True), start=1)
        if count
    ]


def _drawn(rows: PlotRows) -> PlotRows:
    """Return the points of each choice of the menu of rounds; full supervision is in every one."""
    models = list_query_models(rows)
    return [
        {
            "arm": row["arm"],
            "series": row["series"],
            "strategy": row["strategy"],
            "query_model": row["query_model"],
            "over": f"after round {number}",
            "x": row["confidence"],
            "confidence": row["confidence"],
            "value": row["value"],
            "low": None,
            "level": False,
            "dash": "solid" if row["query_model"] is not None or models == [None] else "dashed",
            "count": row["count"],
            "error": _format_error(row),
            "seeds": count_seeds(row["n"]),
        }
        for number in dict.fromkeys(row["round"] for row in rows)
        for row in rows
        if row["round"] == number or row["strategy"] == "full"
    ]


def _list_errors(drawn: PlotRows) -> PlotRows:
    """Return lines of text for the lower right corner of each panel, where there is room for them."""
    listed = []
    for panel in list_query_models(drawn):
        for over in dict.fromkeys(row["over"] for row in drawn):
            shown = [row for row in drawn if row["over"] == over and row["query_model"] in (panel, None)]
            errors = {row["series"]: row["error"] for row in shown}
            texts = [(series, f"{series}: ECE {error}") for series, error in errors.items()]
            if len(texts) > _MAX_LISTED:
                continue
            for place, (series, text) in enumerate(reversed(texts)):
                about = {"panel": panel or "", "over": over, "series": series, "text": text}
                listed.append({**about, "place": 0.01 + 0.06 * place, "value": None})
    return listed


def _format_error(row: Mapping[str, Any]) -> str:
    error = row["calibration_error"]
    return "unknown" if error is None else f"{error:.3f}"
