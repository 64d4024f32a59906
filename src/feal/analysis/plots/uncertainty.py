"""The global model's uncertainty over the rounds, and how often it has no evidence."""

from __future__ import annotations

from collections.abc import Sequence

from feal.analysis.plots.base import PLOTS, Plot, PlotRows
from feal.analysis.plots.curves import POOLED, SHARE, RoundMetrics, aggregate_rounds, draw_lines
from feal.analysis.runs import Run
from feal.rundir.records import EvidenceMeans, Round

_TITLES = {"aleatoric": "Aleatoric uncertainty (nats)", "epistemic": "Epistemic uncertainty (nats)"}


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
