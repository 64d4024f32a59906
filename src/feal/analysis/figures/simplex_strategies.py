"""Dirichlet simplexes across strategies, for one round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from feal.analysis.concentrations import mean_concentrations
from feal.analysis.figures.contract import FIGURES, Rows
from feal.analysis.figures.triangles import printed_triangles, web_triangles
from feal.analysis.kept import chosen_logits
from feal.analysis.runs import Run, arms

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Print
    from plotly.graph_objects import Figure as Web


@FIGURES.register("simplex-strategies", summary="Dirichlet simplexes of what each strategy chose for one round")
class SimplexStrategies:
    """What the global model believed of the samples that each strategy chose."""

    title: ClassVar[str] = "What the global model believed of the samples chosen for the second round"
    reading: ClassVar[str] = (
        "As over the rounds, but for the samples that each strategy asked for after the first round, which "
        "began with the same labels for all: the wider and the more central the bright area, the less the model "
        "knew of what was chosen. Only a model trained by the evidential loss learns evidence; where the loss was "
        "another one, which is said, the density is read from its logits all the same."
    )
    section: ClassVar[str] = "uncertainty"
    needs: ClassVar[str] = (
        "three classes, two rounds, and what the sites keep of samples (diagnostics=true, in simulation)"
    )

    @staticmethod
    def data(runs: Sequence[Run], *, round_: int = 2, classes: Sequence[str] | None = None) -> Rows:
        """Mean concentrations of what was asked for to be labelled in `round_`, over all sites and seeds."""
        columns = {
            _heading(name, members[0]): [(run, chosen_logits(run, round_ - 1)) for run in members]
            for name, members in arms(runs).items()
        }
        return [{"round": round_, **row} for row in mean_concentrations(columns, classes=classes)]

    @staticmethod
    def web(rows: Rows) -> Web:
        """Triangles, one column an arm."""
        return web_triangles(rows)

    @staticmethod
    def printed(rows: Rows) -> Print:
        """The same for print."""
        return printed_triangles(rows)


def _heading(arm: str, run: Run) -> str:
    loss = run.settings.loss
    return arm if loss == "evidential" or f" {loss}" in arm else f"{arm} ({loss} loss)"
