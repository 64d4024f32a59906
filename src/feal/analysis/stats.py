"""Statistics over seeds and samples: intervals, differences, areas, densities; pure functions of arrays."""

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
POINTS = 160
"""Of a density."""


def mean_and_deviation(values: ArrayLike) -> tuple[Floats, Floats]:
    """Return mean and standard deviation (n - 1) over the first axis, the seeds; one seed has deviation NaN.

    Shapes: values [seeds, ...]; two of [...].
    Errors: ValueError without any seed.

    >>> mean_and_deviation([1.0, 2.0, 3.0])
    (array(2.), array(1.))
    """
    array = np.asarray(values, dtype=float)
    if array.ndim == 0 or len(array) == 0:
        raise ValueError("values of at least one seed are needed")
    mean = np.asarray(array.mean(axis=0))
    if len(array) == 1:
        return mean, np.full_like(mean, np.nan)
    return mean, np.asarray(array.std(axis=0, ddof=1))


def student_interval(mean: float, deviation: float, n: int, *, level: float = 0.95) -> tuple[float, float]:
    """Return Student's t interval of a mean of n numbers: mean ± t sd / sqrt(n); NaN for a single one.

    >>> low, high = student_interval(0.5, 0.1, 3)
    >>> round(low, 3), round(high, 3)
    (0.252, 0.748)
    """
    from scipy.special import stdtrit

    half = float(stdtrit(n - 1, (1 + level) / 2)) * deviation / math.sqrt(n)
    return mean - half, mean + half


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A paired difference: its mean over the pairs, their standard deviation, and the mean's 95 % interval."""

    mean: float
    deviation: float
    low: float
    high: float
    pairs: int

    @property
    def is_noise(self) -> bool:
        """Return whether 0 lies in the bootstrap interval or, with few pairs, in Student's.

        Two pairs have the same sign in every other case, so a bootstrap interval of few pairs shows nothing by
        itself. A single pair is always noise.
        """
        if self.pairs < 2 or not (self.low > 0 or self.high < 0):
            return True
        low, high = student_interval(self.mean, self.deviation, self.pairs)
        return self.pairs < FEW and not (low > 0 or high < 0)


def paired_difference(values: ArrayLike, reference: ArrayLike, *, resamples: int = 10_000) -> Difference:
    """Return the mean of values - reference over paired seeds, with the bootstrap's percentile interval.

    Shapes: values and reference [pairs]; a single pair has no spread, so its interval is NaN.
    Errors: ValueError for arrays of different length, without any pair, or with a number that is not finite.

    >>> difference = paired_difference([0.5, 0.6, 0.7], [0.4, 0.4, 0.4])
    >>> round(difference.mean, 3), round(difference.low, 3), round(difference.high, 3)
    (0.2, 0.1, 0.3)
    """
    one, other = np.asarray(values, dtype=float), np.asarray(reference, dtype=float)
    if one.shape != other.shape or one.ndim != 1:
        raise ValueError(f"pairs need two arrays of one length, got shapes {one.shape} and {other.shape}")
    apart = one - other
    if not np.isfinite(apart).all():
        raise ValueError("a difference of pairs is not finite: leave out runs without metrics")
    mean, deviation = mean_and_deviation(apart)
    n, low, high = len(apart), math.nan, math.nan
    if n > 1:
        # The same numbers as scipy.stats.bootstrap, whose import takes longer than all of this.
        drawn = np.random.default_rng(0).integers(0, n, (resamples, n))
        low, high = np.quantile(apart[drawn].mean(axis=1), (0.025, 0.975)).tolist()
    return Difference(mean=float(mean), deviation=float(deviation), low=low, high=high, pairs=n)


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


def _check_labels(labels: ArrayLike) -> Floats:
    along = np.asarray(labels, dtype=float)
    if along.ndim != 1 or len(along) == 0 or (np.diff(along) < 0).any():
        raise ValueError("labels must be one number per round and must not decrease")
    return along


class KSTest(NamedTuple):
    """Two-sample Kolmogorov-Smirnov test: the largest distance of the distribution functions, and its p-value."""

    statistic: float
    p: float


def kernel_densities(samples: Mapping[str, Floats], *, narrowest: float = 0.0) -> tuple[Floats, dict[str, Floats]]:
    """Return `POINTS` places common to all, and there the mean of normal densities around each set of samples.

    The bandwidth is Scott's s n^(-1/5), s the standard deviation, but at least `narrowest`, and wide enough to be
    drawn in so many points.

    >>> places, found = kernel_densities({"a": np.zeros(5), "b": np.ones(5)})
    >>> round(float(np.trapezoid(found["a"], places)), 3)
    1.0
    """
    low, high = min(map(np.min, samples.values())), max(map(np.max, samples.values()))
    narrowest = max(narrowest, (float(high - low) or 1.0) * 5 / POINTS)
    widths = {
        name: max(narrowest, values.std(ddof=1) * len(values) ** -0.2 if len(values) > 1 else 0.0)
        for name, values in samples.items()
    }
    margin = 4 * max(widths.values())
    places = np.linspace(low - margin, high + margin, POINTS)
    densities = {}
    for name, values in samples.items():
        distance = (places[:, None] - values) / widths[name]
        densities[name] = np.exp(-0.5 * distance**2).mean(1) / (widths[name] * math.sqrt(2 * math.pi))
    return places, densities


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
    from scipy.stats import ks_2samp

    pairs = list(combinations(sorted(samples), 2))
    with warnings.catch_warnings():
        # Where the exact p-value cannot be computed, scipy warns and returns the asymptotic one.
        warnings.filterwarnings("ignore", message="ks_2samp: Exact", category=RuntimeWarning)
        results = [ks_2samp(samples[one], samples[other]) for one, other in pairs]
    tests = (KSTest(float(result.statistic), float(result.pvalue)) for result in results)
    return dict(zip(pairs, tests, strict=True))
