"""Metrics: numbers that say how good a model is, computed from sums that can be pooled over sites."""

from feal.metrics import classification, segmentation  # noqa: F401  (each registers its metrics)
from feal.metrics.classification import class_roc_auc, roc_auc
from feal.metrics.registry import (
    METRICS,
    Bound,
    EvaluatedBatch,
    Metric,
    compute_metrics,
    find_metrics,
    lower_is_better,
    primary_metric,
    register_metric,
    table_metrics,
)
from feal.metrics.statistics import Statistics

__all__ = [
    "METRICS",
    "Bound",
    "EvaluatedBatch",
    "Metric",
    "Statistics",
    "class_roc_auc",
    "compute_metrics",
    "find_metrics",
    "lower_is_better",
    "primary_metric",
    "register_metric",
    "roc_auc",
    "table_metrics",
]
