"""Margin sampling against its formula."""

from pathlib import Path

import pytest
import torch

from feal.selection.strategies.margin import Margin
from feal.settings import Task
from feal.testing import StrategyContract


class TestMargin(StrategyContract):
    strategy = Margin

    def test_score_is_the_formula(self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path) -> None:
        pool = self.columns(images, task, tmp_path, batch_size=64)
        batch = torch.stack([images[sample] for sample in pool.ids])
        expected = []
        for network in self.networks(task).values():
            with torch.no_grad():
                p = torch.softmax(network(batch).double(), 1).sort(1, descending=True).values
            margin = 1 - (p[:, 0] - p[:, 1])
            expected.append(margin.mean((1, 2)) if task == "segmentation" else margin)
        score = torch.stack(expected).mean(0)
        choice = self.choose(pool, task, 24)
        rows = [pool.ids.index(sample) for sample in choice.ids]
        torch.testing.assert_close(choice.parts["score"], score[rows], rtol=1e-5, atol=1e-6)
        assert choice.ids[:3] == [pool.ids[row] for row in pool_order(choice.parts["score"], rows)[:3]]


def pool_order(score: torch.Tensor, rows: list[int]) -> list[int]:
    return [row for _, row in sorted(zip((-score).tolist(), rows, strict=True))]


class TestMarginEnsemble(TestMargin):
    params = {"query_model": "ensemble"}
    runs = False


def test_a_sure_model_still_has_an_order() -> None:
    from feal.selection.strategies.margin import observe_margin

    context = StrategyContract.context(TestMargin(), "classification")
    margin = observe_margin(torch.tensor([[25.0, 0.0, 0.0], [26.0, 0.0, 0.0]]), context)
    assert float(margin[0]) > float(margin[1]) > 0
    assert float(margin[0]) == pytest.approx(3 * 2.718281828459045**-25, rel=1e-3)
