"""Random choices in strata of what is predicted."""

from collections import Counter
from pathlib import Path

import pytest
import torch

from feal.config import load
from feal.errors import FealError
from feal.selection import Columns
from feal.selection.strategies.random_class import RandomClass
from feal.selection.strategies.random_foreground import RandomForeground
from feal.settings import Task
from feal.testing import StrategyContract


class TestRandomForeground(StrategyContract):
    strategy = RandomForeground
    draws = True

    def chosen(self, share: torch.Tensor, budget: int, seed: int = 0) -> list[int]:
        pool = Columns([f"{row:03}" for row in range(len(share))], {"foreground": share.double()})
        return [int(sample) for sample in self.choose(pool, "segmentation", budget, seed=seed).ids]

    def test_column_is_the_share_of_pixels(
        self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path
    ) -> None:
        pool = self.columns(images, task, tmp_path, batch_size=64)
        with torch.no_grad():
            logits = self.networks(task)["global"](torch.stack([images[sample] for sample in pool.ids]))
        torch.testing.assert_close(
            pool["foreground"], (logits.argmax(1) > 0).double().mean((1, 2)), rtol=0, atol=0.002
        )

    def test_two_thirds_have_much_foreground_and_the_rest_are_uniform(self) -> None:
        share = torch.cat((torch.zeros(50), torch.linspace(0.01, 0.5, 50)))
        counts = Counter[int]()
        for seed in range(400):
            rows = self.chosen(share, 12, seed)
            assert all(row >= 75 for row in rows[:8])
            counts.update(rows[8:])
        # 17 of 92 that are left have much foreground.
        assert sum(counts[row] for row in range(75, 100)) / 1600 == pytest.approx(17 / 92, abs=0.04)
        assert sum(counts[row] for row in range(50)) / 1600 == pytest.approx(50 / 92, abs=0.05)

    def test_too_few_are_filled_up(self) -> None:
        assert 4 in self.chosen(torch.tensor([0.0, 0, 0, 0, 0.2]), 4)
        assert len(set(self.chosen(torch.zeros(9), 6))) == 6


class TestRandomClass(StrategyContract):
    strategy = RandomClass
    draws = True

    def test_each_class_has_its_turn(self) -> None:
        predicted = torch.tensor([0.0] * 50 + [1.0] * 6 + [2.0] * 2, dtype=torch.float64)
        pool = Columns([f"{row:03}" for row in range(58)], {"predicted": predicted})
        choice = self.choose(pool, "classification", 12)
        assert Counter(choice.parts["class"].tolist()) == {0.0: 5, 1.0: 5, 2.0: 2}
        assert sorted(choice.parts["class"].tolist()[:3]) == [0, 1, 2]

    def test_every_sample_of_a_class_is_as_likely(self) -> None:
        pool = Columns([f"{row:03}" for row in range(4)], {"predicted": torch.zeros(4, dtype=torch.float64)})
        counts = Counter(self.choose(pool, "classification", 1, seed=seed).ids[0] for seed in range(400))
        assert min(counts.values()) > 70


def test_a_run_of_another_task_is_refused_before_it_starts() -> None:
    with pytest.raises(FealError, match="random-class is for classification"):
        load("demo-polyps", {"strategy": "random-class"})
