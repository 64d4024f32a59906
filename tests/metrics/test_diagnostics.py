"""Diagnostics are means over the samples of all sites and of each."""

import pytest

from feal.metrics.diagnostics import compute_diagnostics
from tests.statistics import make_statistics


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
