"""ClaSP-PE against its formulas."""

from pathlib import Path

import pytest
import torch

from feal.config import load
from feal.errors import FealError
from feal.selection import Columns
from feal.selection.strategies.clasp_pe import ClaspPe, sharpness
from feal.settings import Task
from feal.testing import StrategyContract


class TestClaspPe(StrategyContract):
    strategy = ClaspPe
    draws = True

    def test_columns_are_the_formulas(self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path) -> None:
        pool = self.columns(images, task, tmp_path, batch_size=64)
        with torch.no_grad():
            logits = self.networks(task)["global"](torch.stack([images[sample] for sample in pool.ids])).double()
        p = torch.softmax(logits, 1)
        entropy = -(p * p.clamp(min=1e-300).log()).sum(1)
        torch.testing.assert_close(pool["entropy"], entropy.mean((1, 2)), rtol=1e-4, atol=1e-6)
        expected = (entropy[:, None] * p).mean((2, 3)).float()
        torch.testing.assert_close(pool["class_entropy"], expected, rtol=1e-3, atol=1e-6)

    def pool_of(self, by_class: torch.Tensor) -> Columns:
        ids = [f"{row:03}" for row in range(len(by_class))]
        return Columns(ids, {"entropy": by_class.sum(1).double(), "class_entropy": by_class})

    def test_late_choices_follow_the_scores(self) -> None:
        by_class = torch.full((12, 3), 1e-9)
        by_class[[2, 4], [1, 1]] = torch.tensor([9e3, 8e3])
        by_class[[7, 9], [2, 2]] = torch.tensor([9e2, 8e2])
        by_class[:, 0] = torch.arange(12) * 100.0
        context = self.context("segmentation", round=9, rounds=10)
        choice = ClaspPe().choose(self.pool_of(by_class), None, context, 6, torch.Generator().manual_seed(0))
        assert choice.ids[:4] == ["002", "007", "004", "009"]
        assert choice.parts["class"].tolist() == [1, 2, 1, 2, 0, 0]
        assert choice.ids[4:] == ["011", "010"]

    def test_early_choices_are_drawn(self) -> None:
        by_class = torch.rand(40, 3, generator=torch.Generator().manual_seed(0)) + 0.1
        context = self.context("segmentation", round=1, rounds=10)
        found = {
            ClaspPe().choose(self.pool_of(by_class), None, context, 1, torch.Generator().manual_seed(seed)).ids[0]
            for seed in range(60)
        }
        assert len(found) > 15


@pytest.mark.parametrize(
    ("number", "rounds", "beta"),
    [(1, 2, 1), (1, 1, 1), (1, 6, 1), (3, 6, 10), (5, 6, 100), (2, 3, 100), (9, 3, 100)],
)
def test_beta_grows_from_1_to_100(number: int, rounds: int, beta: float) -> None:
    context = TestClaspPe().context("segmentation", round=number, rounds=rounds)
    assert sharpness(context) == pytest.approx(beta)


def test_a_run_of_another_task_is_refused_before_it_starts() -> None:
    with pytest.raises(FealError, match="clasp-pe is for segmentation, not for classification"):
        load("demo", {"strategy": "clasp-pe"})
    assert load("demo-polyps", {"strategy": "clasp-pe"}).strategy.params == {"stratified": 0.66}
