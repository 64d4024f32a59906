"""Entropy sampling against the formula in float64."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import entropy

from feal.selection import Columns, RoleModel
from feal.selection.strategies.entropy import Entropy
from feal.settings import Component, Task
from feal.testing import StrategyContract


class TestGlobal(StrategyContract):
    strategy = Entropy
    runs = False
    asked = ("global",)

    def test_looks_at_the_models_that_are_asked(self) -> None:
        roles = self.build().required_roles()
        assert roles == set(self.asked)

    def test_takes_the_largest_mean_entropy(
        self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path
    ) -> None:
        networks = self.networks(task)
        batch = torch.stack([images[sample] for sample in sorted(images)])
        with torch.no_grad():
            logits = {role: networks[role](batch).double().numpy() for role in self.asked}
        each = {role: _per_image(entropy(softmax(z, axis=1), axis=1)) for role, z in logits.items()}
        score = np.mean(list(each.values()), axis=0)

        pool = self.columns(images, task, tmp_path, batch_size=64)
        choice = self.choose(pool, task, 6)

        rows = [pool.ids.index(sample) for sample in choice.ids]
        np.testing.assert_allclose(choice.parts["score"], score[rows], rtol=0, atol=1e-6)
        np.testing.assert_allclose(choice.parts["score"], np.sort(score)[::-1][:6], rtol=0, atol=1e-6)
        assert set(choice.parts) == {"score", *(f"entropy_{role}" for role in self.asked)}
        for role, values in each.items():
            np.testing.assert_allclose(choice.parts[f"entropy_{role}"], values[rows], rtol=0, atol=1e-6)

    def test_equal_scores_go_by_row(self, task: Task) -> None:
        ids, same = [f"{k}" for k in range(5)], torch.tensor([1.0, 2.0, 2.0, 1.0, 2.0], dtype=torch.float64)
        pool = Columns(ids, {f"entropy_{role}": same for role in self.asked})
        assert self.choose(pool, task, 4).ids == ["1", "2", "4", "0"]

    @pytest.mark.parametrize("activation", ["relu", "softplus", "exp"])
    @pytest.mark.parametrize("scale", [1.0, 1e3])
    def test_probabilities_are_those_of_the_loss(
        self, images: dict[str, torch.Tensor], task: Task, activation: str, scale: float
    ) -> None:
        evidence = {
            "relu": lambda z: np.maximum(z, 0),
            "softplus": lambda z: np.logaddexp(z, 0),
            "exp": lambda z: np.exp(np.clip(z, -10, 10)),
        }
        networks = self.networks(task)
        for network in networks.values():
            network.head.weight.data.mul_(scale)
        batch = torch.stack(list(images.values()))
        context = self.context(task, loss=Component(name="evidential", activation=activation))
        with torch.no_grad():
            observed = self.build().observe(
                batch, {role: RoleModel(net) for role, net in networks.items()}, context
            )
            for role in self.asked:
                alpha = evidence[activation](networks[role](batch).double().numpy()) + 1
                alpha = alpha**2 if task == "segmentation" else alpha
                truth = _per_image(entropy(alpha, axis=1))
                np.testing.assert_allclose(observed[f"entropy_{role}"], truth, rtol=0, atol=1e-6)


class TestLocal(TestGlobal):
    params = {"query_model": "local"}
    asked = ("local",)


class TestEnsemble(TestGlobal):
    runs = True
    params = {"query_model": "ensemble"}
    asked = ("global", "local")

    def test_is_the_mean_of_both(self, task: Task) -> None:
        pool = Columns(
            ["a", "b", "c"],
            {
                "entropy_global": torch.tensor([0.1, 0.4, 0.9], dtype=torch.float64),
                "entropy_local": torch.tensor([1.0, 0.5, 0.0], dtype=torch.float64),
            },
        )
        choice = self.choose(pool, task, 3)
        assert choice.ids == ["a", "b", "c"]
        assert choice.parts["score"].tolist() == pytest.approx([0.55, 0.45, 0.45])


def _per_image(values: np.ndarray) -> np.ndarray:
    return values.reshape(len(values), -1).mean(1)
