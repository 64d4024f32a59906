"""What a site says about a model: sums that pool over sites, and the figures they give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Counts = list[Annotated[int, Field(ge=0, le=2**53)]]
Sums = list[float]
Finite = Annotated[float, Field(allow_inf_nan=False)]

CALIBRATION_BINS = 15
ENERGY_BINS = 256
ENERGY_RANGE = (-64.0, 64.0)


class Region(BaseModel):
    """Sums over the images that show a region, in truth or in prediction."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dice: Finite
    hd95: Finite
    count: Annotated[int, Field(ge=0, le=2**53)]


class Statistics(BaseModel):
    """Sums over one site's test samples; adding two sites' gives what one site with both would have sent."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    samples: int = Field(description="number of test samples")
    confusion: list[Counts] = Field(
        description="samples (or pixels) by true class (row) and predicted class (column)"
    )
    calibration_count: Counts = Field(description="samples (or pixels) by confidence bin")
    calibration_confidence: Sums = Field(description="sum of the confidence in each bin")
    calibration_correct: Counts = Field(description="right predictions in each bin")
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

    def __add__(self, other: Statistics) -> Statistics:
        mine, its = self.model_dump(), other.model_dump()
        return Statistics(**{name: _add(mine[name], its[name]) for name in mine})


def _add(a: object, b: object) -> object:
    if isinstance(a, list) and isinstance(b, list):
        return [_add(x, y) for x, y in zip(a, b, strict=True)]
    if isinstance(a, dict) and isinstance(b, dict):
        return {**a, **b, **{name: _add(a[name], b[name]) for name in a.keys() & b.keys()}}
    assert isinstance(a, int | float)
    assert isinstance(b, int | float)
    return a + b


def balanced_accuracy(statistics: Statistics) -> float | None:
    """Mean recall over the classes that occur; a class without a sample is left out."""
    recalls = [value for value in recall(statistics) if value is not None]
    return sum(recalls) / len(recalls) if recalls else None


def recall(statistics: Statistics) -> list[float | None]:
    """Right predictions per class over its samples (or pixels); None for a class without any."""
    return [row[index] / sum(row) if sum(row) else None for index, row in enumerate(statistics.confusion)]


def accuracy(statistics: Statistics) -> float | None:
    """Right predictions over all samples (or pixels)."""
    total = sum(map(sum, statistics.confusion))
    right = sum(row[index] for index, row in enumerate(statistics.confusion))
    return right / total if total else None


def calibration_error(statistics: Statistics) -> float | None:
    """Expected calibration error: sum over bins of |right - confidence| over all samples (or pixels)."""
    total = sum(statistics.calibration_count)
    gaps = (
        abs(right - confidence)
        for right, confidence in zip(
            statistics.calibration_correct, statistics.calibration_confidence, strict=True
        )
    )
    return sum(gaps) / total if total else None


def dice(statistics: Statistics) -> float | None:
    """Mean over regions of the mean Dice of the images that have one."""
    return _over_regions(statistics, "dice")


def hd95(statistics: Statistics) -> float | None:
    """The same of the images' HD95, in pixels."""
    return _over_regions(statistics, "hd95")


def of_region(statistics: Statistics, score: str, name: str) -> float | None:
    """Mean `dice` or `hd95` of the images that show the region; None where none does."""
    region = statistics.regions.get(name)
    return getattr(region, score) / region.count if region is not None and region.count else None


def _over_regions(statistics: Statistics, score: str) -> float | None:
    means = [of_region(statistics, score, name) for name in statistics.regions]
    known = [mean for mean in means if mean is not None]
    return sum(known) / len(known) if known else None


def dice_by_class(statistics: Statistics) -> list[float | None]:
    """Mean Dice of the images that have one, for each class."""
    return [
        total / count if count else None
        for total, count in zip(statistics.dice, statistics.dice_count, strict=True)
    ]


Figure = Callable[[Statistics], float | None]

FIGURES: dict[str, dict[str, Figure]] = {
    "classification": {
        "balanced_accuracy": balanced_accuracy,
        "accuracy": accuracy,
        "calibration_error": calibration_error,
    },
    "segmentation": {"dice": dice, "hd95": hd95, "accuracy": accuracy, "calibration_error": calibration_error},
}
"""The figures of each task; the first is the one that runs are judged by."""

FALLING = ("hd95", "calibration_error")
"""Beginnings of names of figures that are the better the lower they are."""

SHOWN = {"classification": ("balanced_accuracy", "roc_auc"), "segmentation": ("dice", "hd95")}
"""The figures of each task that tables on the screen have, where they are known."""


def primary_metric(task: str) -> str:
    """The name of the figure that runs of a task are judged by."""
    return next(iter(FIGURES[task]))


def lower_is_better(metric: str) -> bool:
    """Whether a figure is an error or a distance.

    >>> lower_is_better("hd95_cup"), lower_is_better("dice")
    (True, False)
    """
    return metric.startswith(FALLING)


def metrics(task: str, by_site: Mapping[str, Statistics | None]) -> dict[str, dict[str, object]]:
    """Every figure per site, as the mean over sites, and pooled over all sites' test samples.

    With more than one region, Dice and HD95 of each stand beside their means, as `dice_NAME` and `hd95_NAME`.
    """
    tested = {site: statistics for site, statistics in by_site.items() if statistics is not None}
    pooled = pool(tested)
    result: dict[str, dict[str, object]] = {}
    for name, figure in {**FIGURES[task], **_region_figures(pooled)}.items():
        sites = {site: figure(tested[site]) if site in tested else None for site in by_site}
        known = [value for value in sites.values() if value is not None]
        result[name] = {
            "mean": sum(known) / len(known) if known else None,
            "pooled": figure(pooled) if pooled is not None else None,
            "sites": sites,
        }
    return result


def _region_figures(pooled: Statistics | None) -> dict[str, Figure]:
    names = list(pooled.regions) if pooled is not None else []
    if len(names) < 2:
        return {}
    return {
        f"{score}_{name}": partial(of_region, score=score, name=name)
        for score in ("dice", "hd95")
        for name in names
    }


def diagnostics(task: str, by_site: Mapping[str, Statistics | None]) -> dict[str, object]:
    """What to watch in an evidential model: means over all test samples, and over each site's."""
    tested = {site: statistics for site, statistics in by_site.items() if statistics is not None}
    pooled = pool(tested)
    if pooled is None:
        return {}
    overall = _evidence(pooled)
    overall["recall"] = recall(pooled)
    if task == "segmentation":
        overall["dice_by_class"] = dice_by_class(pooled)
    return {**overall, "sites": {site: _evidence(statistics) for site, statistics in tested.items()}}


def _evidence(statistics: Statistics) -> dict[str, object]:
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


def pool(by_site: Mapping[str, Statistics]) -> Statistics | None:
    """All sites' statistics as one, added in the order of site names; None without any."""
    total: Statistics | None = None
    for site in sorted(by_site):
        total = by_site[site] if total is None else total + by_site[site]
    return total
