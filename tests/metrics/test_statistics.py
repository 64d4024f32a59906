"""Sums add up as those of one big site, and sums that no evaluation gives are found."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feal.metrics.statistics import CALIBRATION_BINS, ENERGY_BINS, compute_diagnostics, find_inconsistency, pool
from tests.statistics import make_statistics

REGION = {"dice": 1.0, "hd95": 2.0, "count": 2}


@given(st.lists(st.lists(st.integers(0, 9), min_size=4, max_size=4), min_size=2, max_size=4))
def test_pooled_counts_are_those_of_one_site_with_all_samples(parts: list[list[int]]) -> None:
    by_site = {f"s{k}": make_statistics([part[:2], part[2:]]) for k, part in enumerate(parts)}
    total = [sum(numbers) for numbers in zip(*parts, strict=True)]
    pooled, expected = pool(by_site), make_statistics([total[:2], total[2:]])
    assert pooled is not None
    assert pooled.confusion == expected.confusion
    assert pooled.calibration_count == expected.calibration_count
    assert pooled.aleatoric == pytest.approx(expected.aleatoric)
    assert (pooled.samples, pooled.predictions) == (sum(total), sum(total))


def test_regions_pool_where_a_site_lacks_one() -> None:
    one = make_statistics([[1]], regions={"disc": REGION})
    other = make_statistics([[1]], regions={"disc": REGION, "cup": {"dice": 0.25, "hd95": 1.0, "count": 1}})
    pooled = pool({"a": one, "b": other, "c": make_statistics([[1]])})
    assert pooled is not None
    assert {name: region.model_dump() for name, region in pooled.regions.items()} == {
        "disc": {"dice": 2.0, "hd95": 4.0, "count": 4},
        "cup": {"dice": 0.25, "hd95": 1.0, "count": 1},
    }


def test_further_sums_pool_as_numbers_and_as_vectors() -> None:
    parts = [make_statistics([[1]], extra={"brier": {"error": k, "by_class": [k, 2 * k]}}) for k in (1.0, 2.0)]
    pooled = pool({"a": parts[0], "b": parts[1], "c": make_statistics([[1]])})
    assert pooled is not None
    assert pooled.extra == {"brier": {"error": 3.0, "by_class": [3.0, 6.0]}}


def test_without_sites_there_is_nothing_to_pool() -> None:
    assert pool({}) is None


def test_sums_must_be_finite() -> None:
    for changes in (
        {"aleatoric": math.nan},
        {"extra": {"m": {"s": math.inf}}},
        {"extra": {"m": {"s": [math.nan]}}},
    ):
        with pytest.raises(ValueError, match="finite"):
            make_statistics([[1]], **changes)


def test_honest_sums_are_consistent() -> None:
    assert find_inconsistency(make_statistics([[3, 1], [0, 2]]), task="classification", classes=2) == ""
    masks = {"dice": [1.9, 0.0], "dice_count": [2, 0], "regions": {"polyp": REGION}}
    drawn = make_statistics([[30, 1], [0, 1]], samples=2, **masks)
    assert find_inconsistency(drawn, task="segmentation", classes=2) == ""
    assert find_inconsistency(drawn, task="classification", classes=2) != ""
    assert find_inconsistency(make_statistics([[3, 1], [0, 2]]), task="segmentation", classes=2) != ""


def _at(index: int, value: float, length: int) -> list[float]:
    return [value if number == index else 0 for number in range(length)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"samples": 0}, "no sample"),
        ({"confusion": [[4, 0]]}, "other classes"),
        ({"confusion": [[4], [0]]}, "other classes"),
        ({"confusion": [[5, 0], [0, 0]]}, "another number of samples"),
        ({"class_evidence": [1.0]}, "evidence of other classes"),
        ({"class_evidence": [1.0, 4.5]}, "shares of evidence"),
        ({"zero_evidence": -1.0}, "shares of evidence"),
        ({"energy": [4]}, "other bins"),
        ({"energy": _at(3, 5, ENERGY_BINS)}, "energies of another number"),
        ({"calibration_confidence": [1.0]}, "other bins"),
        ({"calibration_confidence": _at(10, 4.1, CALIBRATION_BINS)}, "confidence outside 0 to 1"),
        ({"calibration_count": _at(10, 3, CALIBRATION_BINS)}, "do not add up"),
        ({"calibration_correct": _at(10, 4, CALIBRATION_BINS)}, "do not add up"),
        ({"calibration_correct": _at(9, 3, CALIBRATION_BINS)}, "more correct predictions"),
        ({"aleatoric": 4 * math.log(2) + 0.01}, "aleatoric"),
        ({"aleatoric": -0.01}, "aleatoric"),
        ({"epistemic": 0.01}, "epistemic"),
        ({"dice": [1.0]}, "Dice of other classes"),
        ({"regions": {"a": REGION}}, "regions in classification"),
    ],
)
def test_sums_that_no_evaluation_gives_are_found(changes: dict[str, Any], words: str) -> None:
    statistics = make_statistics([[2, 1], [0, 1]], **changes)
    assert words in find_inconsistency(statistics, task="classification", classes=2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"samples": 3}, "another number of samples"),
        ({"dice": [1.5, 0.0], "dice_count": [1, 0]}, "Dice score outside"),
        ({"dice_count": [3, 0]}, "more Dice scores than images"),
        ({"regions": {"a": {**REGION, "count": 3}}}, "more Dice scores than images"),
        ({"regions": {"a": {**REGION, "dice": 2.1}}}, "Dice score outside"),
        ({"regions": {"a": {**REGION, "hd95": -1.0}}}, "negative HD95"),
    ],
)
def test_masks_that_no_evaluation_gives_are_found(changes: dict[str, Any], words: str) -> None:
    honest = {"samples": 2, "dice": [1.9, 0.0], "dice_count": [2, 0], "regions": {"a": REGION}}
    statistics = make_statistics([[30, 1], [0, 1]], **{**honest, **changes})
    assert words in find_inconsistency(statistics, task="segmentation", classes=2)


def test_diagnostics_are_means_over_samples() -> None:
    bins = {"calibration_count": [2, 2], "calibration_confidence": [0.6, 1.8], "calibration_correct": [1, 1]}
    statistics = make_statistics([[2, 0], [0, 2]], class_evidence=[1.0, 2.0], **bins)
    result = compute_diagnostics("classification", {"a": statistics, "b": None})
    assert result["aleatoric"] == 0.5
    assert result["epistemic"] == -2.0
    assert result["zero_evidence"] == 0.25
    assert result["class_evidence"] == [0.25, 0.5]
    expected = {"count": [2, 2], "confidence": [0.6, 1.8], "correct": [1, 1]}
    assert result["calibration"] == result["sites"]["a"]["calibration"] == expected
    assert result["recall"] == [1.0, 1.0]
    assert "dice_by_class" not in result
    assert list(result["sites"]) == ["a"]


def test_sites_weigh_by_their_samples() -> None:
    by_site = {"a": make_statistics([[1]], aleatoric=0.0), "b": make_statistics([[3]], aleatoric=2.0)}
    result = compute_diagnostics("segmentation", by_site)
    assert result["aleatoric"] == pytest.approx(0.5)
    assert result["dice_by_class"] == []


def test_without_a_test_sample_there_are_none() -> None:
    assert compute_diagnostics("classification", {"a": None}) == {}
