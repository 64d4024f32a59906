from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from feal.errors import FealError
from feal.federation.site.query import Pool, SelectedPool, allowance, select
from feal.losses import PlainLoss
from feal.rng import Address
from feal.selection import STRATEGIES, Columns, Models, Selection, SelectionContext, Strategy
from feal.selection.base import make_selection
from feal.settings import ceil_share


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
    assert allowance(budget, max_fraction=cap, samples=samples, asked=asked) == expected


@given(st.integers(1, 50), st.floats(0.05, 1.0), st.integers(1, 400))
def test_asking_again_and_again_ends_at_the_cap(budget: int, cap: float, samples: int) -> None:
    asked = 0
    while now := allowance(budget, max_fraction=cap, samples=samples, asked=asked):
        assert now <= budget
        asked += now
    assert asked == ceil_share(cap, samples) <= samples


class Watching(Strategy):
    """Chooses the darkest, and keeps what it was given."""

    needs_labelled = True
    seen: ClassVar[list[Columns | None]] = []

    def observe(self, images: torch.Tensor, models: Models, context: SelectionContext) -> dict[str, torch.Tensor]:
        return {"light": images.flatten(1).mean(1)}

    def choose(
        self,
        pool: Columns,
        labelled: Columns | None,
        context: SelectionContext,
        budget: int,
        generator: torch.Generator,
    ) -> Selection:
        self.seen.append(labelled)
        return make_selection(pool, pool["light"].argsort()[:budget], {"score": -pool["light"]})


def _pool(tmp_path: Path, reads: list[str]) -> Pool:
    light = {
        name: torch.full((3, 4, 4), value) for name, value in zip("abcde", (5.0, 1.0, 3.0, 2.0, 4.0), strict=True)
    }

    def read(ids: Sequence[str]) -> torch.Tensor:
        reads.extend(ids)
        return torch.stack([light[sample] for sample in ids])

    return Pool(
        ids=list("abc"),
        labelled=list("de"),
        read=read,
        networks={},
        scratch=tmp_path,
        device=torch.device("cpu"),
        batch_size=2,
    )


def _context() -> SelectionContext:
    counts = torch.ones(2, dtype=torch.float64)
    return SelectionContext(
        task="classification",
        classes=2,
        site_counts=counts,
        total_counts=counts,
        loss=PlainLoss(),
    )


def _select(
    strategy: Strategy, folder: Path, reads: list[str] | None = None, *, candidates: int | Literal["all"] = "all"
) -> SelectedPool:
    return select(
        strategy,
        _pool(folder, [] if reads is None else reads),
        _context(),
        budget=2,
        candidates=candidates,
        diagnostics=False,
        address=Address(seed=0, purpose="select"),
    )


def test_a_strategy_that_asks_for_them_gets_the_labelled_samples_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    selected = _select(Watching(), tmp_path)
    assert selected.selection.ids == ["b", "c"]
    labelled = Watching.seen.pop()
    assert labelled is not None
    assert labelled.ids == ["d", "e"]
    assert labelled["light"].tolist() == [2, 4]


def test_no_image_is_read_for_nothing(tmp_path: Path) -> None:
    reads: list[str] = []
    selected = _select(STRATEGIES.get("random")(), tmp_path, reads)
    assert len(selected.selection.ids) == 2
    assert reads == []


def test_a_model_that_the_site_does_not_have_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watching, "roles", frozenset({"local_only"}))
    with pytest.raises(FealError, match="local_only"):
        _select(Watching(), tmp_path)


def test_a_part_of_the_pool_is_never_smaller_than_the_budget(tmp_path: Path) -> None:
    assert len(_select(STRATEGIES.get("random")(), tmp_path, candidates=1).selection.ids) == 2


def test_a_choice_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watching, "choose", lambda *_: Selection(ids=["b", "b"]))
    with pytest.raises(FealError, match="Strategy Watching chose 2 samples, 1 different"):
        _select(Watching(), tmp_path)


def test_a_column_of_another_length_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watching, "observe", lambda *_: {"light": torch.ones(1)})
    with pytest.raises(FealError, match=r"The column 'light' has the shape \[1\] for \d samples"):
        _select(Watching(), tmp_path)
