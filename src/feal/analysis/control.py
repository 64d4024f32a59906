"""Estimate from inside one run how much one way of selecting brings over another: labels of both arms, refitted.

A run that selects most labels by one strategy (arm 0) and the others by a second one, such as at random (arm 1),
holds its own control group. What the labels of an arm are worth is what the model loses without them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Indices = NDArray[np.int64]
Array = NDArray[Any]
Fit = Callable[[Array, Array], Callable[[Array], Array]]
"""Train on features and labels; return what predicts labels for features. Some refits may lack a class."""
MetricOf = Callable[[Array, Array], float]
"""Compute a metric, the larger the better, of true labels and predicted ones."""

MAX_SHARE = 4
"""At most one of so many selected labels is left out, as the effect of few labels is nearly linear."""
SUBSETS = 30
"""Subsets that the estimate itself is averaged over."""
SUBSETS_OF_REPLICATE = 6
"""The same in each replicate, where their noise makes the interval a little wider."""


@dataclass(frozen=True, kw_only=True)
class GainEstimate:
    """The gain in a metric of selecting all labels as arm 0 over all as arm 1, with its 95 % interval."""

    gain: float
    low: float
    high: float
    replicates: int


def compare_arms(
    features: ArrayLike,
    labels: ArrayLike,
    arm: ArrayLike,
    test_features: ArrayLike,
    test_labels: ArrayLike,
    fit: Fit,
    metric: MetricOf,
    *,
    replicates: int = 50,
    generator: np.random.Generator,
) -> GainEstimate:
    """Estimate the difference in a metric between a run of arm 0 only and one of arm 1 only, from a mixed run.

    One model is fitted without k labels of arm 1, another without k of arm 0; the difference of their metrics on
    the test samples, averaged over random subsets of k labels, is the gain of k labels by arm 0 in the place of k
    by arm 1. The gain of a whole run is extrapolated from it: all B selected labels in the place of k, on a curve
    that is logarithmic in the n labels (the refits have n - k): gain = difference * B / k * (n - k) / n.

    The interval is from a bootstrap that draws the labels of each arm and the test samples (within classes) with
    replacement: it covers the chance of which samples an arm selected, and that of the test samples. The
    difference between two runs also has their own chance: the deviation of a model's metric if all selected labels
    are drawn with replacement is added for both. See `estimate_gain` for its form.

    Assumption: an exchanged label brings the same in a run of one arm only as in this mixed run, apart from the
    curve's slope. In truth exchanged labels bring less the more of their arm there are. With 80 % of the labels in
    arm 0 the estimate is therefore too small for a strategy that is better, in simulations by up to two thirds,
    and too negative for one that is worse. The interval does not allow for that by itself, but is wide: it covered
    the mean difference between pairs of simulated runs in 97 to 100 % of cases, and that of a single pair in 87 to
    100 %.

    Shapes: features [n, ...], labels and arm [n], test_features [m, ...], test_labels [m]. Labels with another arm
    than 0 and 1, such as NaN, came before any selection and are never left out.
    Errors: ValueError for fewer than two labels of an arm, arrays that do not fit, fewer than two replicates, or a
    metric that is not finite.
    """
    trained, known, arms = np.asarray(features), np.asarray(labels), np.asarray(arm, dtype=float)
    tested, true = np.asarray(test_features), np.asarray(test_labels)
    first, second = np.flatnonzero(arms == 0), np.flatnonzero(arms == 1)
    other = np.flatnonzero((arms != 0) & (arms != 1))
    if not len(trained) == len(known) == len(arms) or len(tested) != len(true) or not len(true):
        raise ValueError("features, labels and arms must be of the same samples, and there must be test samples")
    smaller, selected = min(len(first), len(second)), len(first) + len(second)
    if smaller < 2 or replicates < 2:
        raise ValueError("at least two labels of each arm and two replicates are needed")
    left_out = min(smaller - 1, max(1, selected // MAX_SHARE))

    def difference(one: Indices, two: Indices, test: Indices, subsets: int) -> float:
        """Return the mean difference without `left_out` labels of arm 1 and without as many of arm 0."""
        differences = []
        for _ in range(subsets):
            scores = []
            for kept in (
                [other, one, generator.permutation(two)[left_out:]],
                [other, generator.permutation(one)[left_out:], two],
            ):
                rows = np.concatenate(kept)
                scores.append(float(metric(true[test], fit(trained[rows], known[rows])(tested[test]))))
            differences.append(scores[0] - scores[1])
        return float(np.mean(differences))

    classes = [np.flatnonzero(true == value) for value in np.unique(true)]
    everything = np.arange(len(true))
    found = difference(first, second, everything, SUBSETS)
    drawn = [
        difference(
            generator.choice(first, len(first)),
            generator.choice(second, len(second)),
            np.concatenate([generator.choice(members, len(members)) for members in classes]),
            SUBSETS_OF_REPLICATE,
        )
        for _ in range(replicates)
    ]
    scores = []
    for _ in range(replicates):
        rows = np.concatenate([other, generator.choice(np.concatenate([first, second]), selected)])
        scores.append(float(metric(true, fit(trained[rows], known[rows])(tested))))
    scale = selected / left_out * (len(known) - left_out) / len(known)
    return estimate_gain(found, drawn, scale=scale, smaller=smaller, chance=float(np.std(scores, ddof=1)))


def estimate_gain(
    difference: float,
    replicates: Sequence[float],
    *,
    scale: float,
    smaller: int,
    chance: float = 0.0,
    level: float = 0.95,
) -> GainEstimate:
    """Return a gain and its interval from a difference and what it is in replicates of the bootstrap.

    The interval is symmetric about the gain: the replicates' standard deviation times Student's quantile. Few
    labels limit what a bootstrap can show: with m in the smaller arm it has m - 1 degrees of freedom, and its
    variance is m / (m - 1) times as large as the replicates'. To it the variance of both runs' metrics is added.

    Args:
        difference: of the metric, between the refits.
        replicates: the same in each replicate.
        scale: what the difference is multiplied by for the gain of a whole run.
        smaller: labels of the smaller arm.
        chance: standard deviation of a run's metric, if the gain is that of one pair of runs.
        level: of the interval.

    Errors: ValueError for fewer than two replicates or labels, or numbers that are not finite.

    >>> estimate = estimate_gain(0.01, [0.0, 0.01, 0.02], scale=5, smaller=10)
    >>> round(estimate.gain, 3), round(estimate.low, 3), round(estimate.high, 3)
    (0.05, -0.069, 0.169)
    """
    from scipy.special import stdtrit

    values = np.asarray(replicates, dtype=float)
    if len(values) < 2 or smaller < 2:
        raise ValueError("at least two replicates and two labels of each arm are needed")
    if not np.isfinite([difference, scale, chance, *values]).all():
        raise ValueError("the metric is not finite in some replicate: every class needs a test sample")
    freedom = smaller - 1
    deviation = float(values.std(ddof=1)) * math.sqrt(smaller / freedom)
    half = float(stdtrit(freedom, (1 + level) / 2)) * math.hypot(scale * deviation, math.sqrt(2) * chance)
    gain = scale * difference
    return GainEstimate(gain=gain, low=gain - half, high=gain + half, replicates=len(values))
