"""Temporal output discrepancy against the formula in float64."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import softmax

from feal.selection import Columns, Role, RoleModel
from feal.selection.strategies.tod import Tod
from feal.settings import Task
from feal.testing import StrategyContract


class TestGlobal(StrategyContract):
    strategy = Tod
    runs = False
    now: Role = "global"
    before: Role = "global_previous"

    def test_looks_at_a_model_and_an_earlier_one(self) -> None:
        roles = self.build().required_roles()
        assert roles == {self.now, self.before}
        assert roles <= Tod.roles

    @pytest.mark.parametrize("loss", ["plain", "evidential", "balanced"])
    @pytest.mark.parametrize("scale", [1e-2, 1.0, 1e3])
    def test_is_half_the_squared_distance_of_the_losses_probabilities(
        self, images: dict[str, torch.Tensor], task: Task, loss: str, scale: float
    ) -> None:
        networks = self.networks(task)
        for network in networks.values():
            network.head.weight.data.mul_(scale)
        batch = torch.stack(list(images.values()))
        models = {role: RoleModel(network) for role, network in networks.items()}
        with torch.no_grad():
            found = self.build().observe(batch, models, self.context(task, loss=loss))["discrepancy"]
            now, before = (networks[role](batch).double().numpy() for role in (self.now, self.before))
        gap = _probability(now, loss, task) - _probability(before, loss, task)
        truth = (gap**2).sum(1).reshape(len(batch), -1).mean(1) / 2
        np.testing.assert_allclose(found, truth, rtol=0, atol=1e-6)
        assert found.dtype == torch.float64
        assert found.min() >= 0
        assert found.max() <= 1 + 1e-6

    def test_takes_the_largest(self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path) -> None:
        pool = self.columns(images, task, tmp_path)
        choice = self.choose(pool, task, 6)
        discrepancy = pool["discrepancy"].tolist()
        largest = sorted(range(len(pool)), key=lambda row: (-discrepancy[row], row))[:6]
        assert choice.ids == [pool.ids[row] for row in largest]
        assert choice.parts["score"].tolist() == [discrepancy[row] for row in largest]

    def test_a_model_that_has_not_changed_leaves_ids_to_decide(
        self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path
    ) -> None:
        networks = self.networks(task)
        networks[self.before].load_state_dict(networks[self.now].state_dict())
        choice = self.choose(self.columns(images, task, tmp_path, networks=networks), task, 6)
        assert choice.ids == sorted(images)[:6]
        assert not choice.parts["score"].any()

    def test_models_that_are_sure_of_different_classes_are_1_apart(self, task: Task) -> None:
        ids = ["same", "opposite"]
        networks = self.networks(task)
        for network, signs in zip(
            (networks[self.now], networks[self.before]), ([1, 0, 0], [0, 1, 0]), strict=True
        ):
            network.head.weight.data.zero_()
            network.head.bias.data.copy_(1e3 * torch.tensor(signs))
        models = {role: RoleModel(network) for role, network in networks.items()}
        with torch.no_grad():
            found = self.build().observe(torch.zeros(2, 3, 32, 32), models, self.context(task))
        assert Columns(ids, found)["discrepancy"].tolist() == [1.0, 1.0]


class TestLocal(TestGlobal):
    params = {"query_model": "local"}
    now = "local"
    before = "local_previous"


class TestEnsemble(TestGlobal):
    runs = True
    params = {"query_model": "ensemble", "epochs": 3}
    now = "finetuned"
    before = "local_previous"


def _probability(logits: np.ndarray, loss: str, task: Task) -> np.ndarray:
    if loss != "evidential":
        return softmax(logits, axis=1)
    alpha = (np.maximum(logits, 0) + 1) ** (2 if task == "segmentation" else 1)
    return alpha / alpha.sum(1, keepdims=True)
