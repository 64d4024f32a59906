"""The global model's uncertainty over the rounds, and how often it has no evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from feal.analysis.plots.base import PLOTS, Chart, PlotRows
from feal.analysis.plots.lines import draw_lines
from feal.analysis.plots.series import SHARE, RoundMetrics, aggregate_rounds, site_diagnostics
from feal.analysis.runs import Run
from feal.rundir.records import Round

_TITLES = {"aleatoric": "Aleatoric uncertainty (nats)", "epistemic": "Epistemic uncertainty (nats)"}


@PLOTS.register("uncertainty", summary="aleatoric and epistemic uncertainty on the test data, over the rounds")
class Uncertainty:
    """Means over test samples (or pixels), of all sites and of each."""

    title: ClassVar[str] = "Uncertainty over the rounds"
    reading: ClassVar[str] = (
        "Above, how ambiguous the test images are to the global model (aleatoric: expected entropy); below, "
        "how little it knows about them (epistemic: differential entropy of the Dirichlet, negative, and "
        "lower with more evidence). More labels should lower the epistemic part; arms with different losses "
        "are not on one scale."
    )
    section: ClassVar[str] = "uncertainty"
    needs: ClassVar[str] = "a finished round of runs whose sites have test data"

    @staticmethod
    def data(runs: Sequence[Run]) -> PlotRows:
        """Return a row for each arm, kind of uncertainty, site (or all pooled) and round."""
        return aggregate_rounds(runs, _uncertainties)

    @staticmethod
    def draw(rows: PlotRows) -> Chart:
        """Draw a row of panels for each kind, with a menu of sites."""
        return draw_lines(rows, tiers=tuple(_TITLES), title=_TITLES.__getitem__)


@PLOTS.register("zero-evidence", summary="share of the test data without evidence, at all and for each class")
class ZeroEvidence:
    """Shares of test samples (or pixels), of all sites and of each."""

    title: ClassVar[str] = "Zero evidence"
    reading: ClassVar[str] = (
        "The share of test samples (segmentation: pixels) to which the global model assigns no evidence, for "
        "any class or, by the report's menu, for one. Where it assigns none at all, uncertainty cannot rank "
        "samples; a class that stays near 1 is dead: the model never predicts it."
    )
    section: ClassVar[str] = "uncertainty"
    needs: ClassVar[str] = "a finished round of runs whose sites have test data"

    @staticmethod
    def data(runs: Sequence[Run]) -> PlotRows:
        """Return a row for each arm, class (or any), site (or all pooled) and round."""
        if not runs:
            return []
        what = "pixels" if runs[0].task == "segmentation" else "samples"
        names = [f"{what} without evidence", *(f"{what} without evidence for {name}" for name in runs[0].classes)]
        return aggregate_rounds(runs, lambda record: _shares(record, names), within=lambda _: SHARE)

    @staticmethod
    def draw(rows: PlotRows) -> Chart:
        """Draw panels by query model, with menus of classes and sites."""
        return draw_lines(rows, title=lambda metric: f"Share of {metric}", from_zero=True)


def _uncertainties(record: Round) -> RoundMetrics:
    return {
        (kind, over): getattr(values, kind)
        for kind in _TITLES
        for over, values in site_diagnostics(record).items()
    }


def _shares(record: Round, names: Sequence[str]) -> RoundMetrics:
    found: dict[tuple[str, str], float | None] = {}
    for over, values in site_diagnostics(record).items():
        without = [values.zero_evidence, *(1 - share for share in values.class_evidence)]
        found |= {(name, over): share for name, share in zip(names, without, strict=True)}
    return dict(sorted(found.items(), key=lambda entry: names.index(entry[0][0])))
