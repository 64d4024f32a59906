import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import dblquad
from scipy.stats import dirichlet, kstest

from feal.analysis.simplex import CORNERS, HEIGHT, among, log_density, positions, raster

ALPHAS = st.lists(st.floats(1.0, 1e6), min_size=3, max_size=3)


@settings(max_examples=60)
@given(ALPHAS, st.integers(0, 2**16))
def test_the_density_is_that_of_scipy(alpha: list[float], seed: int) -> None:
    points = np.random.default_rng(seed).dirichlet(np.ones(3), 5)
    expected = [dirichlet.logpdf(point, alpha) for point in points]
    assert log_density(alpha, points) == pytest.approx(expected, rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("alpha", [(1, 1, 1), (1, 1, 4), (3.5, 2, 1), (20, 1, 1), (9, 9, 9), (60, 30, 10)])
def test_a_density_integrates_to_one_over_the_triangle(alpha: tuple[float, ...]) -> None:
    volume, _ = dblquad(
        lambda q, p: math.exp(log_density(alpha, [p, q, max(0.0, 1 - p - q)])), 0, 1, 0, lambda p: 1 - p
    )
    assert volume == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("alpha", [(1e4, 2e4, 5e3), (1e7, 1e7, 3e7)])
def test_a_narrow_density_integrates_to_one_around_its_mean(alpha: tuple[float, ...]) -> None:
    total = sum(alpha)
    mean = np.array(alpha) / total
    width = 10 * np.sqrt(mean * (1 - mean) / total)
    p, q = (np.linspace(m - w, m + w, 801) for m, w in zip(mean[:2], width[:2], strict=True))
    grid = np.stack(np.meshgrid(p, q, indexing="ij"), axis=-1)
    density = np.exp(log_density(alpha, np.concatenate([grid, 1 - grid.sum(-1, keepdims=True)], axis=-1)))
    assert np.trapezoid(np.trapezoid(density, q), p) == pytest.approx(1, abs=1e-4)


def test_no_evidence_is_flat_and_huge_evidence_stays_finite() -> None:
    _, _, points = raster(40)
    assert np.exp(log_density([1, 1, 1], points)) == pytest.approx(2)
    assert np.isfinite(log_density([1e12, 1, 1e9], points)).all()
    assert log_density([2, 1, 1], [0.0, 0.5, 0.5]) == -np.inf
    with pytest.raises(ValueError, match="above 0"):
        log_density([1, 0, 1], points)


def test_three_classes_of_many_have_the_dirichlet_of_their_own_concentrations() -> None:
    alpha = np.array([[2.0, 7.0, 1.5, 4.0, 3.0]])
    drawn = np.random.default_rng(0).dirichlet(alpha[0], 20_000)[:, [3, 0, 4]]
    own = among(alpha, (3, 0, 4))
    assert own.tolist() == [[4.0, 2.0, 3.0]]
    shares = drawn / drawn.sum(1, keepdims=True)
    for column, one in enumerate(own[0]):
        assert kstest(shares[:, column], "beta", args=(one, own.sum() - one)).pvalue > 1e-3


def test_the_picture_of_the_triangle_knows_its_probabilities() -> None:
    x, y, points = raster(50)
    assert points.shape == (len(y), len(x), 3)
    assert points.sum(-1) == pytest.approx(1)
    assert (points > 0).all()
    assert 0 < y[0] < y[-1] < HEIGHT
    inner = (points > 0.05).all(-1)
    there = positions(points)
    places = np.stack(np.meshgrid(x, y), axis=-1)
    assert there[inner] == pytest.approx(places[inner])
    assert positions(np.eye(3)) == pytest.approx(CORNERS)
