"""The global model's uncertainty over the rounds, how often it has no evidence, and how reliable it is."""

from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np

from feal.analysis.arms import group_by_arm
from feal.analysis.plots.base import (
    PLOTS,
    Chart,
    Plot,
    PlotRows,
    colour_series,
    describe_arm,
    make_menu,
    note_unfinished,
)
from feal.analysis.plots.curves import (
    POOLED,
    SHARE,
    RoundMetrics,
    aggregate_rounds,
    choose_dash,
    draw_lines,
    draw_panel,
    filter_rows,
    list_query_models,
)
from feal.analysis.plots.theme import DASHES, FAINT, Style, style_series
from feal.analysis.runs import Run
from feal.rundir.records import EvidenceMeans, Round

_TITLES = {"aleatoric": "Aleatoric uncertainty (nats)", "epistemic": "Epistemic uncertainty (nats)"}
_NOTE = "Bins of all sites and seeds together; dashed grey: perfect calibration."
_CHOSEN = "datum.over === over"
_MAX_LISTED = 8
"""Series up to which a panel lists their calibration errors."""
_SCALE = alt.Scale(domain=[-0.02, 1.02], nice=False)
_TOOLTIP = [
    alt.Tooltip("arm:N", title="Strategy"),
    alt.Tooltip("value:Q", title="Correct", format=".3f"),
    alt.Tooltip("x:Q", title="Mean probability", format=".3f"),
    alt.Tooltip("count:Q", title="Predictions", format=","),
    alt.Tooltip("calibration_error:Q", title="Expected calibration error", format=".3f"),
    alt.Tooltip("n:Q", title="Seeds"),
]


def _read_zero_evidence(runs: Sequence[Run]) -> PlotRows:
    """Return a row for each arm, class (or any), site (or all pooled) and round."""
    if not runs:
        return []
    what = "pixels" if runs[0].task == "segmentation" else "samples"
    names = [f"{what} without evidence", *(f"{what} without evidence for {name}" for name in runs[0].classes)]
    return aggregate_rounds(runs, lambda record: _shares(record, names), within=lambda _: SHARE)


def _uncertainties(record: Round) -> RoundMetrics:
    return {
        (kind, over): getattr(values, kind) for kind in _TITLES for over, values in _diagnostics(record).items()
    }


def _shares(record: Round, names: Sequence[str]) -> RoundMetrics:
    found = {
        over: [values.zero_evidence, *(1 - share for share in values.class_evidence)]
        for over, values in _diagnostics(record).items()
    }
    return {(name, over): shares[at] for at, name in enumerate(names) for over, shares in found.items()}


def _diagnostics(record: Round) -> dict[str, EvidenceMeans]:
    """Return a round's diagnostics by scope, all sites pooled and each site; nothing without test data."""
    diagnostics = record.diagnostics
    return {POOLED: diagnostics, **diagnostics.sites} if diagnostics.sites else {}


def _read_bins(runs: Sequence[Run]) -> PlotRows:
    """Return a row for each arm, round (the last one first) and bin that is not empty."""
    rows = [
        {**describe_arm(arm), **row}
        for arm in group_by_arm(runs)
        for number in sorted({record.round for run in arm.runs for record in run.rounds}, reverse=True)
        for row in _add_bins(arm.runs, number)
    ]
    return sorted(rows, key=lambda row: -row["round"])


def _draw_reliability(rows: PlotRows) -> Chart:
    """Draw panels by query model, with a menu of rounds."""
    models, rounds = list_query_models(rows), list(dict.fromkeys(row["round"] for row in rows))
    styles = style_series(row["series"] for row in rows)
    diagonal = (
        alt.Chart(alt.InlineData(values=[{"x": 0, "value": 0}, {"x": 1, "value": 1}]))
        .mark_line(color=FAINT, strokeDash=DASHES["dashed"], strokeWidth=1)
        .encode(x="x:Q", y="value:Q")
    )
    axis = alt.Axis(grid=False, tickCount=6, title="Probability of the predicted class")
    panels = []
    for model in models:
        listed = {row["series"] for row in rows if row["query_model"] in (model, None)}
        panels.append(
            draw_panel(
                _CHOSEN,
                query_model=model,
                heading="Share of correct predictions",
                styles=styles,
                x=alt.X("x:Q", axis=axis, scale=_SCALE),
                y_scale=_SCALE,
                tooltip=_TOOLTIP,
                below=[diagonal, *([_list_errors(model, styles)] if len(listed) <= _MAX_LISTED else [])],
            )
        )
    return Chart(
        rows=[
            {
                **row,
                "over": f"after round {number}",
                "x": row["confidence"],
                "dash": choose_dash(row, has_models=models != [None]),
            }
            for number in rounds
            for row in rows
            # Full supervision has one round, which is in every choice of the menu.
            if row["round"] == number or row["strategy"] == "full"
        ],
        tiers=[panels],
        is_y_shared=True,
        highlight="series",
        menus=[make_menu("over", "Round", {f"after round {n}": f"after round {n}" for n in rounds})],
        legend=list(styles),
        note=f"{_NOTE} {note_unfinished(rows)}".strip(),
    )


def _list_errors(query_model: str | None, styles: Mapping[str, Style]) -> alt.Chart:
    """Return the calibration errors of a panel's series as text in its lower right corner."""
    texts: alt.Chart = (
        filter_rows(_CHOSEN, query_model)
        .transform_aggregate(error="mean(calibration_error)", groupby=["series"])
        .transform_window(place="row_number()", sort=[alt.SortField("series", order="descending")])
        .transform_calculate(
            text="datum.series + ': ECE ' + format(datum.error, '.3f')", y="0.06 * datum.place - 0.05"
        )
        .mark_text(align="right", baseline="bottom", fontSize=10)
        .encode(x=alt.datum(1.0), y="y:Q", text="text:N", color=colour_series(styles))
    )
    return texts


def _add_bins(group: Sequence[Run], number: int) -> PlotRows:
    """Return the bins of a round, added over seeds."""
    records = [record for run in group for record in run.rounds if record.round == number]
    kept = [(record, bins) for record in records if (bins := record.diagnostics.calibration)]
    if not kept:
        return []
    error = np.mean([record.metrics["calibration_error"].pooled or 0.0 for record, _ in kept])
    counts, confidences, corrects = (
        np.sum([getattr(bins, key) for _, bins in kept], axis=0).tolist()
        for key in ("count", "confidence", "correct")
    )
    return [
        {
            "round": number,
            "bin": place,
            "confidence": confidence / count,
            "value": correct / count,
            "count": count,
            "calibration_error": float(error),
            "n": len(kept),
        }
        for place, (count, confidence, correct) in enumerate(
            zip(counts, confidences, corrects, strict=True), start=1
        )
        if count
    ]


PLOTS.register("uncertainty", summary="aleatoric and epistemic uncertainty on the test data, over the rounds")(
    Plot(
        title="Uncertainty over the rounds",
        reading="Above, how ambiguous the test images are to the global model (aleatoric: expected entropy); "
        "below, how little it knows about them (epistemic: differential entropy of the Dirichlet, negative, and "
        "lower with more evidence). More labels should lower the epistemic part; arms with different losses are "
        "not on one scale.",
        section="uncertainty",
        needs="a finished round of runs whose sites have test data",
        data=lambda runs: aggregate_rounds(runs, _uncertainties),
        draw=lambda rows: draw_lines(rows, tiers=_TITLES),
    )
)
PLOTS.register("zero-evidence", summary="share of the test data without evidence, at all and for each class")(
    Plot(
        title="Zero evidence",
        reading="The share of test samples (segmentation: pixels) to which the global model assigns no evidence, "
        "for any class or, by the report's menu, for one. Where it assigns none at all, uncertainty cannot rank "
        "samples; a class that stays near 1 is dead: the model never predicts it.",
        section="uncertainty",
        needs="a finished round of runs whose sites have test data",
        data=_read_zero_evidence,
        draw=lambda rows: draw_lines(rows, title=lambda metric: f"Share of {metric}", from_zero=True),
    )
)
PLOTS.register("reliability", summary="reliability diagram with the expected calibration error, by round")(
    Plot(
        title="Reliability",
        reading="A point is a bin of test predictions: its height is the share of correct ones, its horizontal "
        "position their mean probability; below the diagonal a model is overconfident, above it underconfident. "
        "ECE is the expected calibration error, the mean distance to the diagonal over predictions, as mean over "
        "seeds; with many arms it is only in the .csv file.",
        section="uncertainty",
        needs="rounds of runs with test data",
        data=_read_bins,
        draw=_draw_reliability,
    )
)
