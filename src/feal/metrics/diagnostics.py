"""Diagnostics of an evidential model: means of its uncertainties and evidence, beside its metrics."""

from __future__ import annotations

from collections.abc import Mapping

from feal.metrics.classification import recall
from feal.metrics.segmentation import class_dice_means
from feal.metrics.statistics import Statistics, pool


def compute_diagnostics(task: str, by_site: Mapping[str, Statistics | None]) -> dict[str, object]:
    """Compute means over all test samples, and over those of each site; nothing without a test sample.

    `aleatoric`, `epistemic`, `zero_evidence` (the share of samples, or pixels, without any evidence),
    `class_evidence` (the share with evidence for each class) and the bins of the calibration error are given for
    all sites together and, under `sites`, for each; `recall` and, in segmentation, `dice_by_class` for all.
    """
    tested = {site: statistics for site, statistics in by_site.items() if statistics is not None}
    pooled = pool(tested)
    if pooled is None:
        return {}
    overall = _means(pooled)
    overall["recall"] = recall(pooled)
    if task == "segmentation":
        overall["dice_by_class"] = class_dice_means(pooled)
    return {**overall, "sites": {site: _means(statistics) for site, statistics in tested.items()}}


def _means(statistics: Statistics) -> dict[str, object]:
    return {
        "aleatoric": statistics.aleatoric / statistics.samples,
        "epistemic": statistics.epistemic / statistics.samples,
        "zero_evidence": statistics.zero_evidence / statistics.samples,
        "class_evidence": [share / statistics.samples for share in statistics.class_evidence],
        "calibration": {
            "count": statistics.calibration_count,
            "confidence": statistics.calibration_confidence,
            "correct": statistics.calibration_correct,
        },
    }
