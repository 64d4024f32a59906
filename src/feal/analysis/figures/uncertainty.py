"""How the global model's uncertainty moves over the rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from feal.analysis.figures.contract import FIGURES, Rows
from feal.analysis.figures.lines import printed_lines
from feal.analysis.figures.seeds import Figures, by_round, diagnosed
from feal.analysis.figures.web_lines import web_lines
from feal.analysis.runs import Record, Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Print
    from plotly.graph_objects import Figure as Web

_TITLES = {"aleatoric": "Aleatoric uncertainty (nats)", "epistemic": "Epistemic uncertainty (nats)"}


@FIGURES.register("uncertainty", summary="aleatoric and epistemic uncertainty on the test part, over the rounds")
class Uncertainty:
    """Means over test samples (or pixels), of all sites and of each."""

    title: ClassVar[str] = "Uncertainty over the rounds"
    reading: ClassVar[str] = (
        "Above, how ambiguous the test images are to the global model (aleatoric: expected entropy); below, how "
        "little it knows about them (epistemic: the Dirichlet's differential entropy, negative, and lower with "
        "more evidence). More labels should lower the lower one; arms of different losses are not on one scale."
    )
    section: ClassVar[str] = "uncertainty"
    needs: ClassVar[str] = "a finished round of runs whose sites have a test part"

    @staticmethod
    def data(runs: Sequence[Run]) -> Rows:
        """A row for each arm, kind of uncertainty, site (or all pooled) and round."""
        return by_round(runs, _uncertainties)

    @staticmethod
    def web(rows: Rows) -> Web:
        """A row of panels for each kind; a menu chooses the site."""
        return web_lines(rows, tiers=tuple(_TITLES), title=_title)

    @staticmethod
    def printed(rows: Rows) -> Print:
        """A row of panels for each kind, of the first site among the rows: all pooled."""
        return printed_lines(rows, tiers=tuple(_TITLES), title=_title)


def _uncertainties(record: Record) -> Figures:
    return {(kind, over): figures[kind] for kind in _TITLES for over, figures in diagnosed(record).items()}


def _title(metric: str) -> str:
    return _TITLES[metric]
