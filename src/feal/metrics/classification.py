"""Metrics of single predictions: accuracy, balanced accuracy, recall, calibration error, ROC-AUC.

In segmentation a prediction is a pixel.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from feal.metrics.registry import Metric, register_metric
from feal.metrics.statistics import Statistics, mean_of_known

Scores = NDArray[np.floating]
OwnSums = Mapping[str, NDArray[np.float64]]


@register_metric
class BalancedAccuracy(Metric):
    """Mean recall over the classes that occur."""

    name = "balanced_accuracy"
    tasks = ("classification",)
    role = "primary"

    def compute(self, statistics: Statistics, sums: OwnSums) -> float | None:
        return mean_of_known(statistics.recall)


@register_metric
class Accuracy(Metric):
    """Correct predictions over all samples (or pixels)."""

    name = "accuracy"
    role = "record"

    def compute(self, statistics: Statistics, sums: OwnSums) -> float | None:
        return statistics.correct / statistics.predictions if statistics.predictions else None


@register_metric
class CalibrationError(Metric):
    """Expected calibration error (ECE): sum over bins of |correct - confidence|, over all predictions."""

    name = "calibration_error"
    lower_is_better = True
    role = "record"

    def compute(self, statistics: Statistics, sums: OwnSums) -> float | None:
        total = sum(statistics.calibration_count)
        bins = zip(statistics.calibration_correct, statistics.calibration_confidence, strict=True)
        return sum(abs(correct - confidence) for correct, confidence in bins) / total if total else None


@register_metric
class RocAuc(Metric):
    """Mean area under the ROC curve of each class against the rest; from the samples themselves, see `roc_auc`."""

    name = "roc_auc"
    title = "ROC-AUC"
    tasks = ("classification",)
    from_samples = True

    def compute(self, statistics: Statistics, sums: OwnSums) -> float | None:
        return None


def class_roc_auc(probability: Scores, target: NDArray[np.integer]) -> tuple[float | None, ...]:
    """Compute the area under the ROC curve of each class against the rest.

    The share of pairs (a sample of the class, one of another) in the right order; a tie counts half.

    Args:
        probability: [n, classes], or any score that grows with it.
        target: class of each sample [n].

    Returns:
        A number for each class; None for one that no sample has, or every sample.

    >>> class_roc_auc(np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]]), np.array([0, 1, 1]))
    (1.0, 1.0)
    """
    from scipy.stats import rankdata  # it takes a second to import

    areas: list[float | None] = []
    for number, rank in enumerate(rankdata(probability, axis=0).T):
        is_member = target == number
        members = int(is_member.sum())
        pairs = members * (len(target) - members)
        # The Mann-Whitney statistic over the number of pairs.
        areas.append(float((rank[is_member].sum() - members * (members + 1) / 2) / pairs) if pairs else None)
    return tuple(areas)


def roc_auc(probability: Scores, target: NDArray[np.integer]) -> float | None:
    """Compute the mean of `class_roc_auc` over the classes that have one."""
    return mean_of_known(class_roc_auc(probability, target))
