"""Learning curves: every metric of each round's global model against labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from feal.analysis.plots.base import PLOTS, Chart, PlotRows
from feal.analysis.plots.lines import draw_lines
from feal.analysis.plots.series import MEAN, POOLED, SHARE, RoundMetrics, aggregate_rounds
from feal.analysis.runs import Run
from feal.rundir.records import Round


@PLOTS.register("curves", summary="learning curves by query model, with intervals over seeds")
class LearningCurves:
    """Every metric of every round, pooled, as mean of the sites, and of each site."""

    title: ClassVar[str] = "Learning curves"
    reading: ClassVar[str] = (
        "Each line is a strategy: a metric on the test data against the labels per site, as mean over seeds "
        "with the 95 % interval of the mean (Student's t). Each panel is a query model; strategies without "
        "one are dashed and the same in every panel, and the dotted line is full supervision."
    )
    section: ClassVar[str] = "learning"
    needs: ClassVar[str] = "a finished round of runs whose sites have test data"

    @staticmethod
    def data(runs: Sequence[Run]) -> PlotRows:
        """Return a row for each arm, metric, site (or pooled, or mean) and round."""
        return aggregate_rounds(runs, _metrics, within=_possible_range)

    @staticmethod
    def draw(rows: PlotRows) -> Chart:
        """Draw panels by query model, with menus of metrics and sites."""
        return draw_lines(rows)


def _metrics(record: Round) -> RoundMetrics:
    return {
        (metric, over): value
        for metric, values in record.metrics.items()
        for over, value in {POOLED: values.pooled, MEAN: values.mean, **values.sites}.items()
    }


def _possible_range(metric: str) -> tuple[float, float]:
    return (0.0, math.inf) if metric.startswith("hd95") else SHARE
