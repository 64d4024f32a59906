import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import gaussian_kde, ks_2samp

from feal.analysis.density import compare_pairs, densities, from_histogram, kernel_density, scott_bandwidth

SEEDS = st.integers(0, 2**16)


@settings(max_examples=30)
@given(SEEDS, st.integers(2, 60))
def test_a_kernel_density_is_that_of_scipy(seed: int, samples: int) -> None:
    values = np.random.default_rng(seed).normal(-4, 2, samples)
    at = np.linspace(-12, 4, 33)
    found = kernel_density(values, at, bandwidth=scott_bandwidth(values))
    assert found == pytest.approx(gaussian_kde(values)(at), rel=1e-9)


@settings(max_examples=30)
@given(SEEDS, st.integers(1, 80), st.integers(1, 80), st.booleans())
def test_p_values_are_those_of_scipy(seed: int, here: int, there: int, ties: bool) -> None:
    draw = np.random.default_rng(seed)
    samples = {"b": draw.normal(0, 1, here), "a": draw.normal(0.5, 1, there)}
    if ties:
        samples = {name: values.round() for name, values in samples.items()}
    (pair, found), *more = compare_pairs(samples).items()
    expected = ks_2samp(samples["a"], samples["b"])
    assert (pair, more) == (("a", "b"), [])
    assert found == pytest.approx((expected.statistic, expected.pvalue), rel=1e-12)


def test_the_test_by_hand() -> None:
    # All of one below all of the other: of the 20 orders of 3 and 3 samples two are as far apart.
    found = compare_pairs({"a": np.array([1.0, 2.0, 3.0]), "b": np.array([4.0, 5.0, 6.0])})
    assert found["a", "b"] == pytest.approx((1.0, 2 / 20))


@settings(max_examples=30)
@given(SEEDS)
def test_a_histogram_gives_a_larger_p_value_than_its_samples(seed: int) -> None:
    draw = np.random.default_rng(seed)
    own = {"a": draw.normal(-4, 1, 40), "b": draw.normal(-3.5, 1.5, 50)}
    counts = {name: np.histogram(values, 32, (-12, 4))[0].tolist() for name, values in own.items()}
    binned = {name: from_histogram(values, low=-12, high=4) for name, values in counts.items()}
    assert compare_pairs(binned)["a", "b"].p >= compare_pairs(own)["a", "b"].p
    assert all(abs(np.sort(own[name]) - binned[name]).max() <= 0.25 + 1e-12 for name in own)


@pytest.mark.parametrize(
    "samples",
    [
        {"a": np.full(9, -3.0), "b": np.full(4, -3.0)},
        {"a": np.array([-3.0])},
        {"a": np.random.default_rng(0).normal(0, 1, 50), "b": np.full(5, 2.0)},
        {"a": np.random.default_rng(0).normal(0, 1e-6, 50), "b": np.array([-1e3, 1e3])},
    ],
    ids=["constant", "one sample", "constant beside others", "very narrow"],
)
def test_every_density_integrates_to_one_where_it_is_drawn(samples: dict[str, np.ndarray]) -> None:
    places, found = densities(samples)
    assert found.keys() == samples.keys()
    for density in found.values():
        assert np.trapezoid(density, places) == pytest.approx(1, abs=5e-3)


def test_a_density_needs_a_width_and_a_sample() -> None:
    with pytest.raises(ValueError, match="bandwidth above 0"):
        kernel_density(np.ones(3), np.ones(3), bandwidth=0.0)
    with pytest.raises(ValueError, match="a sample"):
        kernel_density(np.empty(0), np.ones(3), bandwidth=1.0)


def test_constant_energies_are_not_told_apart_and_different_ones_are() -> None:
    same = compare_pairs({"a": np.full(50, -2.0), "b": np.full(60, -2.0), "c": np.full(60, -1.0)})
    assert same["a", "b"].p == 1
    assert same["a", "c"].p < 1e-9
    assert compare_pairs({"a": np.zeros(3)}) == {}
