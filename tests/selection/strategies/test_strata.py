"""Rare and different, against its formulas."""

from pathlib import Path

import pytest
import torch

from feal.selection import Columns, RoleModel
from feal.selection.kmeans import k_means
from feal.selection.strategies.strata import ITERATIONS, Strata
from feal.settings import Task
from feal.testing import StrategyContract
from tests.selection.test_kmeans import blobs, plain_picking


def pool_of(deep: torch.Tensor, rarity: torch.Tensor) -> Columns:
    values = {"deep": deep, "rarity": rarity, "margin": torch.ones_like(rarity)}
    return Columns([f"{row:04}" for row in range(len(deep))], values)


class TestStrata(StrategyContract):
    strategy = Strata
    draws = True

    @pytest.mark.parametrize("loss", ["balanced", "evidential"])
    @pytest.mark.parametrize("counts", [[15.0, 6.0, 0.0], [0.0, 0.0, 0.0], [0.0, 400.0, 0.0], [7.0, 7.0, 7.0]])
    def test_rarity_is_the_formula(
        self, images: dict[str, torch.Tensor], task: Task, loss: str, counts: list[float]
    ) -> None:
        networks = self.networks(task)
        batch = torch.stack(list(images.values()))
        context = self.context(task, loss=loss, total_counts=torch.tensor(counts, dtype=torch.float64))
        with torch.no_grad():
            columns = Strata().observe(batch, {role: RoleModel(networks[role]) for role in networks}, context)
            both: torch.Tensor | float = 0.0
            for network in networks.values():
                logits = network(batch).double()
                if loss == "evidential":
                    alpha = (logits.relu() + 1) ** (2 if task == "segmentation" else 1)
                    p = alpha / alpha.sum(1, keepdim=True)
                else:
                    p = torch.softmax(logits, 1)
                both = both + p / 2
            assert isinstance(both, torch.Tensor)
            ordered = both.sort(1, descending=True).values
            margin = 1 - (ordered[:, 0] - ordered[:, 1])
            if task == "segmentation":
                both, margin = both.mean((2, 3)), margin.mean((1, 2))
            deep = networks["local"].outputs(batch).deep
        total = sum(counts) if task == "segmentation" and sum(counts) else 1.0
        expected = [sum(float(p) / (n / total + 1) for p, n in zip(row, counts, strict=True)) for row in both]
        torch.testing.assert_close(
            columns["rarity"], torch.tensor(expected, dtype=torch.float64), rtol=1e-5, atol=0
        )
        torch.testing.assert_close(columns["margin"], margin, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(columns["deep"], deep)

    def score(self, pool: Columns) -> torch.Tensor:
        parts = {"rarity": pool["rarity"], "margin": pool["margin"]}
        return parts.get(self.params.get("score", ""), pool["rarity"] * pool["margin"])

    @pytest.mark.parametrize("budget", [1, 5, 24])
    def test_takes_the_best_of_each_cluster(
        self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path, budget: int
    ) -> None:
        pool = self.columns(images, task, tmp_path)
        score, draw = self.score(pool), torch.Generator().manual_seed(0)
        clusters = round(self.params.get("k", 1) * budget)
        labels = k_means(pool["deep"], clusters, generator=draw, iterations=ITERATIONS)
        rows = plain_picking(labels.tolist(), score.tolist(), budget)
        choice = self.choose(pool, task, budget)
        assert choice.ids == [pool.ids[row] for row in rows]
        assert torch.equal(choice.parts["score"], score[rows])
        assert torch.equal(choice.parts["cluster"], labels[rows])


class TestStrataRarity(TestStrata):
    params = {"score": "rarity"}
    runs = False

    def test_one_of_each_cluster_far_apart(self, task: Task) -> None:
        deep = blobs(8, 12)
        rarity = torch.rand(96, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        near = torch.cdist(deep, deep) < 50
        expected = [row for row in range(96) if rarity[row] == rarity[near[row]].max()]
        choice = self.choose(pool_of(deep, rarity), task, 8)
        assert choice.ids == [f"{row:04}" for row in sorted(expected, key=lambda row: -rarity[row])]

    def test_equal_features_leave_the_rarity_to_decide(self, task: Task) -> None:
        rarity = torch.tensor([0.2, 0.9, 0.9, 0.1, 0.5], dtype=torch.float64)
        choice = self.choose(pool_of(torch.zeros(5, 4), rarity), task, 3)
        assert choice.ids == ["0001", "0002", "0004"]


class TestStrataMargin(TestStrata):
    params = {"score": "margin"}
    runs = False


class TestStrataMoreClusters(TestStrata):
    params = {"k": 2}
    runs = False

    def test_of_the_best_of_each_the_best_are_taken(self, task: Task) -> None:
        deep = blobs(8, 12)
        rarity = torch.rand(96, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        near = torch.cdist(deep, deep) < 50
        best = [row for row in range(96) if rarity[row] == rarity[near[row]].max()]
        expected = sorted(best, key=lambda row: -rarity[row])[:4]
        assert self.choose(pool_of(deep, rarity), task, 4).ids == [f"{row:04}" for row in expected]


@pytest.mark.parametrize("params", [{"k": 0.5}, {"score": "rare"}])
def test_parameters_out_of_range(params: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(params))):
        Strata(**params)
