import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from feal.federation import statistics as figures
from feal.federation.statistics import Statistics


def _statistics(confusion: list[list[int]], **changes: object) -> Statistics:
    fields: dict[str, object] = {
        "samples": sum(map(sum, confusion)),
        "confusion": confusion,
        "calibration_count": [2, 2],
        "calibration_confidence": [0.6, 1.8],
        "calibration_correct": [1, 1],
        "energy": [0, 4],
        "aleatoric": 2.0,
        "epistemic": -4.0,
        "zero_evidence": 1.0,
        "class_evidence": [1.0, 2.0],
    }
    return Statistics(**{**fields, **changes})


def test_balanced_accuracy_leaves_out_absent_classes() -> None:
    statistics = _statistics([[3, 1, 0], [0, 0, 0], [1, 0, 1]])
    assert figures.recall(statistics) == [0.75, None, 0.5]
    assert figures.balanced_accuracy(statistics) == pytest.approx(0.625)
    assert figures.accuracy(statistics) == pytest.approx(4 / 6)


def test_calibration_error_by_hand() -> None:
    assert figures.calibration_error(_statistics([[4, 0], [0, 0]])) == pytest.approx((0.4 + 0.8) / 4)


def test_dice_is_the_mean_over_foreground_classes() -> None:
    statistics = _statistics([[1]], dice=[9.0, 3.0, 0.0], dice_count=[9, 4, 0])
    assert figures.dice(statistics) == pytest.approx(0.75)
    assert figures.dice_by_class(statistics) == [1.0, 0.75, None]


@given(st.lists(st.lists(st.integers(0, 9), min_size=4, max_size=4), min_size=2, max_size=4))
def test_pooled_equals_one_site_with_all_samples(parts: list[list[int]]) -> None:
    by_site = {f"s{k}": _statistics([part[:2], part[2:]]) for k, part in enumerate(parts)}
    total = torch.tensor(parts).sum(0).reshape(2, 2).tolist()
    pooled = figures.pool(by_site)
    assert pooled is not None
    assert pooled.confusion == total
    expected = figures.balanced_accuracy(_statistics(total))
    assert figures.metrics("classification", by_site)["balanced_accuracy"]["pooled"] == expected


def test_a_site_without_a_test_part_has_no_figure_and_is_not_in_the_mean() -> None:
    by_site = {"a": _statistics([[1, 1], [0, 2]]), "b": None}
    result = figures.metrics("classification", by_site)["balanced_accuracy"]
    assert result == {"mean": 0.75, "pooled": 0.75, "sites": {"a": 0.75, "b": None}}


def test_without_any_test_part_there_are_no_figures() -> None:
    result = figures.metrics("classification", {"a": None})["accuracy"]
    assert result == {"mean": None, "pooled": None, "sites": {"a": None}}
    assert figures.diagnostics("classification", {"a": None}) == {}


def test_diagnostics_are_means_over_samples() -> None:
    result = figures.diagnostics("classification", {"a": _statistics([[2, 0], [0, 2]])})
    assert result["aleatoric"] == 0.5
    assert result["epistemic"] == -1.0
    assert result["zero_evidence"] == 0.25
    assert result["class_evidence"] == [0.25, 0.5]
    assert result["recall"] == [1.0, 1.0]


def test_sums_must_be_finite() -> None:
    with pytest.raises(ValueError, match="finite"):
        _statistics([[1]], aleatoric=math.nan)
