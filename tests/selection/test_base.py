"""What a strategy is given, and what it may give back."""

import pytest
import torch

from feal.errors import FealError
from feal.selection import Columns, Selection, validate_selection

POOL = Columns(["a", "b", "c"], {})


def choice(*ids: str, score: list[float] | None = None) -> Selection:
    return Selection(ids=list(ids), parts={"score": torch.tensor(score or [1.0] * len(ids))})


def test_columns_are_sorted_by_id_with_their_values() -> None:
    columns = Columns(["c", "a", "b"], {"x": torch.tensor([3.0, 1.0, 2.0]), "wide": torch.eye(3)})
    assert columns.ids == ["a", "b", "c"]
    assert columns["x"].tolist() == [1, 2, 3]
    assert torch.equal(columns["wide"], torch.eye(3)[[1, 2, 0]])


def test_sorted_columns_are_not_copied() -> None:
    values = {"x": torch.zeros(2)}
    assert Columns(["a", "b"], values)["x"] is values["x"]


def test_an_empty_pool_has_empty_columns() -> None:
    assert Columns([], {})["anything"].shape == (0,)


@pytest.mark.parametrize("ids", [("a", "b"), ("c", "a")])
def test_a_good_choice_passes(ids: tuple[str, ...]) -> None:
    validate_selection(choice(*ids), POOL, 2, strategy="Mine")
    validate_selection(choice("a", "b", "c"), POOL, 9, strategy="Mine")
    validate_selection(Selection(ids=[]), POOL, 0, strategy="Mine")


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (choice("a"), "Strategy Mine chose 1 samples, 1 different ones of the pool, where 2 were asked for"),
        (choice("a", "b", "c"), "chose 3 samples"),
        (choice("a", "a"), "chose 2 samples, 1 different"),
        (choice("a", "z"), "chose 2 samples, 1 different"),
        (Selection(ids=["a", "b"]), "without a part called score"),
        (choice("a", "b", score=[1.0]), "gave 1 numbers as score"),
        (choice("a", "b", score=[1.0, float("nan")]), "gave sample b a score that is not finite"),
    ],
)
def test_a_bad_choice_is_one_sentence(bad: Selection, sentence: str) -> None:
    with pytest.raises(FealError, match=sentence):
        validate_selection(bad, POOL, 2, strategy="Mine")
