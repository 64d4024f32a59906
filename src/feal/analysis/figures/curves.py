"""Learning curves: what every round's global model is worth, against labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from feal.analysis.figures.contract import FIGURES, Rows
from feal.analysis.figures.lines import printed_lines
from feal.analysis.figures.seeds import MEAN, POOLED, SHARE, Figures, by_round
from feal.analysis.figures.web_lines import web_lines
from feal.analysis.runs import Record, Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Print
    from plotly.graph_objects import Figure as Web


@FIGURES.register("curves", summary="learning curves by query model, with intervals over seeds")
class Curves:
    """Every figure of every round, pooled, as mean of the sites, and of each site."""

    title: ClassVar[str] = "Learning curves"
    reading: ClassVar[str] = (
        "Each line is a strategy: its figure on the test part against the labels a site has given, as mean over "
        "seeds with the 95 % interval of the mean (Student's t). A panel is a query model; strategies that have "
        "none are dashed and the same in every panel, and the dotted line is what all labels together reach."
    )
    section: ClassVar[str] = "learning"
    needs: ClassVar[str] = "a finished round of runs whose sites have a test part"

    @staticmethod
    def data(runs: Sequence[Run]) -> Rows:
        """A row for each arm, metric, site (or pooled, or mean) and round."""
        return by_round(runs, _metrics, within=_possible)

    @staticmethod
    def web(rows: Rows) -> Web:
        """Panels by query model; menus choose the metric and the site."""
        return web_lines(rows)

    @staticmethod
    def printed(rows: Rows) -> Print:
        """Panels by query model, of the first metric and site among the rows: pooled, what runs are judged by."""
        return printed_lines(rows)


def _metrics(record: Record) -> Figures:
    return {
        (metric, over): value
        for metric, figures in record["metrics"].items()
        for over, value in {POOLED: figures["pooled"], MEAN: figures["mean"], **figures["sites"]}.items()
    }


def _possible(metric: str) -> tuple[float, float]:
    return (0.0, math.inf) if metric.startswith("hd95") else SHARE
