"""How often the global model has no evidence: for any class, and for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from feal.analysis.figures.contract import FIGURES, Rows
from feal.analysis.figures.lines import printed_lines
from feal.analysis.figures.seeds import Figures, by_round, diagnosed, share
from feal.analysis.figures.web_lines import web_lines
from feal.analysis.runs import Record, Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Print
    from plotly.graph_objects import Figure as Web


@FIGURES.register("zero-evidence", summary="share of the test part without evidence, at all and for each class")
class ZeroEvidence:
    """Shares of test samples (or pixels), of all sites and of each."""

    title: ClassVar[str] = "Without evidence"
    reading: ClassVar[str] = (
        "The share of test samples (segmentation: pixels) that the global model finds no evidence in, for any "
        "class or, by the report's menu, for one. Where it has none at all its uncertainty cannot tell samples "
        "apart, and a class that stays near 1 is dead: the model never speaks for it."
    )
    section: ClassVar[str] = "uncertainty"
    needs: ClassVar[str] = "a finished round of runs whose sites have a test part"

    @staticmethod
    def data(runs: Sequence[Run]) -> Rows:
        """A row for each arm, class (or any), site (or all pooled) and round."""
        if not runs:
            return []
        what = "pixels" if runs[0].task == "segmentation" else "samples"
        names = [f"{what} without evidence", *(f"{what} without evidence for {name}" for name in runs[0].classes)]
        return by_round(runs, lambda record: _shares(record, names), within=share)

    @staticmethod
    def web(rows: Rows) -> Web:
        """Panels by query model; menus choose the class and the site."""
        return web_lines(rows, title=_title, shares=True)

    @staticmethod
    def printed(rows: Rows) -> Print:
        """Panels by query model, of the first class and site among the rows: none at all, all pooled."""
        return printed_lines(rows, title=_title, shares=True)


def _shares(record: Record, names: Sequence[str]) -> Figures:
    found: dict[tuple[str, str], float | None] = {}
    for over, figures in diagnosed(record).items():
        without = [figures["zero_evidence"], *(1 - share for share in figures["class_evidence"])]
        found |= {(name, over): share for name, share in zip(names, without, strict=True)}
    return dict(sorted(found.items(), key=lambda entry: names.index(entry[0][0])))


def _title(metric: str) -> str:
    return f"Share of {metric}"
