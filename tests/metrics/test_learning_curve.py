"""Predicted gains: formulas written out, and how often intervals cover the truth on simulated curves."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from feal.metrics.learning_curve import SHAPES, STOP_CONFIDENCE, predict_gain, sampling_error

Curve = Callable[[np.ndarray], np.ndarray]
LABELS = [12.0, 24.0, 36.0, 48.0, 60.0, 72.0]


def _brute_force(rounds: int, values: list[float], shape: float, level: float) -> tuple[float, float, float]:
    """The gain and its interval from the normal equations: c beta +- t sqrt(s^2 c (X'X)^-1 c')."""
    at = np.array([*LABELS[:rounds], 12.0 * (rounds + 1)])
    at = np.log(at) if shape == 0 else -(at**-shape)
    design = np.column_stack([np.ones(rounds), at[:-1]])
    inverse = np.linalg.inv(design.T @ design)
    beta = inverse @ design.T @ np.array(values)
    residuals = np.array(values) - design @ beta
    contrast = np.array([0.0, at[-1] - at[-2]])
    error = np.sqrt(residuals @ residuals / (rounds - 2) * contrast @ inverse @ contrast)
    half = stats.t.ppf(level, rounds - 2) * error
    return contrast @ beta, contrast @ beta - half, contrast @ beta + half


@pytest.mark.parametrize("values", [[0.5, 0.61, 0.65], [0.3, 0.5, 0.45]])
def test_three_rounds_allow_every_shape(values: list[float]) -> None:
    forecast = predict_gain(LABELS[:3], values, 48)
    fits = [_brute_force(3, values, shape, 0.975) for shape in SHAPES]
    assert forecast.low == pytest.approx(min(low for _, low, _ in fits))
    assert forecast.high == pytest.approx(max(high for _, _, high in fits))
    bounds = [_brute_force(3, values, shape, STOP_CONFIDENCE)[2] for shape in SHAPES]
    assert forecast.bound == pytest.approx(max(bounds))
    assert any(forecast.gain == pytest.approx(gain) for gain, _, _ in fits)


def test_many_rounds_tell_the_shape() -> None:
    values = [0.9 - 5 / n + 1e-4 * (-1) ** at for at, n in enumerate(LABELS)]
    forecast = predict_gain(LABELS, values, 84)
    expected = _brute_force(6, values, 1.0, 0.975)
    assert (forecast.gain, forecast.low, forecast.high) == pytest.approx(expected)
    assert forecast.low < 5 / 72 - 5 / 84 < forecast.high


def test_the_noise_of_a_value_keeps_a_flat_curve_uncertain() -> None:
    flat = predict_gain(LABELS[:3], [0.2, 0.2, 0.2], 48)
    assert (flat.gain, flat.low, flat.high, flat.bound) == pytest.approx((0, 0, 0, 0))
    noisy = predict_gain(LABELS[:3], [0.2, 0.2, 0.2], 48, noise=0.03)
    at = np.log(LABELS[:3])
    error = 0.03 * np.log(48 / 36) / np.sqrt(((at - at.mean()) ** 2).sum())
    assert noisy.high == pytest.approx(1.959964 * error, rel=1e-5)
    assert noisy.low == pytest.approx(-noisy.high)
    assert noisy.bound == pytest.approx(stats.norm.ppf(STOP_CONFIDENCE) * error)


@pytest.mark.parametrize(
    "curve",
    [
        pytest.param(lambda n: 0.3 + 0.08 * np.log(n), id="logarithm"),
        pytest.param(lambda n: 0.9 - 1.2 * n**-0.5, id="square root"),
        pytest.param(lambda n: 0.85 - 4 / n, id="inverse"),
        pytest.param(lambda n: 0.6 + 0 * n, id="flat"),
    ],
)
@pytest.mark.parametrize("rounds", [3, 4, 5, 8, 12])
def test_intervals_cover_the_true_gain(curve: Curve, rounds: int) -> None:
    generator = np.random.default_rng(rounds)
    labels = 12.0 * np.arange(1, rounds + 2)
    true = float(curve(labels)[-1] - curve(labels)[-2])
    runs = 500
    forecasts = [
        predict_gain(labels[:-1], curve(labels[:-1]) + generator.normal(0, 0.015, rounds), labels[-1])
        for _ in range(runs)
    ]
    assert np.mean([one.low <= true <= one.high for one in forecasts]) > 0.915
    assert np.mean([true < one.bound for one in forecasts]) > STOP_CONFIDENCE - 0.06


def test_a_curve_that_flattens_faster_is_stopped_late_not_early() -> None:
    generator = np.random.default_rng(0)
    labels = 12.0 * np.arange(1, 10)
    curve = 0.85 - 0.5 * np.exp(-labels / 30)
    true = curve[-1] - curve[-2]
    bounds = [
        predict_gain(labels[:-1], curve[:-1] + generator.normal(0, 0.015, 8), labels[-1]).bound for _ in range(200)
    ]
    assert np.mean(np.array(bounds) > true) > 0.95


def test_a_sampling_error_is_binomial() -> None:
    generator = np.random.default_rng(0)
    drawn = (generator.binomial(200, 0.7, 20_000) / 200 + generator.binomial(50, 0.4, 20_000) / 50) / 2
    assert sampling_error([(0.7, 200), (0.4, 50)]) == pytest.approx(drawn.std(), rel=0.02)
    assert 0 < sampling_error([(1.0, 20)]) < 0.06
    assert sampling_error([]) == 0


@pytest.mark.parametrize(
    ("labels", "values", "ahead"),
    [
        ([1, 2], [0.1, 0.2], 3),
        ([1, 2, 2], [0.1, 0.2, 0.3], 3),
        ([1, 2, 3], [0.1, 0.2, 0.3], 3),
        ([0, 2, 3], [0.1, 0.2, 0.3], 4),
        ([1, 2, 3], [0.1, float("nan"), 0.3], 4),
        ([1, 2, 3], [0.1, 0.3], 4),
    ],
)
def test_what_is_no_curve(labels: list[float], values: list[float], ahead: float) -> None:
    with pytest.raises(ValueError, match="rounds|labels"):
        predict_gain(labels, values, ahead)
