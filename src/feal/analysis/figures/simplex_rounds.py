"""Dirichlet simplexes over the rounds, for one strategy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from feal.analysis.concentrations import mean_concentrations
from feal.analysis.figures.contract import FIGURES, Rows
from feal.analysis.figures.triangles import printed_triangles, web_triangles
from feal.analysis.kept import pool_logits
from feal.analysis.runs import Run, shown_arm

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Print
    from plotly.graph_objects import Figure as Web


@FIGURES.register("simplex-rounds", summary="Dirichlet simplexes of three classes over the rounds")
class SimplexRounds:
    """What the global model believes of unlabelled samples, from round to round."""

    title: ClassVar[str] = "What the global model believes of unlabelled samples, round by round"
    reading: ClassVar[str] = (
        "A triangle holds all probabilities of three classes, and its colour the Dirichlet density with the mean "
        "concentration of all unlabelled samples predicted as that row's class (of more than three classes those "
        "three predicted most often, their probabilities taken over their sum); the dot is the expected "
        "probability. A small bright spot means little epistemic uncertainty, one near a corner little aleatoric "
        "uncertainty, and an even colour no evidence at all."
    )
    section: ClassVar[str] = "uncertainty"
    needs: ClassVar[str] = (
        "three classes, and what the sites keep of unlabelled samples (diagnostics=true, in simulation)"
    )

    @staticmethod
    def data(runs: Sequence[Run], *, classes: Sequence[str] | None = None) -> Rows:
        """Mean concentrations of the arm shown (feal's if there is one), over all its sites and seeds."""
        arm, members = shown_arm(runs)
        rounds = sorted({record["round"] for run in members for record in run.rounds})
        columns = {f"round {number}": [(run, pool_logits(run, number)) for run in members] for number in rounds}
        return [{"arm": arm, **row} for row in mean_concentrations(columns, classes=classes)]

    @staticmethod
    def web(rows: Rows) -> Web:
        """Triangles, one column a round."""
        return web_triangles(rows)

    @staticmethod
    def printed(rows: Rows) -> Print:
        """The same for print."""
        return printed_triangles(rows)
