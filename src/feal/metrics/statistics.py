"""Sums over a site's test samples: what a site reports about a model, and what metrics are computed from."""

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import add, le
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field

Counts = list[Annotated[int, Field(ge=0, le=2**53)]]
Sums = list[float]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Sum = Finite | list[Finite]
"""A sum of a metric: a number, or a list of numbers."""

CALIBRATION_BINS = 15
ENERGY_BINS = 256
ENERGY_RANGE = (-64.0, 64.0)

_ROUNDING = 1e-6
"""Relative error that sums of floating-point numbers may have."""


class Region(BaseModel):
    """Sums over the images that show a region, in the mask or in the prediction."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dice: Finite
    hd95: Finite
    count: Annotated[int, Field(ge=0, le=2**53)]


class Statistics(BaseModel):
    """Sums over one site's test samples; adding those of two sites gives those of one site with all samples."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    samples: int = Field(description="number of test samples")
    confusion: list[Counts] = Field(
        description="samples (or pixels) by true class (row) and predicted class (column)"
    )
    calibration_count: Counts = Field(description="samples (or pixels) by confidence bin")
    calibration_confidence: Sums = Field(description="sum of the confidence in each bin")
    calibration_correct: Counts = Field(description="correct predictions in each bin")
    energy: Counts = Field(description="histogram of the samples' energies -logsumexp(z)")
    aleatoric: Finite = Field(description="sum of the aleatoric uncertainty")
    epistemic: Finite = Field(description="sum of the epistemic uncertainty")
    zero_evidence: Finite = Field(description="sum of the shares of samples (or pixels) without any evidence")
    class_evidence: Sums = Field(description="the same with evidence, for each class")
    dice: Sums = Field(default=[], description="sum of the images' Dice scores, for each class (segmentation)")
    dice_count: Counts = Field(default=[], description="images that have a Dice score, for each class")
    regions: dict[str, Region] = Field(
        default={},
        description="for each region the number of images that show it, sums of their Dice scores and HD95",
    )
    extra: dict[str, dict[str, Sum]] = Field(
        default={}, description="sums of further metrics, by metric and name, as each metric declares them"
    )

    def __add__(self, other: Self) -> Self:
        mine, its = self.model_dump(), other.model_dump()
        return type(self)(**{name: _add(mine[name], its[name]) for name in mine})

    @property
    def predictions(self) -> int:
        """Return the number of predictions: samples, or pixels in segmentation."""
        return sum(map(sum, self.confusion))

    @property
    def correct(self) -> int:
        """Return the number of correct predictions."""
        return sum(row[index] for index, row in enumerate(self.confusion))

    @property
    def recall(self) -> list[float | None]:
        """Return the recall of each class; None for a class without a sample (or pixel)."""
        return [row[index] / sum(row) if sum(row) else None for index, row in enumerate(self.confusion)]

    @property
    def class_dice(self) -> list[float | None]:
        """Return the mean Dice of the images that have one, for each class."""
        scores = zip(self.dice, self.dice_count, strict=True)
        return [total / count if count else None for total, count in scores]


def _add(a: Any, b: Any) -> Any:
    if isinstance(a, list):
        return [_add(x, y) for x, y in zip(a, b, strict=True)]
    if isinstance(a, dict):
        return {**a, **b, **{name: _add(a[name], b[name]) for name in a.keys() & b.keys()}}
    return a + b


def pool(by_site: Mapping[str, Statistics]) -> Statistics | None:
    """Add all sites' statistics in the order of their names; None without any."""
    return reduce(add, [by_site[site] for site in sorted(by_site)]) if by_site else None


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """Compute the mean of the values that are not None; None without any.

    >>> mean_of_known([0.5, None, 1.0])
    0.75
    """
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


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
    overall = {**_means(pooled), "recall": pooled.recall}
    if task == "segmentation":
        overall["dice_by_class"] = pooled.class_dice
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


def is_within(value: float, low: float, high: float) -> bool:
    """Whether a sum lies between two bounds, rounding aside.

    >>> is_within(1.0 + 1e-9, 0, 1), is_within(1.1, 0, 1), is_within(-5.0, -float("inf"), 0)
    (True, False, True)
    """
    slack = _ROUNDING * max(1.0, *(abs(bound) for bound in (low, high) if math.isfinite(bound)))
    return low - slack <= value <= high + slack


def find_inconsistency(statistics: Statistics, *, task: str, classes: int) -> str:
    """Return what no honest evaluation can report, in a few words; empty if there is nothing.

    Lists must have the lengths that the task and the classes require, counts must add up, and every sum must lie
    between the smallest and the largest value that its number of samples allows.
    """
    return next(_find_inconsistencies(statistics, task == "segmentation", classes), "")


def _find_inconsistencies(statistics: Statistics, is_segmentation: bool, classes: int) -> Iterator[str]:
    counts, correct = statistics.calibration_count, statistics.calibration_correct
    bins = [len(counts), len(statistics.calibration_confidence), len(correct), len(statistics.energy)]
    lengths = {
        "no sample": statistics.samples > 0,
        "a confusion matrix of other classes": [*map(len, statistics.confusion)] == [classes] * classes,
        "evidence of other classes": len(statistics.class_evidence) == classes,
        "other bins": bins == [CALIBRATION_BINS] * 3 + [ENERGY_BINS],
        "Dice of other classes": len(statistics.dice) == len(statistics.dice_count) == classes * is_segmentation,
        "regions in classification": is_segmentation or not statistics.regions,
    }
    yield from (problem for problem, is_right in lengths.items() if not is_right)
    # Only lists of the right lengths come this far, as the first problem is all that is asked for.
    samples, predictions = statistics.samples, statistics.predictions
    shares = [statistics.zero_evidence, *statistics.class_evidence]
    regions = statistics.regions.values()
    dice = [*zip(statistics.dice, statistics.dice_count, strict=True), *((r.dice, r.count) for r in regions)]
    confidence = zip(statistics.calibration_confidence, counts, strict=True)
    sums = {
        "a confusion matrix of another number of samples": (
            predictions % samples == 0 if is_segmentation else predictions == samples
        ),
        "calibration bins that do not add up to the confusion matrix": (
            (sum(counts), sum(correct)) == (predictions, statistics.correct)
        ),
        "more correct predictions than predictions in a calibration bin": all(map(le, correct, counts)),
        "a confidence outside 0 to 1": all(is_within(total, 0, count) for total, count in confidence),
        "energies of another number of samples": sum(statistics.energy) == samples,
        "shares of evidence outside 0 to 1": all(is_within(share, 0, samples) for share in shares),
        "an aleatoric uncertainty outside 0 to ln C": is_within(
            statistics.aleatoric, 0, samples * math.log(classes)
        ),
        "an epistemic uncertainty above -lnGamma(C)": is_within(
            statistics.epistemic, -math.inf, -samples * math.lgamma(classes)
        ),
        "more Dice scores than images": all(count <= samples for _, count in dice),
        "a Dice score outside 0 to 1": all(is_within(total, 0, count) for total, count in dice),
        "a negative HD95": all(region.hd95 >= 0 for region in regions),
    }
    yield from (problem for problem, is_right in sums.items() if not is_right)
