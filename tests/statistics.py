"""Statistics of made-up predictions, consistent in all their parts."""

from typing import Any

from feal.metrics.statistics import CALIBRATION_BINS, ENERGY_BINS, Statistics


def make_statistics(confusion: list[list[int]], /, *, samples: int | None = None, **changes: Any) -> Statistics:
    """Return statistics with this confusion matrix, all at a confidence of 0.7."""
    total, classes = sum(map(sum, confusion)), len(confusion)
    samples = total if samples is None else samples
    correct = sum(row[index] for index, row in enumerate(confusion))
    at_bin = int(0.7 * CALIBRATION_BINS)

    def binned(value: float, length: int = CALIBRATION_BINS) -> list[float]:
        return [value if index == at_bin else 0 for index in range(length)]

    fields: dict[str, Any] = {
        "samples": samples,
        "confusion": confusion,
        "calibration_count": binned(total),
        "calibration_confidence": binned(0.7 * total),
        "calibration_correct": binned(correct),
        "energy": binned(samples, ENERGY_BINS),
        "aleatoric": 0.5 * samples,
        "epistemic": -2.0 * samples,
        "zero_evidence": 0.25 * samples,
        "class_evidence": [0.5 * samples] * classes,
    }
    return Statistics(**{**fields, **changes})
