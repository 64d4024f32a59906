"""The paper's strategy against its formulas."""

from pathlib import Path

import pytest
import torch

from feal.evidential import aleatoric, concentration, epistemic
from feal.selection.strategies.feal import Feal
from feal.settings import Component, Task
from feal.testing import StrategyContract


class TestFeal(StrategyContract):
    strategy = Feal

    def test_columns_are_the_papers_terms(
        self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path
    ) -> None:
        pool = self.columns(images, task, tmp_path, batch_size=64)
        networks = self.networks(task)
        batch = torch.stack([images[sample] for sample in pool.ids])
        with torch.no_grad():
            alphas = {
                role: concentration(networks[role](batch), squared=task == "segmentation") for role in networks
            }
            deep = networks["local"].outputs(batch).deep
        pixel_mean = (lambda maps: maps.flatten(1).mean(1)) if task == "segmentation" else (lambda maps: maps)
        torch.testing.assert_close(pool["aleatoric_global"], pixel_mean(aleatoric(alphas["global"])))
        torch.testing.assert_close(pool["aleatoric_local"], pixel_mean(aleatoric(alphas["local"])))
        torch.testing.assert_close(pool["epistemic_global"], pixel_mean(epistemic(alphas["global"])))
        torch.testing.assert_close(pool["deep"], deep)

    def test_without_relaxation_it_takes_the_largest_calibrated_uncertainty(
        self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path
    ) -> None:
        pool = self.columns(images, task, tmp_path)
        context = self.context(task)
        choice = Feal(rule="none").choose(pool, None, context, 5, torch.Generator())
        epi = pool["epistemic_global"]
        factor = (epi - epi.min()) / (epi.max() - epi.min())
        score = (pool["aleatoric_global"] + pool["aleatoric_local"]) * factor
        best = sorted(range(len(pool)), key=lambda row: (-float(score[row]), row))[:5]
        assert choice.ids == [pool.ids[row] for row in best]
        torch.testing.assert_close(choice.parts["score"], score[best])
        assert choice.counts == {"rejected": 0, "filled": 0}

    @pytest.mark.parametrize(("tau", "rejected", "filled"), [(1.0, 0, 0), (-1.0, 21, 4)])
    def test_rejected_and_filled_are_counted(
        self,
        images: dict[str, torch.Tensor],
        task: Task,
        tmp_path: Path,
        tau: float,
        rejected: int,
        filled: int,
    ) -> None:
        distinct = dict(list(images.items())[:4] + list(images.items())[6:])
        pool = self.columns(distinct, task, tmp_path)
        context = self.context(task)
        choice = Feal(tau=tau, n=1, rule="all").choose(pool, None, context, 5, torch.Generator())
        assert choice.counts == {"rejected": rejected, "filled": filled}

    def test_settings_of_the_evidence_reach_the_terms(
        self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path
    ) -> None:
        logits = torch.tensor([[1.0, -2.0, 0.5]])
        for activation in ("relu", "softplus", "exp"):
            context = self.context(task, loss=Component(name="evidential", activation=activation, squared=True))
            torch.testing.assert_close(
                context.concentration(logits), concentration(logits, activation, squared=True)
            )
