"""Where samples lie, and whether two sets of them lie in the same place."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Comparison(NamedTuple):
    """Two-sample Kolmogorov-Smirnov test: the largest distance of both distribution functions, and its p-value."""

    statistic: float
    p: float


def scott_bandwidth(samples: Floats) -> float:
    """Scott's rule for a kernel density: s n^(-1/5), s the standard deviation; 0 where that is 0 or n is 1."""
    return float(samples.std(ddof=1) * len(samples) ** -0.2) if len(samples) > 1 else 0.0


def kernel_density(samples: Floats, at: Floats, *, bandwidth: float) -> Floats:
    """The mean of normal densities of that standard deviation around the samples; it integrates to one.

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


def densities(
    samples: Mapping[str, Floats], *, points: int = 160, narrowest: float = 0.0
) -> tuple[Floats, dict[str, Floats]]:
    """Places common to all, and the kernel density of each set of samples there.

    The bandwidth is Scott's, but at least `narrowest`, and wide enough to be drawn in so many points.

    >>> places, found = densities({"a": np.zeros(5), "b": np.ones(5)})
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


def from_histogram(counts: Sequence[int], *, low: float, high: float) -> Floats:
    """Samples at the middle of the bins, as many as were counted.

    >>> from_histogram([0, 2, 1], low=0.0, high=3.0).tolist()
    [1.5, 1.5, 2.5]
    """
    width = (high - low) / len(counts)
    return np.repeat(low + (np.arange(len(counts)) + 0.5) * width, counts)


def compare_pairs(samples: Mapping[str, Floats]) -> dict[tuple[str, str], Comparison]:
    """The two-sample Kolmogorov-Smirnov test (two-sided, scipy's) of every pair of names, each once.

    Samples with ties, such as those of a histogram, give p-values that are too large rather than too small.
    """
    return {
        (one, other): _compare(samples[one], samples[other]) for one, other in combinations(sorted(samples), 2)
    }


def _compare(one: Floats, other: Floats) -> Comparison:
    from scipy.stats import ks_2samp

    with warnings.catch_warnings():
        # Where counting paths is not exact enough, scipy takes the asymptotic p-value and says so.
        warnings.filterwarnings("ignore", message="ks_2samp: Exact", category=RuntimeWarning)
        result = ks_2samp(one, other)
    return Comparison(float(result.statistic), float(result.pvalue))
