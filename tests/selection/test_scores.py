"""The scores against their formulas in float64, from scipy."""

import json
import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.special import log_softmax, rel_entr, softmax
from scipy.stats import entropy as scipy_entropy
from torch import Tensor

from feal.evidential import concentration, expected_probability
from feal.selection.scores import (
    TERMS,
    calibrated_uncertainty,
    entropy,
    half_squared_distance,
    symmetric_divergence,
)
from tests.paths import PROJECT

SHAPES = [(50, 2), (50, 8), (5, 3, 4, 6), (3, 1)]
SCALES = [0.0, 1e-6, 1.0, 30.0, 1e3]
TOLERANCE = 1e-6

logits = arrays.arrays(
    np.float32, st.tuples(st.integers(1, 4), st.integers(1, 6)), elements=st.floats(-1e3, 1e3, width=32)
)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of two models, and counts, some of them 0."""
    first = draw(logits)
    second = draw(arrays.arrays(np.float32, first.shape, elements=st.floats(-1e3, 1e3, width=32)))
    counts = draw(arrays.arrays(np.float64, first.shape[1], elements=st.integers(0, 10**6)))
    return torch.from_numpy(first), torch.from_numpy(second), torch.from_numpy(counts)


def _random(shape: Sequence[int], scale: float, seed: int) -> Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _divergence(first: Tensor, second: Tensor, counts: Sequence[float]) -> np.ndarray:
    """1/2 (KL + KL) term by term over the classes that have a count, by their logarithms."""
    known = np.flatnonzero(counts)
    prior = np.log(np.asarray(counts, float)[known]).reshape(1, -1, *[1] * (first.ndim - 2))
    p, q = (log_softmax(each.double().numpy()[:, known] + prior, axis=1) for each in (first, second))
    return 0.5 * ((np.exp(p) * (p - q)).sum(1) + (np.exp(q) * (q - p)).sum(1))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", SCALES)
def test_entropy_of_a_softmax(shape: Sequence[int], scale: float) -> None:
    z = _random(shape, scale, 0)
    found = entropy(torch.softmax(z, 1))
    assert found.dtype == torch.float64
    np.testing.assert_allclose(
        found, scipy_entropy(softmax(z.double().numpy(), axis=1), axis=1), rtol=0, atol=TOLERANCE
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("squared", [False, True])
def test_entropy_of_an_expected_probability(shape: Sequence[int], scale: float, squared: bool) -> None:
    z = _random(shape, scale, 1)
    alpha = np.maximum(z.double().numpy(), 0) + 1
    found = entropy(expected_probability(concentration(z, squared=squared)))
    np.testing.assert_allclose(
        found, scipy_entropy(alpha**2 if squared else alpha, axis=1), rtol=0, atol=TOLERANCE
    )


def test_entropy_of_many_classes() -> None:
    p = torch.softmax(_random((20, 1000), 2.0, 2), 1)
    np.testing.assert_allclose(entropy(p), scipy_entropy(p.double().numpy(), axis=1), rtol=0, atol=TOLERANCE)


def test_nothing_times_its_logarithm_is_nothing() -> None:
    assert entropy(torch.tensor([[0.0, 1.0], [1.0, 0.0]])).tolist() == [0.0, 0.0]


@given(logits)
def test_entropy_lies_between_0_and_log_c(values: np.ndarray) -> None:
    found = entropy(torch.softmax(torch.from_numpy(values), 1))
    assert found.min() >= 0
    assert found.max() <= math.log(values.shape[1])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", SCALES)
def test_half_squared_distance(shape: Sequence[int], scale: float) -> None:
    y, z = _random(shape, scale, 3), _random(shape, scale, 4)
    found = half_squared_distance(torch.softmax(y, 1), torch.softmax(z, 1))
    p, q = softmax(y.double().numpy(), axis=1), softmax(z.double().numpy(), axis=1)
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found, np.linalg.norm(p - q, axis=1) ** 2 / 2, rtol=0, atol=TOLERANCE)


@given(pairs())
def test_distance_of_probabilities_lies_between_0_and_1(pair: tuple[Tensor, Tensor, Tensor]) -> None:
    p, q = torch.softmax(pair[0], 1), torch.softmax(pair[1], 1)
    found = half_squared_distance(p, q)
    assert found.min() >= 0
    assert found.max() <= 1 + TOLERANCE
    assert torch.equal(found, half_squared_distance(q, p))
    assert not half_squared_distance(p, p).any()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("empty", [0, 1])
def test_symmetric_divergence(shape: Sequence[int], scale: float, empty: int) -> None:
    y, z = _random(shape, scale, 5), _random(shape, scale, 6)
    counts = [float(10**c) for c in range(shape[1])]
    counts[:empty] = [0.0] * empty if shape[1] > 1 else counts[:empty]
    found = symmetric_divergence(y, z, torch.tensor(counts))
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found, _divergence(y, z, counts), rtol=1e-12, atol=1e-12)


def test_symmetric_divergence_is_that_of_scipy() -> None:
    y, z, counts = _random((40, 5), 2.0, 7), _random((40, 5), 2.0, 8), np.array([3.0, 1.0, 0.0, 7.0, 0.0])
    p, q = (softmax(each.double().numpy()[:, counts > 0], axis=1) * counts[counts > 0] for each in (y, z))
    p, q = p / p.sum(1, keepdims=True), q / q.sum(1, keepdims=True)
    found = symmetric_divergence(y, z, torch.from_numpy(counts))
    np.testing.assert_allclose(found, 0.5 * (rel_entr(p, q) + rel_entr(q, p)).sum(1), rtol=1e-12, atol=1e-14)


@given(pairs())
def test_divergence_is_finite_not_negative_and_the_same_either_way(pair: tuple[Tensor, Tensor, Tensor]) -> None:
    first, second, counts = pair
    found = symmetric_divergence(first, second, counts)
    assert found.isfinite().all()
    assert found.min() >= 0
    assert torch.equal(found, symmetric_divergence(second, first, counts))
    assert not symmetric_divergence(first, first, counts).any()
    if counts.any():
        np.testing.assert_allclose(found, _divergence(first, second, counts.tolist()), rtol=1e-9, atol=1e-9)


def test_a_shift_of_all_logits_does_not_matter() -> None:
    y, z, counts = _random((30, 4), 1.0, 9).double(), _random((30, 4), 1.0, 10).double(), torch.ones(4)
    shifted = symmetric_divergence(y + 1e3, z - 1e3, counts)
    np.testing.assert_allclose(shifted, _divergence(y, z, [1.0] * 4), rtol=0, atol=1e-11)


@pytest.mark.parametrize("counts", [[0, 0, 0], [0, 4, 0]])
@pytest.mark.parametrize("shape", [(6, 3), (2, 3, 4, 5)])
def test_fewer_than_two_counted_classes_leave_nothing_to_disagree_on(
    counts: list[int], shape: Sequence[int]
) -> None:
    found = symmetric_divergence(_random(shape, 9.0, 11), _random(shape, 9.0, 12), torch.tensor(counts))
    assert found.dtype == torch.float64
    assert found.shape == (shape[0], *shape[2:])
    assert not found.any()


@pytest.mark.parametrize("counts", [[1.0, -1.0], [1.0, math.nan], [math.inf, 1.0], [1.0], [1.0, 2.0, 3.0]])
def test_counts_that_do_not_fit_are_refused(counts: list[float]) -> None:
    with pytest.raises(ValueError, match="counts|weights"):
        symmetric_divergence(torch.zeros(1, 2), torch.zeros(1, 2), torch.tensor(counts))


def test_inputs_are_left_as_they_are() -> None:
    y, z = torch.softmax(_random((4, 3), 2.0, 13).double(), 1), torch.softmax(_random((4, 3), 2.0, 14).double(), 1)
    before = y.clone(), z.clone()
    entropy(y)
    half_squared_distance(y, z)
    symmetric_divergence(y, z, torch.ones(3))
    assert torch.equal(y, before[0])
    assert torch.equal(z, before[1])


@pytest.mark.parametrize("spoiled", [math.nan, math.inf])
def test_what_is_not_a_number_stays_so(spoiled: float) -> None:
    y, z = torch.tensor([[spoiled, 1.0, 2.0], [0.0, 1.0, 2.0]]), torch.zeros(2, 3)
    p, q = torch.softmax(y, 1), torch.softmax(z, 1)
    for found in (entropy(p), half_squared_distance(p, q), symmetric_divergence(y, z, torch.tensor([0, 1, 1]))):
        assert found.isfinite().tolist() == [False, True]


ALE_GLOBAL, ALE_LOCAL = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 0.25, 0.0])
EPI = torch.tensor([-2.0, -6.0, -4.0])
SCALED = torch.tensor([1.0, 0.0, 0.5])
SUBSETS = [subset for size in (1, 2, 3) for subset in combinations(TERMS, size)]


def test_golden_score_and_order() -> None:
    case = json.loads((PROJECT / "tests" / "golden" / "d3_relaxation_strong.json").read_text())
    ale_global, ale_local, epi = (
        torch.tensor(case[f"ref_{name}"]) for name in ("g_aleatoric", "l_aleatoric", "g_epistemic")
    )
    score = calibrated_uncertainty(ale_global, ale_local, epi)
    assert score.dtype == torch.float64
    torch.testing.assert_close(score, torch.tensor(case["ref_uncertainty"]).double(), rtol=1e-5, atol=1e-6)
    assert score.argsort(descending=True).tolist() == case["ref_rank_desc"]
    factor = calibrated_uncertainty(ale_global, ale_local, epi, terms=("epistemic-global",))
    torch.testing.assert_close(factor, torch.tensor(case["ref_epi_minmax"]).double(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("terms", SUBSETS, ids="+".join)
@pytest.mark.parametrize(("calibration", "epistemic"), [("minmax", SCALED), ("literal", EPI)])
def test_every_subset_of_terms(terms: Any, calibration: Any, epistemic: torch.Tensor) -> None:
    aleatoric = torch.zeros(3)
    aleatoric = aleatoric + ALE_GLOBAL if "aleatoric-global" in terms else aleatoric
    aleatoric = aleatoric + ALE_LOCAL if "aleatoric-local" in terms else aleatoric
    expected = torch.ones(3) if terms == ("epistemic-global",) else aleatoric
    expected = expected * epistemic if "epistemic-global" in terms else expected
    for order in (terms, terms[::-1]):
        score = calibrated_uncertainty(ALE_GLOBAL, ALE_LOCAL, EPI, calibration, terms=order)
        assert torch.equal(score, expected.double())


@given(st.lists(st.floats(-1e30, 1e30), min_size=1), st.sampled_from([torch.float32, torch.float64]))
def test_minmax_spans_zero_to_one(values: list[float], dtype: torch.dtype) -> None:
    epi = torch.tensor(values, dtype=dtype)
    factor = calibrated_uncertainty(epi, epi, epi, terms=("epistemic-global",))
    assert factor.max() == 1
    assert factor.min() == (0 if epi.max() > epi.min() else 1)


def test_a_constant_epistemic_gives_ones() -> None:
    score = calibrated_uncertainty(ALE_GLOBAL, ALE_LOCAL, torch.full((3,), -8.5))
    assert torch.equal(score, (ALE_GLOBAL + ALE_LOCAL).double())


@pytest.mark.parametrize("terms", SUBSETS, ids="+".join)
@pytest.mark.parametrize("calibration", ["minmax", "literal"])
def test_an_empty_pool(terms: Any, calibration: Any) -> None:
    score = calibrated_uncertainty(torch.empty(0), torch.empty(0), torch.empty(0), calibration, terms=terms)
    assert (score.shape, score.dtype) == ((0,), torch.float64)


def test_half_precision_is_scored_in_double() -> None:
    score = calibrated_uncertainty(ALE_GLOBAL.half(), ALE_LOCAL.half(), EPI.half())
    assert torch.equal(score, ((ALE_GLOBAL + ALE_LOCAL) * SCALED).double())


def test_a_term_that_is_not_used_may_be_anything() -> None:
    broken = torch.full((3,), torch.nan)
    score = calibrated_uncertainty(ALE_GLOBAL, broken, broken, terms=("aleatoric-global",))
    assert torch.equal(score, ALE_GLOBAL.double())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"calibration": "rank"}, "one of minmax, literal, not 'rank'"),
        ({"terms": ("entropy",)}, "not 'entropy'"),
        ({"terms": ()}, "at least one term"),
        ({"ale_local": torch.zeros(2)}, r"same length, not epistemic-global \[3\].*aleatoric-local \[2\]"),
        ({"ale_global": torch.zeros(3, 1)}, "one number a sample"),
        ({"epi_global": torch.tensor([0, torch.nan, torch.inf])}, "epistemic-global uncertainty of sample 1"),
        ({"ale_local": torch.tensor([0, 0, -torch.inf])}, "aleatoric-local uncertainty of sample 2"),
    ],
)
def test_refuses(wrong: dict[str, Any], message: str) -> None:
    arguments = {"ale_global": ALE_GLOBAL, "ale_local": ALE_LOCAL, "epi_global": EPI} | wrong
    with pytest.raises(ValueError, match=message):
        calibrated_uncertainty(**arguments)
