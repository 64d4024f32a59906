"""Core-set against its description."""

from pathlib import Path

import pytest
import torch

from feal.selection import Columns, Selection
from feal.selection.strategies.coreset import Coreset
from feal.settings import Task
from feal.testing import StrategyContract


def reference(pool: torch.Tensor, labelled: torch.Tensor, budget: int) -> list[int]:
    """Always the row farthest from all centres, by all distances in float64; the first row if there is none."""
    rows: list[int] = []
    for _ in range(min(budget, len(pool))):
        centres = torch.cat((labelled, pool[rows])).double()
        apart = [float((centres - row).square().sum(1).min()) if len(centres) else 0.0 for row in pool.double()]
        rows.append(max((row for row in range(len(pool)) if row not in rows), key=lambda row: (apart[row], -row)))
    return rows


def named(features: torch.Tensor, letter: str = "p") -> Columns:
    values = {"features": features} if len(features) else {}
    return Columns([f"{letter}{row:03}" for row in range(len(features))], values)


class TestCoreset(StrategyContract):
    strategy = Coreset
    runs = False

    def chosen(self, pool: torch.Tensor, labelled: torch.Tensor, budget: int) -> Selection:
        columns = named(pool), named(labelled, "l")
        return Coreset().choose(*columns, self.context("classification"), budget, torch.Generator())

    def test_columns_are_the_features(self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path) -> None:
        pool = self.columns(images, task, tmp_path, batch_size=64)
        batch = torch.stack([images[sample] for sample in pool.ids])
        with torch.no_grad():
            features = [network.outputs(batch).features for network in self.networks(task).values()]
        assert len(features) == (2 if self.params.get("query_model") == "ensemble" else 1)
        torch.testing.assert_close(pool["features"], sum(features) / len(features))

    @pytest.mark.parametrize("known", [0, 1, 6])
    def test_covers_what_is_not_labelled(
        self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path, known: int
    ) -> None:
        features = self.columns(images, task, tmp_path)["features"]
        choice = self.chosen(features[known:], features[:known], 9)
        expected = reference(features[known:], features[:known], 9)
        assert choice.ids == [f"p{row:03}" for row in expected]
        first = (
            0.0
            if not known
            else min(float((features[known + expected[0]] - row).norm()) for row in features[:known])
        )
        assert float(choice.parts["score"][0]) == pytest.approx(first, rel=1e-5)

    @pytest.mark.parametrize("kind", ["random", "clusters", "copies", "all equal", "zero"])
    @pytest.mark.parametrize("known", [0, 5])
    def test_agrees_with_brute_force(self, kind: str, known: int) -> None:
        draw = torch.Generator().manual_seed(3)
        noise = torch.randn((60, 16), generator=draw)
        centre = torch.randn((4, 16), generator=draw)[torch.randint(4, (60,), generator=draw)]
        features = {
            "random": noise,
            "clusters": centre + 0.05 * noise,
            "copies": noise[torch.randint(9, (60,), generator=draw)],
            "all equal": torch.full((60, 16), 0.3),
            "zero": 0 * noise,
        }[kind]
        for budget in (1, 12, 80):
            choice = self.chosen(features[known:], features[:known], budget)
            assert choice.ids == [f"p{row:03}" for row in reference(features[known:], features[:known], budget)]

    def test_scores_are_the_distances_at_the_pick(self) -> None:
        choice = self.chosen(torch.tensor([[1.0], [4.0], [9.0]]), torch.tensor([[0.0], [2.0]]), 3)
        assert choice.ids == ["p002", "p001", "p000"]
        assert choice.parts["score"].tolist() == [7, 2, 1]
        assert self.chosen(torch.tensor([[1.0], [4.0]]), torch.empty(0, 1), 2).parts["score"].tolist() == [0, 3]

    def test_it_wants_the_labelled_samples(self) -> None:
        assert Coreset.needs_labelled


class TestCoresetLocal(TestCoreset):
    params = {"query_model": "local"}


class TestCoresetEnsemble(TestCoreset):
    runs = True
    params = {"query_model": "ensemble"}
