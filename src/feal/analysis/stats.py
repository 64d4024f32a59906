"""Statistics over seeds and samples: intervals, differences, areas, densities; pure functions of arrays."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

FEW = 5
"""Below this number of pairs, all have the same sign by chance in more than one case of ten."""


def is_within_noise(
    mean: float, deviation: float, n: int, *, low: float, high: float, level: float = 0.95
) -> bool:
    """Return whether 0 lies in the bootstrap interval of a difference or, with few pairs, in Student's.

    Two pairs have the same sign in every other case, so a bootstrap interval of few pairs shows nothing by itself.
    A single pair is always noise.

    >>> is_within_noise(0.15, 0.07, 2, low=0.1, high=0.2), is_within_noise(0.15, 0.07, 9, low=0.1, high=0.2)
    (True, False)
    """
    if not (low > 0 or high < 0) or n < 2:
        return True
    if n >= FEW:
        return False
    least, most = student_interval(mean, deviation, n, level=level)
    return not (least > 0 or most < 0)


def mean_and_deviation(values: ArrayLike) -> tuple[Floats, Floats]:
    """Return mean and standard deviation (n - 1) over the first axis, the seeds; one seed has deviation NaN.

    Shapes: values [seeds, ...]; two of [...].
    Errors: ValueError without any seed.

    >>> mean_and_deviation([1.0, 2.0, 3.0])
    (array(2.), array(1.))
    """
    array = _seeds(values)
    mean = np.asarray(array.mean(axis=0))
    if len(array) == 1:
        return mean, np.full_like(mean, np.nan)
    return mean, np.asarray(array.std(axis=0, ddof=1))


def mean_interval(values: ArrayLike, *, level: float = 0.95) -> tuple[float, float]:
    """Return Student's t interval of the mean over seeds: mean ± t sd / sqrt(n), with n - 1 degrees of freedom.

    Shapes: values [seeds]; one seed has no spread, so NaN.
    Errors: ValueError without any seed.

    >>> low, high = mean_interval([0.4, 0.5, 0.6])
    >>> round(low, 3), round(high, 3)
    (0.252, 0.748)
    """
    array = _seeds(values)
    mean, deviation = mean_and_deviation(array)
    return student_interval(float(mean), float(deviation), len(array), level=level)


def student_interval(mean: float, deviation: float, n: int, *, level: float = 0.95) -> tuple[float, float]:
    """Return Student's t interval of a mean of n numbers by their standard deviation; NaN for a single one.

    >>> low, high = student_interval(0.5, 0.1, 3)
    >>> round(low, 3), round(high, 3)
    (0.252, 0.748)
    """
    from scipy.special import stdtrit

    half = float(stdtrit(n - 1, (1 + level) / 2)) * deviation / math.sqrt(n)
    return mean - half, mean + half


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A paired difference: its mean over the pairs, their standard deviation, and an interval of the mean."""

    mean: float
    deviation: float
    low: float
    high: float
    pairs: int
    level: float

    @property
    def is_noise(self) -> bool:
        """Return whether it is within the noise, see `is_within_noise`."""
        return is_within_noise(
            self.mean, self.deviation, self.pairs, low=self.low, high=self.high, level=self.level
        )


def paired_difference(
    values: ArrayLike, reference: ArrayLike, *, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Difference:
    """Return the mean of values - reference over paired seeds, with the bootstrap's percentile interval.

    Shapes: values and reference [pairs].
    Errors: ValueError for arrays of different length, without any pair, or with a number that is not finite.

    >>> difference = paired_difference([0.5, 0.6, 0.7], [0.4, 0.4, 0.4])
    >>> round(difference.mean, 3), round(difference.low, 3), round(difference.high, 3)
    (0.2, 0.1, 0.3)
    """
    one, other = _seeds(values), _seeds(reference)
    if one.shape != other.shape or one.ndim != 1:
        raise ValueError(f"pairs need two arrays of one length, got shapes {one.shape} and {other.shape}")
    apart = one - other
    if not np.isfinite(apart).all():
        raise ValueError("a difference of pairs is not finite: leave out runs without metrics")
    mean, deviation = mean_and_deviation(apart)
    low, high = _percentiles(apart, level=level, resamples=resamples, seed=seed)
    return Difference(
        mean=float(mean), deviation=float(deviation), low=low, high=high, pairs=len(apart), level=level
    )


def describe_difference(difference: Difference, *, arm: str, reference: str, lower_is_better: bool = False) -> str:
    """Return a difference as a sentence that says whether it is within the noise.

    If `lower_is_better`, it also says which side is the better one.

    >>> print(describe_difference(paired_difference([0.5, 0.6], [0.4, 0.4]), arm="feal", reference="random"))
    feal is 0.150 above random (95 % interval 0.100 to 0.200, 2 pairs): within the noise of so few seeds.
    """
    side = "above" if difference.mean >= 0 else "below"
    verdict = "worse" if side == "above" else "better"
    direction = f", which is {verdict}" if lower_is_better and difference.mean else ""
    start = f"{arm} is {abs(difference.mean):.3f} {side} {reference}{direction}"
    if difference.pairs < 2:
        return f"{start} (one pair): too few to tell from noise."
    interval = f"{100 * difference.level:.0f} % interval {difference.low:.3f} to {difference.high:.3f}"
    if difference.is_noise:
        verdict = f"within the noise of {'so few ' if difference.pairs < FEW else ''}seeds"
    elif difference.pairs < FEW:
        verdict = "beyond the noise (few pairs: weak evidence)"
    else:
        verdict = "beyond the noise of seeds"
    return f"{start} ({interval}, {difference.pairs} pairs): {verdict}."


def mean_after_first_round(values: ArrayLike) -> Floats:
    """Return the number by which runs are compared: the mean of rounds 2 to R.

    The first round is left out because its labels are the same in every arm.

    Shapes: values [..., rounds]; [...].
    Errors: ValueError for fewer than two rounds.

    >>> float(mean_after_first_round([0.1, 0.4, 0.6]))
    0.5
    """
    array = np.asarray(values, dtype=float)
    if array.ndim == 0 or array.shape[-1] < 2:
        raise ValueError("the mean from the second round on needs at least two rounds")
    return np.asarray(array[..., 1:].mean(axis=-1))


def area_under_curve(labels: ArrayLike, values: ArrayLike) -> Floats:
    """Return the curve's mean height over labels: the trapezoid area divided by the span of labels.

    Shapes: labels [rounds], not decreasing; values [..., rounds]; [...].
    Errors: ValueError for labels that decrease, or that span nothing.

    >>> float(area_under_curve([10, 20, 40], [0.0, 1.0, 1.0]))
    0.8333333333333334
    """
    along = _check_labels(labels)
    span = along[-1] - along[0]
    if span <= 0:
        raise ValueError("labels must grow from the first to the last round")
    return np.asarray(np.trapezoid(np.asarray(values, dtype=float), along, axis=-1) / span)


def labels_to_reach(labels: ArrayLike, values: ArrayLike, level: float) -> float:
    """Return the labels at which a curve first reaches `level`, linear between rounds; NaN if it never does.

    Shapes: labels and values [rounds].
    Errors: ValueError for labels that decrease, or arrays of different length.

    >>> labels_to_reach([10, 20, 30], [0.2, 0.4, 0.5], 0.3)
    15.0
    """
    along, height = _check_labels(labels), np.asarray(values, dtype=float)
    if along.shape != height.shape:
        raise ValueError(f"labels and values differ in length: {along.shape} and {height.shape}")
    reached = np.flatnonzero(height >= level)
    if not len(reached):
        return float("nan")
    last = int(reached[0])
    if last == 0:
        return float(along[0])
    share = (level - height[last - 1]) / (height[last] - height[last - 1])
    return float(along[last - 1] + share * (along[last] - along[last - 1]))


def _percentiles(values: Floats, *, level: float, resamples: int, seed: int) -> tuple[float, float]:
    """Return quantiles of the means of resamples; NaN for a single value, which has no spread."""
    if len(values) < 2:
        return float("nan"), float("nan")
    drawn = np.random.default_rng(seed).integers(0, len(values), (resamples, len(values)))
    tail = (1 - level) / 2
    low, high = np.quantile(values[drawn].mean(axis=1), (tail, 1 - tail))
    return float(low), float(high)


def _seeds(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=float)
    if array.ndim == 0 or len(array) == 0:
        raise ValueError("values of at least one seed are needed")
    return array


def _check_labels(labels: ArrayLike) -> Floats:
    along = np.asarray(labels, dtype=float)
    if along.ndim != 1 or len(along) == 0 or (np.diff(along) < 0).any():
        raise ValueError("labels must be one number per round and must not decrease")
    return along


class KSTest(NamedTuple):
    """Two-sample Kolmogorov-Smirnov test: the largest distance of the distribution functions, and its p-value."""

    statistic: float
    p: float


def scott_bandwidth(samples: Floats) -> float:
    """Return Scott's bandwidth s n^(-1/5), s the standard deviation; 0 where that is 0 or n is 1."""
    return float(samples.std(ddof=1) * len(samples) ** -0.2) if len(samples) > 1 else 0.0


def kernel_density(samples: Floats, at: Floats, *, bandwidth: float) -> Floats:
    """Return the mean of normal densities with that standard deviation around the samples.

    Shapes: samples [n], at [m]; the result is [m].
    Errors: ValueError for a bandwidth that is not above 0, or no samples.

    >>> kernel_density(np.array([0.0]), np.array([0.0]), bandwidth=1.0).round(4).tolist()
    [0.3989]
    """
    if bandwidth <= 0 or not len(samples):
        raise ValueError("a kernel density takes a bandwidth above 0 and a sample")
    distance = (at[:, None] - samples[None, :]) / bandwidth
    density: Floats = np.exp(-0.5 * distance**2).mean(1) / (bandwidth * math.sqrt(2 * math.pi))
    return density


def kernel_densities(
    samples: Mapping[str, Floats], *, points: int = 160, narrowest: float = 0.0
) -> tuple[Floats, dict[str, Floats]]:
    """Return places common to all, and the kernel density of each set of samples there.

    The bandwidth is Scott's, but at least `narrowest`, and wide enough to be drawn in so many points.

    >>> places, found = kernel_densities({"a": np.zeros(5), "b": np.ones(5)})
    >>> round(float(np.trapezoid(found["a"], places)), 3)
    1.0
    """
    low, high = min(map(np.min, samples.values())), max(map(np.max, samples.values()))
    narrowest = max(narrowest, (float(high - low) or 1.0) * 5 / points)
    widths = {name: max(scott_bandwidth(values), narrowest) for name, values in samples.items()}
    margin = 4 * max(widths.values())
    places = np.linspace(low - margin, high + margin, points)
    return places, {
        name: kernel_density(values, places, bandwidth=widths[name]) for name, values in samples.items()
    }


def expand_histogram(counts: Sequence[int], *, low: float, high: float) -> Floats:
    """Return samples at the centres of the bins, as many as were counted.

    >>> expand_histogram([0, 2, 1], low=0.0, high=3.0).tolist()
    [1.5, 1.5, 2.5]
    """
    width = (high - low) / len(counts)
    return np.repeat(low + (np.arange(len(counts)) + 0.5) * width, counts)


def ks_tests(samples: Mapping[str, Floats]) -> dict[tuple[str, str], KSTest]:
    """Return the two-sided two-sample Kolmogorov-Smirnov test of every pair of names, each once.

    Samples with ties, such as those of a histogram, give p-values that are too large rather than too small.
    """
    return {
        (one, other): _ks_test(samples[one], samples[other]) for one, other in combinations(sorted(samples), 2)
    }


def _ks_test(one: Floats, other: Floats) -> KSTest:
    from scipy.stats import ks_2samp

    with warnings.catch_warnings():
        # Where the exact p-value cannot be computed, scipy warns and returns the asymptotic one.
        warnings.filterwarnings("ignore", message="ks_2samp: Exact", category=RuntimeWarning)
        result = ks_2samp(one, other)
    return KSTest(float(result.statistic), float(result.pvalue))
