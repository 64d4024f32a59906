"""BADGE against its formulas, with the gradients formed."""

from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from feal.models import Network
from feal.selection import Columns, RoleModel, Selection
from feal.selection.strategies.badge import Badge
from feal.settings import Task
from feal.testing import StrategyContract

Pairs = list[tuple[torch.Tensor, torch.Tensor]]


def head_gradient(network: Network, image: torch.Tensor) -> torch.Tensor:
    """The gradient of the cross entropy to the predicted class (summed over pixels) in the head's weights."""
    with torch.enable_grad():
        head_input = network.outputs(image[None]).head_input.detach()
        logits = network.head(head_input)
        loss = cross_entropy(logits, logits.argmax(1), reduction="sum")
        (gradient,) = torch.autograd.grad(loss, network.head.weight)
    return gradient.flatten()


def reference(gradients: torch.Tensor, budget: int, generator: torch.Generator) -> list[int]:
    """The longest gradient, then by D^2, all in float64."""
    squares = gradients.double().square().sum(1)
    rows = [max(range(len(squares)), key=lambda row: (float(squares[row]), -row))][:budget]
    while len(rows) < min(budget, len(squares)):
        apart = torch.stack([(gradients.double() - gradients[row].double()).square().sum(1) for row in rows])
        weight = apart.amin(0)
        if not weight.any():
            weight = torch.ones_like(weight)
            weight[rows] = 0
        level = torch.rand(1, dtype=torch.float64, generator=generator) * weight.sum()
        rows.append(int((weight.cumsum(0) > level).nonzero()[0]))
    return rows


def formed(pairs: Pairs) -> torch.Tensor:
    return torch.stack([(q.double()[:, :, None] * h.double()[:, None]).flatten(1) for q, h in pairs]).mean(0)


class TestBadge(StrategyContract):
    strategy = Badge
    runs = False
    draws = True

    def asked(self) -> list[str]:
        return {"local": ["local"], "ensemble": ["global", "local"]}.get(
            self.params.get("query_model", ""), ["global"]
        )

    def gradients(self, pool: Columns, task: Task) -> torch.Tensor:
        if task == "segmentation":
            return pool["gradient"].double()
        return formed([(pool[f"residual_{role}"], pool[f"features_{role}"]) for role in self.asked()])

    def chosen(self, pairs: Pairs, budget: int, seed: int) -> Selection:
        values = {}
        for role, (q, h) in zip(self.asked(), pairs, strict=True):
            values[f"residual_{role}"], values[f"features_{role}"] = q, h
        pool = Columns([f"{row:03}" for row in range(len(pairs[0][0]))], values)
        return self.choose(pool, "classification", budget, seed=seed)

    def test_columns_are_the_gradients_of_the_last_layer(
        self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path
    ) -> None:
        pool = self.columns(images, task, tmp_path, batch_size=64)
        networks = self.networks(task).values()
        expected = torch.stack(
            [
                torch.stack([head_gradient(network, images[sample]) for network in networks]).mean(0)
                for sample in pool.ids
            ]
        ).double()
        # The loss falls in the direction of G: p - onehot is its gradient in the logits.
        torch.testing.assert_close(-self.gradients(pool, task), expected, rtol=1e-3, atol=1e-3)

    def test_chooses_as_k_means_plus_plus_on_the_gradients(
        self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path
    ) -> None:
        pool = self.columns(images, task, tmp_path)
        gradients = self.gradients(pool, task)
        for seed in range(10):
            choice = self.choose(pool, task, 8, seed=seed)
            rows = reference(gradients, 8, torch.Generator().manual_seed(seed))
            assert choice.ids == [pool.ids[row] for row in rows]
            torch.testing.assert_close(choice.parts["score"], gradients[rows].norm(dim=1))
            nearest = [float((gradients[rows[0]]).square().sum())]
            nearest += [
                float((gradients[rows[:k]] - gradients[rows[k]]).square().sum(1).min()) for k in range(1, 8)
            ]
            expected = torch.tensor(nearest, dtype=torch.float64)
            torch.testing.assert_close(choice.parts["squared_distance"], expected, rtol=1e-3, atol=1e-6)

    @pytest.mark.parametrize(
        "kind", ["random", "clusters", "copies", "all equal", "zero", "certain", "one sample"]
    )
    def test_agrees_with_brute_force(self, kind: str) -> None:
        draw = torch.Generator().manual_seed(5)
        pairs: Pairs = []
        size = 1 if kind == "one sample" else 50
        which = torch.randint(7, (size,), generator=draw)
        for _ in self.asked():
            p = torch.softmax(2 * torch.randn((size, 4), generator=draw), dim=1)
            q, h = one_hot(p.argmax(1), 4) - p, torch.randn((size, 24), generator=draw)
            if kind == "clusters":
                h = 3 * h[which % size] + 0.1 * h
            if kind == "copies":
                q, h = q[which], h[which]
            if kind == "all equal":
                q, h = q[:1].expand(size, 4).contiguous(), h[:1].expand(size, 24).contiguous()
            pairs.append((0 * q if kind == "certain" else q, 0 * h if kind == "zero" else h))
        for seed in range(10):
            for budget in (1, 10, 60):
                rows = reference(formed(pairs), budget, torch.Generator().manual_seed(seed))
                assert self.chosen(pairs, budget, seed).ids == [f"{row:03}" for row in rows]

    def test_probabilities_are_those_of_the_loss(self, images: dict[str, torch.Tensor]) -> None:
        context = self.context("classification", loss="evidential")
        batch = torch.stack(list(images.values()))
        networks = self.networks("classification")
        models = {role: RoleModel(network) for role, network in networks.items()}
        with torch.no_grad():
            columns = self.build().observe(batch, models, context)
            for role, network in networks.items():
                alpha = network(batch).relu() + 1
                p = alpha / alpha.sum(1, keepdim=True)
                torch.testing.assert_close(columns[f"residual_{role}"], one_hot(p.argmax(1), 3) - p)


class TestBadgeLocal(TestBadge):
    params = {"query_model": "local"}


class TestBadgeEnsemble(TestBadge):
    runs = True
    params = {"query_model": "ensemble"}
