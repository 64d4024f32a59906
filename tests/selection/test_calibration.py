import json
from itertools import combinations
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from feal.selection.calibration import TERMS, calibrated_uncertainty
from tests.paths import PROJECT

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
