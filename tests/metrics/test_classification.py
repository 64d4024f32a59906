"""Metrics of predictions, against scikit-learn and by hand."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    confusion_matrix,
    recall_score,
    roc_auc_score,
)

from feal.metrics import class_roc_auc, roc_auc
from feal.metrics.classification import Accuracy, BalancedAccuracy, CalibrationError
from tests.statistics import make_statistics


def test_balanced_accuracy_leaves_out_absent_classes() -> None:
    statistics = make_statistics([[3, 1, 0], [0, 0, 0], [1, 0, 1]])
    assert statistics.recall == [0.75, None, 0.5]
    assert BalancedAccuracy().compute(statistics, {}) == pytest.approx(0.625)
    assert Accuracy().compute(statistics, {}) == pytest.approx(4 / 6)


def test_calibration_error_by_hand() -> None:
    bins = {"calibration_count": [2, 2], "calibration_confidence": [0.6, 1.8], "calibration_correct": [1, 1]}
    assert CalibrationError().compute(make_statistics([[4]], **bins), {}) == pytest.approx((0.4 + 0.8) / 4)


def test_without_predictions_no_metric_is_defined() -> None:
    nothing = make_statistics([[0, 0], [0, 0]])
    assert [metric().compute(nothing, {}) for metric in (Accuracy, BalancedAccuracy, CalibrationError)] == [
        None
    ] * 3


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40))
def test_accuracies_are_those_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    truth, guess = zip(*pairs, strict=True)
    statistics = make_statistics(confusion_matrix(truth, guess, labels=range(4)).tolist())
    assert Accuracy().compute(statistics, {}) == pytest.approx(accuracy_score(truth, guess))
    recalls = recall_score(truth, guess, labels=range(4), average=None, zero_division=0)
    expected = [value if number in truth else None for number, value in enumerate(recalls)]
    assert statistics.recall == pytest.approx(expected)
    with warnings.catch_warnings():
        # scikit-learn says that it leaves out a class that is predicted and never true, as we do.
        warnings.filterwarnings("ignore", message="y_pred contains classes not in y_true")
        warnings.filterwarnings("ignore", message="A single label was found")
        assert BalancedAccuracy().compute(statistics, {}) == pytest.approx(balanced_accuracy_score(truth, guess))


@settings(max_examples=40)
@given(st.integers(0, 2**16), st.integers(2, 5), st.integers(1, 30), st.booleans())
def test_roc_auc_is_that_of_scikit_learn(seed: int, classes: int, samples: int, ties: bool) -> None:
    draw = np.random.default_rng(seed)
    probability = draw.dirichlet(np.ones(classes), samples)
    if ties:
        probability = probability.round(1)
    truth = draw.integers(0, classes, samples)
    expected = [
        roc_auc_score(truth == number, probability[:, number]) if 0 < (truth == number).sum() < samples else None
        for number in range(classes)
    ]
    assert class_roc_auc(probability, truth) == pytest.approx(tuple(expected))
    known = [area for area in expected if area is not None]
    assert roc_auc(probability, truth) == (pytest.approx(np.mean(known)) if known else None)


def test_two_classes_have_one_area_and_a_lone_class_none() -> None:
    probability = np.array([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4], [0.5, 0.5]])
    truth = np.array([0, 1, 1, 0])
    assert roc_auc(probability, truth) == pytest.approx(roc_auc_score(truth, probability[:, 1]))
    assert roc_auc(probability, np.zeros(4, dtype=int)) is None
    assert class_roc_auc(np.empty((0, 2)), np.empty(0, dtype=int)) == (None, None)
