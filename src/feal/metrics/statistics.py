"""Sums over a site's test samples: what a site reports about a model, and what metrics are computed from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated

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

    def __add__(self, other: Statistics) -> Statistics:
        mine, its = self.model_dump(), other.model_dump()
        return Statistics(**{name: _add(mine[name], its[name]) for name in mine})

    @property
    def predictions(self) -> int:
        """Return the number of predictions: samples, or pixels in segmentation."""
        return sum(map(sum, self.confusion))


def _add(a: object, b: object) -> object:
    if isinstance(a, list) and isinstance(b, list):
        return [_add(x, y) for x, y in zip(a, b, strict=True)]
    if isinstance(a, dict) and isinstance(b, dict):
        return {**a, **b, **{name: _add(a[name], b[name]) for name in a.keys() & b.keys()}}
    assert isinstance(a, int | float)
    assert isinstance(b, int | float)
    return a + b


def pool(by_site: Mapping[str, Statistics]) -> Statistics | None:
    """Add all sites' statistics in the order of their names; None without any."""
    total: Statistics | None = None
    for site in sorted(by_site):
        total = by_site[site] if total is None else total + by_site[site]
    return total


def find_inconsistency(statistics: Statistics, *, task: str, classes: int) -> str:
    """Return what no honest evaluation can report, in a few words; empty if there is nothing.

    Lists must have the lengths that the task and the classes require, counts must add up, and every sum must lie
    between the smallest and the largest value that its number of samples allows.
    """
    return next(_inconsistencies(statistics, segmentation=task == "segmentation", classes=classes), "")


def is_within(value: float, low: float, high: float) -> bool:
    """Whether a sum lies between two bounds, rounding aside.

    >>> is_within(1.0 + 1e-9, 0, 1), is_within(1.1, 0, 1), is_within(-5.0, -float("inf"), 0)
    (True, False, True)
    """
    slack = _ROUNDING * max(1.0, *(abs(bound) for bound in (low, high) if math.isfinite(bound)))
    return low - slack <= value <= high + slack


def _inconsistencies(statistics: Statistics, *, segmentation: bool, classes: int) -> Iterator[str]:
    if statistics.samples <= 0:
        yield "no sample"
    yield from _wrong_lengths(statistics, segmentation=segmentation, classes=classes)
    samples, predictions = statistics.samples, statistics.predictions
    if predictions % samples if segmentation else predictions != samples:
        yield "a confusion matrix of another number of samples"
    yield from _wrong_calibration(statistics)
    if sum(statistics.energy) != samples:
        yield "energies of another number of samples"
    shares = [statistics.zero_evidence, *statistics.class_evidence]
    if not all(is_within(share, 0, samples) for share in shares):
        yield "shares of evidence outside 0 to 1"
    if not is_within(statistics.aleatoric, 0, samples * math.log(classes)):
        yield "an aleatoric uncertainty outside 0 to ln C"
    if not is_within(statistics.epistemic, -math.inf, -samples * math.lgamma(classes)):
        yield "an epistemic uncertainty above -lnGamma(C)"
    yield from _wrong_overlap(statistics)


def _wrong_lengths(statistics: Statistics, *, segmentation: bool, classes: int) -> Iterator[str]:
    if [*map(len, statistics.confusion)] != [classes] * classes:
        yield "a confusion matrix of other classes"
    if len(statistics.class_evidence) != classes:
        yield "evidence of other classes"
    bins = (statistics.calibration_count, statistics.calibration_confidence, statistics.calibration_correct)
    if any(len(values) != CALIBRATION_BINS for values in bins) or len(statistics.energy) != ENERGY_BINS:
        yield "other bins"
    if any(len(values) != classes * segmentation for values in (statistics.dice, statistics.dice_count)):
        yield "Dice of other classes"
    if statistics.regions and not segmentation:
        yield "regions in classification"


def _wrong_calibration(statistics: Statistics) -> Iterator[str]:
    counts, correct = statistics.calibration_count, statistics.calibration_correct
    diagonal = sum(row[index] for index, row in enumerate(statistics.confusion))
    if sum(counts) != statistics.predictions or sum(correct) != diagonal:
        yield "calibration bins that do not add up to the confusion matrix"
    if any(right > count for right, count in zip(correct, counts, strict=True)):
        yield "more correct predictions than predictions in a calibration bin"
    confidence = zip(statistics.calibration_confidence, counts, strict=True)
    if not all(is_within(total, 0, count) for total, count in confidence):
        yield "a confidence outside 0 to 1"


def _wrong_overlap(statistics: Statistics) -> Iterator[str]:
    regions = statistics.regions.values()
    scores = [*zip(statistics.dice, statistics.dice_count, strict=True), *((r.dice, r.count) for r in regions)]
    if any(count > statistics.samples for _, count in scores):
        yield "more Dice scores than images"
    if not all(is_within(total, 0, count) for total, count in scores):
        yield "a Dice score outside 0 to 1"
    if any(region.hd95 < 0 for region in regions):
        yield "a negative HD95"
