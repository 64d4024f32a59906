"""Two strategies in one selection."""

from pathlib import Path
from typing import Any

import pytest
import torch

from feal.config import load
from feal.errors import FealError
from feal.selection import Columns, build_strategy
from feal.selection.strategies.entropy import Entropy
from feal.selection.strategies.mixed import Mixed
from feal.selection.strategies.random import Random
from feal.settings import Component, Task
from feal.testing import StrategyContract


class TestMixed(StrategyContract):
    strategy = Mixed
    draws = True

    def test_the_control_is_what_random_draws_from_the_whole_pool(self, pool: Columns, task: Task) -> None:
        choice = self.choose(pool, task, 10)
        first, second = choice.ids[:8], choice.ids[8:]
        draw = torch.Generator().manual_seed(0)
        plain = Random().choose(Columns(pool.ids, {}), None, self.context(task), 2, draw)
        assert second == plain.ids
        assert choice.parts["arm"].tolist() == [0.0] * 8 + [1.0] * 2
        assert not set(first) & set(second)


class TestMixedOfTwoThatLook(StrategyContract):
    strategy = Mixed
    params = {"first": {"name": "entropy", "query_model": "local"}, "second": "entropy", "share": 0.5}

    def test_the_second_chooses_among_what_is_left(
        self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path
    ) -> None:
        pool = self.columns(images, task, tmp_path)
        assert set(pool.values) == {"first.entropy_local", "second.entropy_global"}
        choice = self.choose(pool, task, 8)
        alone = Entropy(query_model="local").choose(
            Columns(pool.ids, {"entropy_local": pool["first.entropy_local"]}),
            None,
            self.context(task),
            4,
            torch.Generator(),
        )
        assert choice.ids[:4] == alone.ids
        order = pool["second.entropy_global"].argsort(descending=True, stable=True).tolist()
        rest = [pool.ids[row] for row in order if pool.ids[row] not in alone.ids]
        assert choice.ids[4:] == rest[:4]


class TestMixedCoverage(StrategyContract):
    strategy = Mixed
    params = {"first": "uherding", "second": "badge", "share": 0.6}
    draws = True
    runs = False


@pytest.mark.parametrize(("share", "count"), [(0, 0), (0.25, 2), (0.5, 3), (0.8, 4), (1, 5)])
def test_shares_are_rounded(share: float, count: int) -> None:
    pool = Columns([f"{row:02}" for row in range(20)], {})
    strategy = Mixed(first="random", second="random", share=share)
    context = StrategyContract.context(TestMixed(), "classification")
    choice = strategy.choose(pool, None, context, 5 if share != 0.25 else 6, torch.Generator())
    assert choice.parts["arm"].tolist().count(0.0) == count
    assert len(set(choice.ids)) == len(choice.ids)


def test_what_it_needs_is_what_its_parts_need() -> None:
    nothing = Mixed(first="random", second="random")
    assert not nothing.needs_images
    assert not nothing.required_roles()
    assert Mixed(first="coreset").needs_labelled
    assert not Mixed(first="entropy").needs_labelled
    assert not Mixed(first="gradnorm").folds_batch_norms
    assert Mixed(first="entropy", second="kafal").required_roles() == {"global", "local"}
    assert Mixed(first={"name": "tod", "epochs": 70}).training_epochs == 70


def test_a_configuration_names_both() -> None:
    changes: dict[str, Any] = {"strategy": {"name": "mixed", "first": {"name": "maxherding", "quantile": 0.2}}}
    settings = load("demo", changes)
    assert build_strategy(settings.strategy).params.first == Component(name="maxherding", quantile=0.2)
    assert load("demo", {"strategy": "mixed", "strategy.first": "badge"}).strategy.params["share"] == 0.8


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"first": "full"}, "mixed cannot have full as a part"),
        ({"second": "mixed"}, "mixed cannot have mixed as a part"),
        ({"first": "maxhreding"}, "did you mean 'maxherding'"),
        ({"first": {"name": "maxherding", "quantil": 0.1}}, "did you mean 'quantile'"),
        ({"first": "own.py:Mine"}, "There is no strategy 'own.py:Mine'"),
    ],
)
def test_parts_that_do_not_fit(params: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FealError, match=sentence):
        Mixed(**params)


def test_a_part_for_another_task_is_refused() -> None:
    strategy = Mixed(first="clasp-pe")
    with pytest.raises(FealError, match="clasp-pe is for segmentation"):
        strategy.observe(torch.zeros(1), {}, StrategyContract.context(TestMixed(), "classification"))
