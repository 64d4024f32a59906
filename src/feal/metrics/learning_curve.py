"""Predict from a run's learning curve what more labels would bring; pure functions of numbers."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MIN_ROUNDS = 3
"""Rounds that a prediction needs: two for the curve, and one for its error."""
SHAPES = (0.0, 0.5, 1.0)
"""Exponents c of the curves a - b * labels**-c; 0 is a + b * log(labels), the limit of small exponents."""
STOP_CONFIDENCE = 0.8
"""One-sided confidence of `Forecast.bound`, by which runs stop."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The expected gain in a metric by the next labels, its two-sided interval, and a one-sided bound."""

    gain: float
    low: float
    high: float
    bound: float
    """The gain is below it with a confidence of `STOP_CONFIDENCE`."""


def predict_gain(
    labels: Sequence[float],
    values: Sequence[float],
    next_labels: float,
    *,
    confidence: float = 0.95,
    noise: float = 0.0,
) -> Forecast:
    """Predict how much a metric grows from the last number of labels to the next one.

    Curves of a few shapes (`SHAPES`: a logarithm, which never ends, and power laws with an asymptote) are fitted
    by least squares, every round with the same weight, as all are evaluated on the same test samples. The gain is
    that of the curve that fits best, b * (g(next) - g(last)), not the difference of two noisy values. A shape's
    interval is Student's with rounds - 2 degrees of freedom: for three rounds that is one, and the interval is
    wide. As few rounds do not tell the shape either, the interval spans those of all shapes whose residuals are
    not significantly larger than the smallest (a t test with rounds - 3 degrees of freedom). A curve that flattens
    faster than all shapes is predicted to grow more than it does.

    Rounds can lie on a curve by chance, and a model that predicts one class for all samples has the same value in
    every round. So where the `noise` of a value is known, an interval is no narrower than the normal one with it.

    Args:
        labels: labels of each round, increasing.
        values: the metric of each round.
        next_labels: labels of the next round.
        confidence: of the two-sided interval.
        noise: standard error of a single value, such as `sampling_error`.

    Errors: ValueError for fewer than `MIN_ROUNDS` rounds, labels that do not increase, or numbers that are not
    finite.

    >>> forecast = predict_gain([10, 20, 30, 40], [0.50, 0.61, 0.66, 0.71], 50)
    >>> f"{forecast.gain:+.3f} [{forecast.low:+.3f}, {forecast.high:+.3f}]"
    '+0.033 [+0.006, +0.038]'
    """
    from scipy.special import ndtri, stdtrit

    counts, heights = np.asarray(labels, dtype=float), np.asarray(values, dtype=float)
    if counts.shape != heights.shape or counts.ndim != 1 or len(counts) < MIN_ROUNDS:
        raise ValueError(f"at least {MIN_ROUNDS} rounds with labels and a value each are needed")
    steps = np.diff([*counts, next_labels])
    if not (np.isfinite([*counts, *heights, next_labels]).all() and counts[0] > 0 and (steps > 0).all()):
        raise ValueError("labels must be positive and increase, and all numbers must be finite")
    fits = [_fit(counts, heights, next_labels, shape) for shape in SHAPES]
    best = min(fits, key=lambda fit: fit.residuals)

    quantile = (1 + confidence) / 2
    kept = [fit for fit in fits if fit.residuals <= _largest_residuals(best, len(counts), quantile, noise)]

    def bounds(quantile: float) -> tuple[float, float]:
        """Return the ends of the interval beyond each of which the gain lies with 1 - quantile at most."""
        student, normal = float(stdtrit(len(counts) - 2, quantile)), noise * float(ndtri(quantile))
        halves = [
            fit.leverage * max(student * math.sqrt(fit.residuals / (len(counts) - 2)), normal) for fit in kept
        ]
        return (
            min(fit.gain - half for fit, half in zip(kept, halves, strict=True)),
            max(fit.gain + half for fit, half in zip(kept, halves, strict=True)),
        )

    low, high = bounds(quantile)
    return Forecast(gain=best.gain, low=low, high=high, bound=bounds(STOP_CONFIDENCE)[1])


def sampling_error(shares: Iterable[tuple[float, int]]) -> float:
    """Return a standard error of the mean of shares, each of so many test samples; 0 without any.

    A share of n samples has the variance p (1 - p) / n, with p = (share * n + 1) / (n + 2) as no share is certain
    to be 0 or 1. For means of numbers between 0 and 1, such as Dice, that is the largest variance they can have.
    Rounds share their test samples, so that differences between them vary less: the error is a careful one.

    >>> round(sampling_error([(0.8, 100), (0.6, 25)]), 3)
    0.053
    """
    variances = []
    for share, samples in shares:
        p = (share * samples + 1) / (samples + 2)
        variances.append(p * (1 - p) / max(1, samples))
    return math.sqrt(sum(variances)) / len(variances) if variances else 0.0


class _Fit(NamedTuple):
    """A curve: its gain, the sum of its squared residuals, and the gain's error if the values' error were 1."""

    gain: float
    residuals: float
    leverage: float


def _fit(labels: NDArray[np.float64], values: NDArray[np.float64], next_labels: float, shape: float) -> _Fit:
    known = np.append(labels, next_labels)
    transformed = np.log(known) if shape == 0 else -(known**-shape)
    at, step = transformed[:-1], float(transformed[-1] - transformed[-2])
    centred = at - at.mean()
    spread = float(centred @ centred)
    slope = float(centred @ values) / spread
    residuals = values - values.mean() - slope * centred
    return _Fit(slope * step, float(residuals @ residuals), step / math.sqrt(spread))


def _largest_residuals(best: _Fit, rounds: int, quantile: float, noise: float) -> float:
    """Return the sum of squared residuals up to which a shape can be the true one."""
    from scipy.special import stdtrit

    freedom = rounds - 3
    if not freedom:
        return math.inf
    return best.residuals + float(stdtrit(freedom, quantile)) ** 2 * max(best.residuals / freedom, noise**2)
