"""Knowledge-aware sampling against the formula in float64."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from feal.selection import RoleModel
from feal.selection.strategies.kafal import Kafal
from feal.settings import Task
from feal.testing import StrategyContract


class TestKafal(StrategyContract):
    strategy = Kafal

    def observe(self, images: torch.Tensor, task: Task, *, scale: float = 1.0, **changes: object) -> torch.Tensor:
        networks = self.networks(task)
        for network in networks.values():
            network.head.weight.data.mul_(scale)
        models = {role: RoleModel(network) for role, network in networks.items()}
        with torch.no_grad():
            return Kafal().observe(images, models, self.context(task, **changes))["divergence"]

    def brute_force(self, images: torch.Tensor, task: Task, counts: Sequence[float], scale: float) -> np.ndarray:
        """1/2 (KL + KL), written out over the classes that have a count."""
        networks, known = self.networks(task), [c for c, count in enumerate(counts) if count > 0]
        logs = {}
        for role, network in networks.items():
            network.head.weight.data.mul_(scale)
            with torch.no_grad():
                z = np.moveaxis(network(images).double().numpy(), 1, -1)
            logs[role] = log_softmax(z[..., known] + np.log([counts[c] for c in known]), axis=-1)
        g, l = logs["global"], logs["local"]  # noqa: E741
        each = 0.5 * ((np.exp(g) * (g - l)).sum(-1) + (np.exp(l) * (l - g)).sum(-1))
        return each.reshape(len(images), -1).mean(1)

    @pytest.mark.parametrize("counts", [[5, 2, 0], [1, 1, 1], [0, 1, 10**6], [3, 0, 0]])
    @pytest.mark.parametrize("scale", [1e-2, 1.0, 1e3])
    def test_is_the_symmetric_divergence_under_the_labelled_classes(
        self, images: dict[str, torch.Tensor], task: Task, counts: list[int], scale: float
    ) -> None:
        batch, site = torch.stack(list(images.values())), torch.tensor(counts, dtype=torch.float64)
        found = self.observe(batch, task, scale=scale, site_counts=site)
        assert found.dtype == torch.float64
        np.testing.assert_allclose(
            found, self.brute_force(batch, task, counts, scale), rtol=1e-6, atol=1e-6, equal_nan=False
        )
        assert found.min() >= 0

    def test_takes_the_largest(self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path) -> None:
        pool = self.columns(images, task, tmp_path)
        choice = self.choose(pool, task, 6)
        divergence = pool["divergence"].tolist()
        largest = sorted(range(len(pool)), key=lambda row: (-divergence[row], row))[:6]
        assert choice.ids == [pool.ids[row] for row in largest]
        assert choice.parts["score"].tolist() == [divergence[row] for row in largest]

    def test_counts_are_the_sites_or_those_of_all(self, images: dict[str, torch.Tensor], task: Task) -> None:
        batch = torch.stack(list(images.values()))
        own, total = torch.tensor([[9, 1, 0], [4, 5, 6]], dtype=torch.float64)
        for counts, used in (("site", own), ("global", total), (None, total)):
            found = self.observe(batch, task, class_count_scope=counts, site_counts=own, total_counts=total)
            np.testing.assert_allclose(found, self.brute_force(batch, task, used.tolist(), 1.0), rtol=0, atol=1e-6)

    def test_the_loss_does_not_matter(self, images: dict[str, torch.Tensor], task: Task) -> None:
        batch = torch.stack(list(images.values()))
        plain, balanced, evidential = (
            self.observe(batch, task, loss=loss) for loss in ("plain", "balanced", "evidential")
        )
        assert torch.equal(plain, balanced)
        assert torch.equal(plain, evidential)

    @pytest.mark.parametrize("counts", [[0, 0, 0], [0, 7, 0]])
    def test_without_two_labelled_classes_ids_decide(
        self, images: dict[str, torch.Tensor], task: Task, counts: list[int]
    ) -> None:
        batch = torch.stack(list(images.values()))
        found = self.observe(batch, task, site_counts=torch.tensor(counts, dtype=torch.float64))
        assert found.tolist() == [0.0] * len(batch)

    def test_trains_with_the_balanced_loss_on_the_sites_own_counts(self) -> None:
        assert (Kafal.default_loss, Kafal.default_class_count_scope) == ("balanced", "site")
        assert "query_model" not in Kafal.Params.model_fields
