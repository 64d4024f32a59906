from pathlib import Path

import numpy as np
import pytest
import torch

from feal.analysis.concentrations import mean_concentrations
from feal.analysis.simplex import log_density
from feal.errors import FealError
from tests.analysis.fabricated import fabricated

LOGITS = torch.tensor([[4.0, 1.0, -1.0], [2.0, 0.0, 1.0], [0.0, 3.0, 1.0]])


def test_means_by_hand(tmp_path: Path) -> None:
    rows = mean_concentrations({"round 1": [(fabricated(tmp_path), LOGITS)]})
    assert [row["predicted"] for row in rows] == ["a", "b", "c"]
    found = [[row[f"alpha_{letter}"] for letter in "abc"] for row in rows]
    assert found == [[4.0, 1.5, 1.5], [1.0, 4.0, 2.0], [None] * 3]
    assert [row["samples"] for row in rows] == [2, 1, 0]
    assert {row["column"] for row in rows} == {"round 1"}


def test_the_mean_concentration_is_that_of_the_geometric_mean_of_densities(tmp_path: Path) -> None:
    row = mean_concentrations({"x": [(fabricated(tmp_path), LOGITS[:2])]})[0]
    points = np.random.default_rng(0).dirichlet(np.ones(3), 6)
    each = [log_density(logits.clamp(min=0) + 1, points) for logits in LOGITS[:2]]
    apart = log_density([row[f"alpha_{letter}"] for letter in "abc"], points) - np.mean(each, axis=0)
    assert apart == pytest.approx(apart[0])


def test_three_of_many_classes_are_those_predicted_most_often_or_named(tmp_path: Path) -> None:
    run = fabricated(tmp_path, classes="abcde")
    logits = 5.0 * torch.eye(5)[[4, 4, 4, 1, 1, 3, 0, 3]] + torch.arange(5) / 10
    rows = mean_concentrations({"one": [(run, logits[:3])], "two": [(run, logits[3:])]})
    assert [row["predicted"] for row in rows] == ["b", "d", "e"] * 2
    assert [row["samples"] for row in rows] == [0, 0, 3, 2, 2, 0]
    assert [rows[2][f"alpha_{letter}"] for letter in "abc"] == pytest.approx([1.1, 1.3, 6.4])
    named = mean_concentrations({"all": [(run, logits)]}, classes=["e", "a", "c"])
    assert [(row["predicted"], row["samples"]) for row in named] == [("e", 3), ("a", 1), ("c", 0)]
    assert (named[0]["class_a"], named[0]["class_b"], named[0]["class_c"]) == ("e", "a", "c")


def test_samples_without_any_evidence_stand_by_their_logits(tmp_path: Path) -> None:
    rows = mean_concentrations({"x": [(fabricated(tmp_path), torch.tensor([[-3.0, -2.0, -1.0]]))]})
    assert [row["samples"] for row in rows] == [0, 0, 1]
    assert [rows[2][f"alpha_{letter}"] for letter in "abc"] == [1, 1, 1]


def test_nothing_where_there_is_no_triangle(tmp_path: Path) -> None:
    two = fabricated(tmp_path, classes="ab")
    assert mean_concentrations({"x": [(two, torch.ones(4, 2))]}) == []
    assert mean_concentrations({"x": [(fabricated(tmp_path), torch.empty(0, 3))]}) == []
    assert mean_concentrations({}) == []


@pytest.mark.parametrize(
    ("classes", "what"),
    [
        (["a", "b"], "three different classes"),
        (["a", "b", "b"], "three different"),
        (["a", "b", "z"], "no class 'z'"),
    ],
)
def test_other_than_three_known_classes_are_refused(tmp_path: Path, classes: list[str], what: str) -> None:
    with pytest.raises(FealError, match=what):
        mean_concentrations({"x": [(fabricated(tmp_path), LOGITS)]}, classes=classes)
