"""Metrics: numbers that say how good a model is, computed from sums that can be pooled over sites."""

from feal.metrics import classification, segmentation  # noqa: F401  (each registers its metrics)
from feal.metrics.classification import class_roc_auc as class_roc_auc
from feal.metrics.classification import roc_auc as roc_auc
from feal.metrics.registry import METRICS as METRICS
from feal.metrics.registry import Bound as Bound
from feal.metrics.registry import EvaluatedBatch as EvaluatedBatch
from feal.metrics.registry import Metric as Metric
from feal.metrics.registry import compute_metrics as compute_metrics
from feal.metrics.registry import find_metrics as find_metrics
from feal.metrics.registry import lower_is_better as lower_is_better
from feal.metrics.registry import primary_metric as primary_metric
from feal.metrics.registry import register_metric as register_metric
from feal.metrics.registry import table_metrics as table_metrics
from feal.metrics.statistics import Statistics as Statistics
