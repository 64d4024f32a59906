"""What figures of several seeds come to: pure functions of arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

FEW = 5
"""Pairs below which all lie on one side by chance in more than one case of ten; a bootstrap knows no better."""


def is_noise(mean: float, deviation: float, n: int, *, low: float, high: float, level: float = 0.95) -> bool:
    """Whether 0 lies in the bootstrap's interval of a difference or, of few pairs, in Student's.

    Two pairs lie on one side every other time: there the bootstrap's interval says nothing by itself. A single
    pair tells nothing apart from noise.

    >>> is_noise(0.15, 0.07, 2, low=0.1, high=0.2), is_noise(0.15, 0.07, 9, low=0.1, high=0.2)
    (True, False)
    """
    if not (low > 0 or high < 0) or n < 2:
        return True
    if n >= FEW:
        return False
    least, most = student_interval(mean, deviation, n, level=level)
    return not (least > 0 or most < 0)


def mean_and_deviation(values: ArrayLike) -> tuple[Floats, Floats]:
    """Mean and standard deviation (n - 1) over the first axis, the seeds; the deviation of a single one is NaN.

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
    """Student's t interval of the mean over seeds: mean ± t sd / sqrt(n), with n - 1 degrees of freedom.

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
    """Student's t interval of a mean by the deviation of the n numbers that it is of; NaN for a single one.

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
    def within_noise(self) -> bool:
        """See `is_noise`."""
        return is_noise(self.mean, self.deviation, self.pairs, low=self.low, high=self.high, level=self.level)


def paired_difference(
    values: ArrayLike, reference: ArrayLike, *, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Difference:
    """Mean of values - reference over paired seeds, with the bootstrap's percentile interval over pairs.

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
        raise ValueError("a difference of pairs is not finite: leave runs without figures out")
    mean, deviation = mean_and_deviation(apart)
    low, high = _percentiles(apart, level=level, resamples=resamples, seed=seed)
    return Difference(
        mean=float(mean), deviation=float(deviation), low=low, high=high, pairs=len(apart), level=level
    )


def in_words(difference: Difference, *, arm: str, reference: str, falling: bool = False) -> str:
    """A difference as a plain sentence that says whether it lies within the noise.

    Of a `falling` figure, such as a distance, it says which side is the better one.

    >>> print(in_words(paired_difference([0.5, 0.6], [0.4, 0.4]), arm="feal", reference="random"))
    feal is 0.150 above random (95 % interval 0.100 to 0.200, 2 pairs): within the noise of so few seeds.
    """
    side = "above" if difference.mean >= 0 else "below"
    better = f", which is {'worse' if side == 'above' else 'better'}" if falling and difference.mean else ""
    start = f"{arm} is {abs(difference.mean):.3f} {side} {reference}{better}"
    if difference.pairs < 2:
        return f"{start} (one pair): whether that is noise cannot be said."
    interval = f"{100 * difference.level:.0f} % interval {difference.low:.3f} to {difference.high:.3f}"
    if difference.within_noise:
        verdict = f"within the noise of {'so few ' if difference.pairs < FEW else ''}seeds"
    elif difference.pairs < FEW:
        verdict = "more than the noise, as far as they tell"
    else:
        verdict = "more than the noise of seeds"
    return f"{start} ({interval}, {difference.pairs} pairs): {verdict}."


def outcome(values: ArrayLike) -> Floats:
    """The figure runs are compared by: the mean of rounds 2 to R, as the first has the same labels in every arm.

    Shapes: values [..., rounds]; [...].
    Errors: ValueError for fewer than two rounds.

    >>> float(outcome([0.1, 0.4, 0.6]))
    0.5
    """
    array = np.asarray(values, dtype=float)
    if array.ndim == 0 or array.shape[-1] < 2:
        raise ValueError("the outcome is the mean from the second round on: there must be two rounds at least")
    return np.asarray(array[..., 1:].mean(axis=-1))


def area_under_curve(labels: ArrayLike, values: ArrayLike) -> Floats:
    """The curve's mean height over labels: the trapezoid area divided by the span, in the figure's own unit.

    Shapes: labels [rounds], not falling; values [..., rounds]; [...].
    Errors: ValueError for labels that fall, or that span nothing.

    >>> float(area_under_curve([10, 20, 40], [0.0, 1.0, 1.0]))
    0.8333333333333334
    """
    along = _not_falling(labels)
    span = along[-1] - along[0]
    if span <= 0:
        raise ValueError("labels must grow from the first to the last round for there to be an area")
    return np.asarray(np.trapezoid(np.asarray(values, dtype=float), along, axis=-1) / span)


def labels_to_reach(labels: ArrayLike, values: ArrayLike, level: float) -> float:
    """Labels at which a curve is at `level` for the first time, linear between rounds; NaN if it never is.

    Shapes: labels and values [rounds].
    Errors: ValueError for labels that fall, or arrays of different length.

    >>> labels_to_reach([10, 20, 30], [0.2, 0.4, 0.5], 0.3)
    15.0
    """
    along, height = _not_falling(labels), np.asarray(values, dtype=float)
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
    """Quantiles of the means of resamples; one value alone has no spread to draw from, so NaN."""
    if len(values) < 2:
        return float("nan"), float("nan")
    drawn = np.random.default_rng(seed).integers(0, len(values), (resamples, len(values)))
    tail = (1 - level) / 2
    low, high = np.quantile(values[drawn].mean(axis=1), (tail, 1 - tail))
    return float(low), float(high)


def _seeds(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=float)
    if array.ndim == 0 or len(array) == 0:
        raise ValueError("figures of at least one seed are needed")
    return array


def _not_falling(labels: ArrayLike) -> Floats:
    along = np.asarray(labels, dtype=float)
    if along.ndim != 1 or len(along) == 0 or (np.diff(along) < 0).any():
        raise ValueError("labels must be one number a round that does not fall")
    return along
