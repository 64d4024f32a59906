"""What a strategy is given, and what it may give back."""

import pytest
import torch

from feal.config import load
from feal.errors import FealError
from feal.selection import Choice, Columns, check_choice
from feal.selection.heeding import unheeded
from feal.selection.strategies.entropy import Entropy

POOL = Columns(["a", "b", "c"], {})


def choice(*ids: str, score: list[float] | None = None) -> Choice:
    return Choice(ids=list(ids), parts={"score": torch.tensor(score or [1.0] * len(ids))})


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
    check_choice(choice(*ids), POOL, 2, strategy="Mine")
    check_choice(choice("a", "b", "c"), POOL, 9, strategy="Mine")
    check_choice(Choice(ids=[]), POOL, 0, strategy="Mine")


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (choice("a"), "Strategy Mine chose 1 samples, 1 different ones of the pool, where 2 were asked for"),
        (choice("a", "b", "c"), "chose 3 samples"),
        (choice("a", "a"), "chose 2 samples, 1 different"),
        (choice("a", "z"), "chose 2 samples, 1 different"),
        (Choice(ids=["a", "b"]), "without a part called score"),
        (choice("a", "b", score=[1.0]), "gave 1 numbers as score"),
        (choice("a", "b", score=[1.0, float("nan")]), "gave sample b a score that is not finite"),
    ],
)
def test_a_bad_choice_is_one_sentence(bad: Choice, sentence: str) -> None:
    with pytest.raises(FealError, match=sentence):
        check_choice(bad, POOL, 2, strategy="Mine")


def test_a_class_heeds_what_it_names_and_all_where_it_names_nothing_itself() -> None:
    class Own(Entropy):
        """Names nothing, so it may look at anything."""

    class Near(Entropy):
        settings = ("selection.n", "evidence.*")

    assert Own.heeds("selection.tau")
    assert [Near.heeds(key) for key in ("selection.n", "evidence.lambda", "selection.tau")] == [True, True, False]
    assert not Entropy.heeds("selection.n")


def test_what_changes_nothing_depends_on_strategy_and_loss() -> None:
    feal, random = (load("demo", {"strategy": name}) for name in ("feal", "random"))
    assert unheeded(feal) == {"selection.scope", "selection.local"}
    assert {"selection.n", "evidence.lambda"} < unheeded(random)
    assert not {"selection.batch_size", "selection.candidates", "evidence.activation"} & unheeded(random)
    assert "evidence.lambda" not in unheeded(load("demo", {"strategy": "random", "loss": "evidential"}))
