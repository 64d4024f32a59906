from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from feal.errors import FealError
from feal.federation.pool import Pool
from feal.federation.querying import allowance, label_limit, select
from feal.randomness import Address
from feal.selection import STRATEGIES, Choice, Columns, Context, Models, Strategy
from feal.selection.contract import chosen
from feal.settings import Evidence, Selection, Settings


def _settings(**changes: object) -> Settings:
    return Settings(dataset="d", model="m", **changes)


@pytest.mark.parametrize(
    ("budget", "cap", "samples", "asked", "expected"),
    [
        (10, 0.85, 100, 0, 10),
        (10, 0.85, 100, 80, 5),
        (10, 0.85, 100, 85, 0),
        (10, 1.0, 7, 0, 7),
        (0.1, 0.85, 99, 0, 9),
        (0.29, 1.0, 100, 0, 29),
        (0.001, 0.85, 100, 0, 0),
        (500, 0.85, 20, 0, 17),
        (3, 0.85, 1, 0, 1),
    ],
)
def test_allowance(budget: float, cap: float, samples: int, asked: int, expected: int) -> None:
    assert allowance(_settings(budget=budget, cap=cap), samples=samples, asked=asked) == expected


@given(st.integers(1, 50), st.floats(0.05, 1.0), st.integers(1, 400))
def test_asking_again_and_again_ends_at_the_cap(budget: int, cap: float, samples: int) -> None:
    settings = _settings(budget=budget, cap=cap)
    asked = 0
    while now := allowance(settings, samples=samples, asked=asked):
        assert now <= budget
        asked += now
    assert asked == label_limit(settings, samples=samples) <= samples


class Watching(Strategy):
    """Chooses the darkest, and keeps what it was given."""

    needs_labelled = True
    seen: ClassVar[list[Columns | None]] = []

    def observe(self, images: torch.Tensor, models: Models, context: Context) -> dict[str, torch.Tensor]:
        return {"light": images.flatten(1).mean(1)}

    def choose(
        self,
        pool: Columns,
        labelled: Columns | None,
        context: Context,
        budget: int,
        generator: torch.Generator,
    ) -> Choice:
        self.seen.append(labelled)
        return chosen(pool, pool["light"].argsort()[:budget], {"score": -pool["light"]})


def _pool(tmp_path: Path, reads: list[str]) -> Pool:
    light = {
        name: torch.full((3, 4, 4), value) for name, value in zip("abcde", (5.0, 1.0, 3.0, 2.0, 4.0), strict=True)
    }

    def read(ids: Sequence[str]) -> torch.Tensor:
        reads.extend(ids)
        return torch.stack([light[sample] for sample in ids])

    return Pool(
        ids=list("abc"), labelled=list("de"), read=read, networks={}, scratch=tmp_path, device=torch.device("cpu")
    )


def _context() -> Context:
    counts = torch.ones(2, dtype=torch.float64)
    return Context(
        task="classification",
        classes=2,
        site_counts=counts,
        total_counts=counts,
        selection=Selection(),
        evidence=Evidence(),
        loss="plain",
    )


def test_a_strategy_that_asks_for_them_gets_the_labelled_samples_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STRATEGIES._entries, "watching", Watching)
    settings = _settings(strategy="watching", diagnostics=False)
    address = Address(seed=0, purpose="select")
    selected = select(_pool(tmp_path, []), _context(), settings, budget=2, address=address)
    assert selected.choice.ids == ["b", "c"]
    labelled = Watching.seen.pop()
    assert labelled is not None
    assert labelled.ids == ["d", "e"]
    assert labelled["light"].tolist() == [2, 4]


def test_no_image_is_read_for_nothing(tmp_path: Path) -> None:
    reads: list[str] = []
    settings = _settings(strategy="random", diagnostics=False)
    address = Address(seed=0, purpose="select")
    selected = select(_pool(tmp_path, reads), _context(), settings, budget=2, address=address)
    assert len(selected.choice.ids) == 2
    assert reads == []


def test_a_model_that_the_site_does_not_have_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watching, "roles", frozenset({"local_only"}))
    monkeypatch.setitem(STRATEGIES._entries, "watching", Watching)
    settings = _settings(strategy="watching", diagnostics=False)
    with pytest.raises(FealError, match="local_only"):
        select(_pool(tmp_path, []), _context(), settings, budget=2, address=Address(seed=0, purpose="select"))


def test_a_part_of_the_pool_is_never_smaller_than_the_budget(tmp_path: Path) -> None:
    settings = _settings(strategy="random", diagnostics=False, selection={"candidates": 1})
    address = Address(seed=0, purpose="select")
    assert len(select(_pool(tmp_path, []), _context(), settings, budget=2, address=address).choice.ids) == 2


def test_a_choice_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watching, "choose", lambda *_: Choice(ids=["b", "b"]))
    monkeypatch.setitem(STRATEGIES._entries, "watching", Watching)
    settings = _settings(strategy="watching", diagnostics=False)
    with pytest.raises(FealError, match="Strategy Watching chose 2 samples, 1 different"):
        select(_pool(tmp_path, []), _context(), settings, budget=2, address=Address(seed=0, purpose="select"))


def test_a_column_of_another_length_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watching, "observe", lambda *_: {"light": torch.ones(1)})
    monkeypatch.setitem(STRATEGIES._entries, "watching", Watching)
    settings = _settings(strategy="watching", diagnostics=False)
    with pytest.raises(FealError, match=r"The column 'light' has the shape \[1\] for \d samples"):
        select(_pool(tmp_path, []), _context(), settings, budget=2, address=Address(seed=0, purpose="select"))
