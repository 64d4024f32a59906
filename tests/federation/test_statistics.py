import math
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, balanced_accuracy_score, confusion_matrix, recall_score

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


def _region(dice: float, hd95: float, count: int) -> dict[str, float]:
    return {"dice": dice, "hd95": hd95, "count": count}


def test_dice_and_hd95_are_means_over_the_regions_that_are_there() -> None:
    regions = {"disc": _region(3.0, 8.0, 4), "cup": _region(0.5, 9.0, 2), "vessel": _region(0.0, 0.0, 0)}
    statistics = _statistics([[1]], dice=[9.0, 3.0, 0.0], dice_count=[9, 4, 0], regions=regions)
    assert figures.dice(statistics) == pytest.approx((0.75 + 0.25) / 2)
    assert figures.hd95(statistics) == pytest.approx((2.0 + 4.5) / 2)
    assert figures.dice_by_class(statistics) == [1.0, 0.75, None]
    told = figures.metrics("segmentation", {"a": statistics})
    assert told["dice_disc"]["pooled"] == 0.75
    assert told["hd95_cup"]["sites"] == {"a": 4.5}
    assert told["dice_vessel"] == {"mean": None, "pooled": None, "sites": {"a": None}}


def test_a_lone_region_is_told_once() -> None:
    statistics = _statistics([[1]], regions={"polyp": _region(1.0, 2.0, 2)})
    told = figures.metrics("segmentation", {"a": statistics})
    assert list(told) == ["dice", "hd95", "accuracy", "calibration_error"]


def test_regions_pool_where_a_site_lacks_one() -> None:
    """As in what a site stored before there were regions."""
    one = _statistics([[1]], regions={"disc": _region(1.0, 2.0, 2)})
    other = _statistics([[1]], regions={"disc": _region(0.5, 3.0, 1), "cup": _region(0.25, 1.0, 1)})
    pooled = figures.pool({"a": one, "b": other, "c": _statistics([[1]])})
    assert pooled is not None
    assert {name: region.model_dump() for name, region in pooled.regions.items()} == {
        "disc": _region(1.5, 5.0, 3),
        "cup": _region(0.25, 1.0, 1),
    }


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40))
def test_accuracies_are_those_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    truth, guess = zip(*pairs, strict=True)
    statistics = _statistics(confusion_matrix(truth, guess, labels=range(4)).tolist())
    assert figures.accuracy(statistics) == pytest.approx(accuracy_score(truth, guess))
    recalls = recall_score(truth, guess, labels=range(4), average=None, zero_division=0)
    expected = [recall if number in truth else None for number, recall in enumerate(recalls)]
    assert figures.recall(statistics) == pytest.approx(expected)
    with warnings.catch_warnings():
        # scikit-learn says that it leaves out a class that is predicted and never true, as we do.
        warnings.filterwarnings("ignore", message="y_pred contains classes not in y_true")
        warnings.filterwarnings("ignore", message="A single label was found")
        assert figures.balanced_accuracy(statistics) == pytest.approx(balanced_accuracy_score(truth, guess))


def test_the_pooled_figure_is_not_the_mean_of_sites() -> None:
    """One site lacks a class: it is left out there, and counts in the pooled figure."""
    by_site = {"a": _statistics([[4, 0], [0, 0]]), "b": _statistics([[1, 1], [3, 1]])}
    told = figures.metrics("classification", by_site)["balanced_accuracy"]
    assert told["sites"] == {"a": 1.0, "b": pytest.approx(0.375)}
    assert told["mean"] == pytest.approx(0.6875)
    truth, guess = [0] * 6 + [1] * 4, [0] * 5 + [1] + [0] * 3 + [1]
    assert told["pooled"] == pytest.approx(balanced_accuracy_score(truth, guess))


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
    bins = {"count": [2, 2], "confidence": [0.6, 1.8], "correct": [1, 1]}
    assert result["calibration"] == result["sites"]["a"]["calibration"] == bins
    assert result["recall"] == [1.0, 1.0]


def test_sums_must_be_finite() -> None:
    with pytest.raises(ValueError, match="finite"):
        _statistics([[1]], aleatoric=math.nan)
