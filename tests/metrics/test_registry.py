"""Metrics by name, their values over sites, and metrics that a user brings along."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score

from feal.errors import FealError
from feal.metrics import METRICS, Bound, EvaluatedBatch, Metric, compute_metrics, find_metrics, lower_is_better
from feal.metrics.registry import extra_sums, find_bad_sum, table_metrics, title_of
from tests.statistics import make_statistics

BRIER = """
from torch.nn.functional import one_hot
from feal.metrics import Bound, Metric


class Brier(Metric):
    name = "brier"
    tasks = ("classification",)
    lower_is_better = True

    def sums(self, batch):
        error = (batch.probability - one_hot(batch.target, batch.probability.shape[1])) ** 2
        return {"error": error.sum(), "by_class": error.sum(0)}

    def bounds(self, statistics):
        classes = len(statistics.confusion)
        return {
            "error": Bound(0, 2 * statistics.samples),
            "by_class": Bound(0, statistics.samples, length=classes),
        }

    def compute(self, statistics, sums):
        return sums["error"] / statistics.samples
"""


@pytest.fixture
def brier(tmp_path: Path) -> str:
    path = tmp_path / "brier.py"
    path.write_text(BRIER)
    return f"{path}:Brier"


def _batch(samples: int = 5) -> EvaluatedBatch:
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(samples, 3, generator=draw)
    target = torch.randint(0, 3, (samples,), generator=draw)
    return EvaluatedBatch(logits=logits, probability=logits.softmax(1), prediction=logits.argmax(1), target=target)


def test_the_pooled_metric_is_not_the_mean_of_sites() -> None:
    """One site lacks a class: it is left out there, and counts in the pooled metric."""
    by_site = {"a": make_statistics([[4, 0], [0, 0]]), "b": make_statistics([[1, 1], [3, 1]])}
    values = compute_metrics(find_metrics("classification"), by_site)["balanced_accuracy"]
    assert values["sites"] == {"a": 1.0, "b": pytest.approx(0.375)}
    assert values["mean"] == pytest.approx(0.6875)
    truth, guess = [0] * 6 + [1] * 4, [0] * 5 + [1] + [0] * 3 + [1]
    assert values["pooled"] == pytest.approx(balanced_accuracy_score(truth, guess))


def test_a_site_without_test_samples_has_no_metric_and_is_not_in_the_mean() -> None:
    by_site = {"a": make_statistics([[1, 1], [0, 2]]), "b": None}
    values = compute_metrics(find_metrics("classification"), by_site)["balanced_accuracy"]
    assert values == {"mean": 0.75, "pooled": 0.75, "sites": {"a": 0.75, "b": None}}
    nothing = compute_metrics(find_metrics("classification"), {"a": None})["accuracy"]
    assert nothing == {"mean": None, "pooled": None, "sites": {"a": None}}


def test_every_registered_metric_has_a_task_and_a_docstring_and_is_defined_once() -> None:
    for name in METRICS.names():
        metric = METRICS.get(name)
        assert metric.name == name
        assert metric.tasks
        assert METRICS.summary(name).endswith((".", "`."))
    primary = [metric for metric in map(METRICS.get, METRICS.names()) if metric.role == "primary"]
    assert sorted(task for metric in primary for task in metric.tasks) == ["classification", "segmentation"]


def test_a_user_s_metric_is_computed_beside_the_others(brier: str) -> None:
    metrics, batch = find_metrics("classification", [brier, brier]), _batch()
    assert [metric.name for metric in metrics] == ["balanced_accuracy", "accuracy", "calibration_error", "brier"]
    extra = extra_sums(metrics, batch)
    one = make_statistics([[5, 0, 0], [0, 0, 0], [0, 0, 0]], extra=extra)
    assert find_bad_sum(one, metrics) == ""
    values = compute_metrics(metrics, {"a": one, "b": one, "c": None})["brier"]
    by_hand = np.mean(
        [
            sum((float(p[c]) - (c == int(t))) ** 2 for c in range(3))
            for p, t in zip(batch.probability, batch.target, strict=True)
        ]
    )
    assert values["pooled"] == values["mean"] == pytest.approx(by_hand)
    assert values["lower_is_better"] is True
    assert table_metrics("classification", ["accuracy", "balanced_accuracy", "brier"]) == [
        "balanced_accuracy",
        "brier",
    ]


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({}, "sums of none, not of brier"),
        ({"other": {"x": 1.0}}, "sums of other, not of brier"),
        ({"brier": {"error": 1.0}}, "brier with sums error, not by_class, error"),
        ({"brier": {"error": -0.1, "by_class": [0.0] * 3}}, "impossible error"),
        ({"brier": {"error": 10.1, "by_class": [0.0] * 3}}, "impossible error"),
        ({"brier": {"error": [1.0], "by_class": [0.0] * 3}}, "impossible error"),
        ({"brier": {"error": 1.0, "by_class": [0.0] * 2}}, "impossible by_class"),
        ({"brier": {"error": 1.0, "by_class": [0.0, 5.1, 0.0]}}, "impossible by_class"),
        ({"brier": {"error": 1.0, "by_class": 1.0}}, "impossible by_class"),
    ],
)
def test_sums_beyond_their_bounds_are_found(brier: str, extra: dict[str, Any], words: str) -> None:
    claimed = make_statistics([[5, 0, 0], [0, 0, 0], [0, 0, 0]], extra=extra)
    assert words in find_bad_sum(claimed, find_metrics("classification", [brier]))


def test_sums_that_nobody_asked_for_are_found() -> None:
    claimed = make_statistics([[5, 0], [0, 0]], extra={"brier": {"error": 1.0}})
    assert "sums of brier, not of none" in find_bad_sum(claimed, find_metrics("classification"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("name =", "title ="), "no usable name"),
        (('"brier"', '"Brier score"'), "no usable name"),
        (('"brier"', '"accuracy"'), "so is a built-in one"),
        (('"brier"', '"dice_cup"'), "so is a built-in one"),
        (('("classification",)', '("segmentation",)'), "is for segmentation, not for classification"),
        (("def compute", "def calculate"), "lacks compute"),
        (("Brier(Metric)", "Brier"), "no metric: derive it from feal.metrics.Metric"),
        (("from torch", "from no_such_module"), "cannot be imported"),
        (("class Brier", "class Other"), "Brier"),
    ],
)
def test_a_metric_that_breaks_the_contract_is_one_sentence(
    brier: str, tmp_path: Path, change: tuple[str, str], words: str
) -> None:
    path = tmp_path / "broken.py"
    path.write_text(BRIER.replace(*change))
    with pytest.raises(FealError, match=words) as raised:
        find_metrics("classification", [f"{path}:Brier"])
    assert "\n" not in str(raised.value)


class _Broken(Metric):
    name = "broken"

    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value

    def sums(self, batch: EvaluatedBatch) -> Mapping[str, Any]:
        return {"sum": self.value} if self.value is not None else {"sum": batch.logits.no_such}

    def compute(self, statistics: Any, sums: Mapping[str, Any]) -> float | None:
        return float(self.value) if self.value is not None else sums["missing"]


@pytest.mark.parametrize("value", [float("nan"), [1.0, float("inf")], [[1.0]], torch.ones(2, 2)])
def test_sums_that_are_no_finite_numbers_are_refused(value: object) -> None:
    with pytest.raises(FealError, match="The sum sum of the metric broken is not a finite number or vector"):
        extra_sums([_Broken(value)], _batch())


def test_a_metric_that_fails_is_named() -> None:
    with pytest.raises(FealError, match=r"metric broken failed \(AttributeError: .*no_such"):
        extra_sums([_Broken(None)], _batch())
    with pytest.raises(FealError, match=r"metric broken failed \(KeyError"):
        compute_metrics([_Broken(None)], {"a": make_statistics([[1]])})


def test_a_value_that_is_not_finite_is_not_defined() -> None:
    for value in (float("nan"), float("inf")):
        result = compute_metrics([_Broken(value)], {"a": make_statistics([[1]])})
        assert result["broken"] == {"mean": None, "pooled": None, "sites": {"a": None}}


def test_directions_and_titles() -> None:
    assert lower_is_better("calibration_error")
    assert not lower_is_better("roc_auc")
    assert not lower_is_better("unknown")
    assert (title_of("roc_auc"), title_of("brier_score")) == ("ROC-AUC", "brier score")
    assert Bound(0, 1).length is None
