import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import gaussian_kde, ks_2samp

from feal.analysis.stats import (
    Difference,
    area_under_curve,
    expand_histogram,
    kernel_densities,
    ks_tests,
    labels_to_reach,
    mean_and_deviation,
    paired_difference,
)


def test_mean_and_deviation_are_numpys() -> None:
    values = np.random.default_rng(0).normal(size=(7, 3, 2))
    mean, deviation = mean_and_deviation(values)
    np.testing.assert_allclose(mean, np.mean(values, axis=0))
    np.testing.assert_allclose(deviation, np.sqrt(((values - mean) ** 2).sum(axis=0) / 6))


def test_a_single_seed_has_no_deviation() -> None:
    mean, deviation = mean_and_deviation([[0.5, 0.6]])
    assert mean.tolist() == [0.5, 0.6]
    assert np.isnan(deviation).all()


@pytest.mark.parametrize("pairs", [2, 5, 30])
def test_the_interval_is_scipys(pairs: int) -> None:
    draw = np.random.default_rng(pairs)
    one, other = draw.normal(0.5, 0.1, pairs), draw.normal(0.45, 0.1, pairs)
    found = paired_difference(one, other, resamples=4000)
    expected = stats.bootstrap(
        (one - other,),
        np.mean,
        n_resamples=4000,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    assert found.low == pytest.approx(expected.confidence_interval.low, abs=1e-12)
    assert found.high == pytest.approx(expected.confidence_interval.high, abs=1e-12)
    assert found.mean == pytest.approx(np.mean(one) - np.mean(other))
    assert found.deviation == pytest.approx(np.std(one - other, ddof=1))
    assert found.pairs == pairs


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    draw = np.random.default_rng(1)
    held = [
        found.low <= 0.3 <= found.high
        for found in (
            paired_difference(draw.normal(0.3, 1.0, 40), np.zeros(40), resamples=500) for _ in range(400)
        )
    ]
    assert 0.90 < np.mean(held) < 0.98


def test_pairs_take_away_what_seeds_have_in_common() -> None:
    luck = np.array([0.0, 0.3, -0.3, 0.6])
    difference = paired_difference(luck + 0.02, luck)
    assert (difference.mean, difference.low, difference.high) == pytest.approx((0.02, 0.02, 0.02))
    assert not difference.is_noise


def test_the_same_seed_gives_the_same_interval() -> None:
    one, other = np.arange(6.0), np.zeros(6)
    assert paired_difference(one, other) == paired_difference(one, other)
    assert paired_difference(one, other).low != paired_difference(one, other, resamples=50).low


@pytest.mark.parametrize(
    ("one", "other"),
    [([], []), ([1.0], [1.0, 2.0]), ([1.0, np.nan], [1.0, 2.0]), ([1.0, np.inf], [1.0, 2.0]), ([[1.0]], [[1.0]])],
)
def test_what_cannot_be_paired_is_refused(one: list[float], other: list[float]) -> None:
    with pytest.raises(ValueError, match="seed|pairs"):
        paired_difference(one, other)


@pytest.mark.parametrize(("pairs", "is_noise"), [(1, True), (2, True), (9, False)])
def test_few_pairs_are_noise_unless_student_s_interval_excludes_zero(pairs: int, is_noise: bool) -> None:
    assert Difference(mean=0.15, deviation=0.07, low=0.1, high=0.2, pairs=pairs).is_noise is is_noise


def test_the_area_is_a_mean_height() -> None:
    labels = np.array([12.0, 24.0, 36.0, 60.0])
    assert area_under_curve(labels, np.full(4, 0.4)) == pytest.approx(0.4)
    fine = np.linspace(12, 60, 100_001)
    values = np.array([[0.2, 0.5, 0.4, 0.9], [0.1, 0.1, 0.8, 0.2]])
    exact = [np.interp(fine, labels, row).mean() for row in values]
    np.testing.assert_allclose(area_under_curve(labels, values), exact, atol=1e-5)


@pytest.mark.parametrize("labels", [[5, 4], [4, 4], [4], []])
def test_no_area_without_growing_labels(labels: list[float]) -> None:
    with pytest.raises(ValueError, match="labels must"):
        area_under_curve(labels, np.zeros(len(labels)))


def test_labels_to_reach() -> None:
    labels, values = [10, 20, 40, 50], [0.2, 0.6, 0.5, 0.7]
    assert labels_to_reach(labels, values, 0.1) == 10
    assert labels_to_reach(labels, values, 0.2) == 10
    assert labels_to_reach(labels, values, 0.3) == pytest.approx(12.5)
    assert labels_to_reach(labels, values, 0.6) == pytest.approx(20)
    assert labels_to_reach(labels, values, 0.65) == pytest.approx(47.5)
    assert math.isnan(labels_to_reach(labels, values, 0.8))
    with pytest.raises(ValueError, match="length"):
        labels_to_reach(labels, values[1:], 0.5)


SEEDS = st.integers(0, 2**16)


@settings(max_examples=30)
@given(SEEDS, st.integers(2, 60))
def test_a_kernel_density_is_that_of_scipy(seed: int, samples: int) -> None:
    values = np.random.default_rng(seed).normal(-4, 2, samples)
    places, found = kernel_densities({"all": values})
    assert found["all"] == pytest.approx(gaussian_kde(values)(places), rel=1e-9)


@settings(max_examples=30)
@given(SEEDS, st.integers(1, 80), st.integers(1, 80), st.booleans())
def test_p_values_are_those_of_scipy(seed: int, here: int, there: int, ties: bool) -> None:
    draw = np.random.default_rng(seed)
    samples = {"b": draw.normal(0, 1, here), "a": draw.normal(0.5, 1, there)}
    if ties:
        samples = {name: values.round() for name, values in samples.items()}
    (pair, found), *more = ks_tests(samples).items()
    expected = ks_2samp(samples["a"], samples["b"])
    assert (pair, more) == (("a", "b"), [])
    assert found == pytest.approx((expected.statistic, expected.pvalue), rel=1e-12)


def test_the_test_by_hand() -> None:
    # All of one below all of the other: of the 20 orders of 3 and 3 samples two are as far apart.
    found = ks_tests({"a": np.array([1.0, 2.0, 3.0]), "b": np.array([4.0, 5.0, 6.0])})
    assert found["a", "b"] == pytest.approx((1.0, 2 / 20))


@settings(max_examples=30)
@given(SEEDS)
def test_a_histogram_gives_a_larger_p_value_than_its_samples(seed: int) -> None:
    draw = np.random.default_rng(seed)
    own = {"a": draw.normal(-4, 1, 40), "b": draw.normal(-3.5, 1.5, 50)}
    counts = {name: np.histogram(values, 32, (-12, 4))[0].tolist() for name, values in own.items()}
    binned = {name: expand_histogram(values, low=-12, high=4) for name, values in counts.items()}
    assert ks_tests(binned)["a", "b"].p >= ks_tests(own)["a", "b"].p
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
    places, found = kernel_densities(samples)
    assert found.keys() == samples.keys()
    for density in found.values():
        assert np.trapezoid(density, places) == pytest.approx(1, abs=5e-3)


def test_constant_energies_are_not_told_apart_and_different_ones_are() -> None:
    same = ks_tests({"a": np.full(50, -2.0), "b": np.full(60, -2.0), "c": np.full(60, -1.0)})
    assert same["a", "b"].p == 1
    assert same["a", "c"].p < 1e-9
    assert ks_tests({"a": np.zeros(3)}) == {}
