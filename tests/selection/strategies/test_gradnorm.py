"""Gradient norms of the entropy against one backward pass a sample."""

from pathlib import Path

import pytest
import torch

from feal.evidential import concentration, expected_probability
from feal.models import Network
from feal.selection import Columns
from feal.selection.base import RoleModel
from feal.selection.strategies.gradnorm import GradNorm
from feal.settings import Task
from feal.testing import StrategyContract


def brute_force(model: Network, image: torch.Tensor, task: Task, loss: str, scope: str) -> float:
    """Entropy (pixel mean), backward, sum of the tensors' norms."""
    model.zero_grad()
    logits = model(image[None])
    if loss == "evidential":
        p = expected_probability(concentration(logits, squared=task == "segmentation"))
    else:
        p = torch.softmax(logits, dim=1)
    (-(p * p.log()).sum(1)).mean().backward()
    parameters = model.parameters() if scope == "all" else model.head.parameters()
    return sum(float(parameter.grad.norm()) for parameter in parameters)


class TestGradNorm(StrategyContract):
    strategy = GradNorm
    runs = False
    samples = 12

    @pytest.mark.parametrize("loss", ["plain", "evidential"])
    def test_scores_are_the_formula(self, images: dict[str, torch.Tensor], task: Task, loss: str) -> None:
        networks = {role: model.double() for role, model in self.networks(task).items()}
        batch = torch.stack(list(images.values())[:4]).double()
        expected = {
            f"gradient_{role}": torch.tensor(
                [brute_force(model, image, task, loss, self.build().params.scope) for image in batch],
                dtype=torch.float64,
            )
            for role, model in networks.items()
        }
        for model in networks.values():
            model.zero_grad()
        models = {role: RoleModel(model) for role, model in networks.items()}
        context = self.context(task, loss=loss)
        with torch.no_grad():
            found = self.build().observe(batch, models, context)
        assert found.keys() == expected.keys()
        assert max(float(column.max()) for column in expected.values()) > 0
        for name, column in expected.items():
            torch.testing.assert_close(found[name], column, rtol=1e-7, atol=1e-12)
        for model in models.values():
            assert model._output is None or not model._output.logits.requires_grad
            assert all(parameter.grad is None for parameter in model.module.parameters())

    def test_takes_the_largest_sum(self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path) -> None:
        pool = self.columns(images, task, tmp_path)
        score = sum(pool[f"gradient_{role}"] for role in self.networks(task))
        order = sorted(range(len(pool)), key=lambda row: (-float(score[row]), row))[:7]
        choice = self.choose(pool, task, 7)
        assert choice.ids == [pool.ids[row] for row in order]
        torch.testing.assert_close(choice.parts["score"], score[order])

    def test_columns_of_others_do_not_count(self, task: Task) -> None:
        own = {
            f"gradient_{role}": torch.tensor([1.0, 2.0], dtype=torch.float64)
            for role in self.build().required_roles()
        }
        pool = Columns(["a", "b"], {**own, "energy": torch.tensor([9.0, 0.0], dtype=torch.float64)})
        assert self.choose(pool, task, 1).ids == ["b"]


class TestLocal(TestGradNorm):
    params = {"query_model": "local"}


class TestEnsemble(TestGradNorm):
    runs = True
    params = {"query_model": "ensemble"}


class TestHead(TestGradNorm):
    params = {"scope": "head"}
