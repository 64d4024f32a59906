"""MaxHerding against scikit-activeml, and its relatives against brute force."""

import numpy as np
import pytest
import torch
from skactiveml.pool import MaxHerding as Independent

from feal.selection import Columns, Selection
from feal.selection.coverage import quantile_square, smallest_square
from feal.selection.strategies.maxherding import MaxHerding
from feal.selection.strategies.rarity_herding import RarityHerding
from feal.selection.strategies.uherding import UHerding
from feal.testing import StrategyContract
from tests.selection.test_coverage import draw_points, reference


def named(features: torch.Tensor, letter: str = "p", **others: torch.Tensor) -> Columns:
    values = {"features": features, **others} if len(features) else {}
    return Columns([f"{letter}{row:04}" for row in range(len(features))], values)


class TestMaxHerding(StrategyContract):
    strategy = MaxHerding

    def rows(self, pool: Columns, known: Columns, budget: int) -> list[int]:
        choice: Selection = self.build().choose(
            pool, known, self.context("classification"), budget, torch.Generator()
        )
        return [int(sample[1:]) for sample in choice.ids]


@pytest.mark.parametrize("kind", ["random", "clusters", "far from zero"])
@pytest.mark.parametrize("known", [0, 6])
def test_scikit_activeml_chooses_the_same(kind: str, known: int) -> None:
    points = draw_points(kind, 200)
    square = quantile_square(points[known:], 0.1, generator=torch.Generator())
    labels = np.full(len(points), np.nan)
    labels[:known] = 0
    kernel = {"metric": "rbf", "metric_dict": {"gamma": 1 / square}}
    independent = Independent(normalize_samples=False, random_state=0, **kernel)
    # Later, two that cover each other alone are equal, of which it draws one.
    expected = independent.query(points.double().numpy(), labels, batch_size=20)
    chosen = TestMaxHerding().rows(named(points[known:]), named(points[:known], "l"), 20)
    assert [row + known for row in chosen] == expected.tolist()


class TestMaxHerdingQuantile(TestMaxHerding):
    params = {"quantile": 0.5}
    runs = False

    def test_the_quantile_is_the_kernel_s(self) -> None:
        points = draw_points("random")
        square = quantile_square(points, 0.5, generator=torch.Generator())
        expected = reference(points, points[:0], 12, square, np.ones(len(points)))
        assert self.rows(named(points), named(points[:0]), 12) == expected


class TestUHerding(TestMaxHerding):
    strategy = UHerding

    @pytest.mark.parametrize("known", [0, 1, 9])
    def test_choice_is_that_of_brute_force(self, known: int) -> None:
        points = draw_points("random")
        margin = torch.rand(len(points), dtype=torch.float64, generator=torch.Generator().manual_seed(4))
        pool, labelled = points[known:], points[:known]
        square = quantile_square(pool, 0.1, generator=torch.Generator())
        if known > 1:
            square = smallest_square(labelled) or 0.0
        expected = reference(pool, labelled, 20, square, margin[known:].numpy())
        columns = named(pool, margin=margin[known:]), named(labelled, "l", margin=margin[:known])
        assert self.rows(*columns, 20) == expected


class TestRarityHerding(TestMaxHerding):
    strategy = RarityHerding

    def test_choice_is_that_of_brute_force(self) -> None:
        points = draw_points("clusters")
        rarity = torch.rand(len(points), dtype=torch.float64, generator=torch.Generator().manual_seed(4))
        square = quantile_square(points[9:], 0.1, generator=torch.Generator())
        expected = reference(points[9:], points[:9], 20, square, rarity[9:].numpy())
        columns = named(points[9:], rarity=rarity[9:]), named(points[:9], "l", rarity=rarity[:9])
        assert self.rows(*columns, 20) == expected


@pytest.mark.parametrize("strategy", [MaxHerding, UHerding, RarityHerding])
def test_it_wants_the_labelled_samples(strategy: type[MaxHerding]) -> None:
    assert strategy.needs_labelled


@pytest.mark.parametrize("quantile", [-0.1, 1.1])
def test_a_quantile_is_a_share(quantile: float) -> None:
    with pytest.raises(ValueError, match="quantile"):
        MaxHerding(quantile=quantile)
