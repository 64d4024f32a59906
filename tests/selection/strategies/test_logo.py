"""Local diversity, global uncertainty against its formulas."""

from pathlib import Path

import pytest
import torch

from feal.selection import Columns, Role
from feal.selection.kmeans import k_means
from feal.selection.strategies.logo import Logo, _probability
from feal.settings import Task
from feal.testing import StrategyContract
from tests.selection.test_kmeans import blobs, plain_picking


def pool_of(embedding: torch.Tensor, entropy: torch.Tensor) -> Columns:
    ids = [f"{row:04}" for row in range(len(embedding))]
    zero = torch.zeros(len(ids), dtype=torch.float64)
    return Columns(ids, {"embedding": embedding, "entropy_global": entropy, "doubt_local": zero})


class TestLogo(StrategyContract):
    strategy = Logo
    draws = True
    local: Role = "local"

    def test_columns_are_the_formulas(self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path) -> None:
        pool = self.columns(images, task, tmp_path, batch_size=64)
        networks = self.networks(task)
        assert set(networks) == {"global", self.local}
        batch = torch.stack([images[sample] for sample in pool.ids])
        with torch.no_grad():
            p_global = torch.softmax(networks["global"](batch).double(), 1)
            p_local = torch.softmax(networks[self.local](batch).double(), 1)
            features = networks[self.local].outputs(batch).features.double()
        entropy = -(p_global * p_global.clamp(min=1e-300).log()).sum(1)
        doubt = 1 - p_local.amax(1)
        if task == "segmentation":
            entropy, doubt = entropy.mean((1, 2)), doubt.mean((1, 2))
        torch.testing.assert_close(pool["entropy_global"], entropy, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(pool["doubt_local"], doubt, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(pool["embedding"].double(), doubt[:, None] * features, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("budget", [1, 5, 24])
    def test_takes_the_largest_entropy_of_each_cluster(
        self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path, budget: int
    ) -> None:
        pool = self.columns(images, task, tmp_path)
        labels = k_means(pool["embedding"], budget, generator=torch.Generator().manual_seed(0))
        rows = plain_picking(labels.tolist(), pool["entropy_global"].tolist(), budget)
        choice = self.choose(pool, task, budget)
        assert choice.ids == [pool.ids[row] for row in rows]
        assert torch.equal(choice.parts["score"], pool["entropy_global"][rows])
        assert torch.equal(choice.parts["cluster"], labels[rows])

    def test_one_of_each_cluster_far_apart(self, task: Task) -> None:
        embedding = blobs(8, 12)
        entropy = torch.rand(96, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        near = torch.cdist(embedding, embedding) < 50
        # The largest entropy of a blob, known without any clustering.
        expected = [row for row in range(96) if entropy[row] == entropy[near[row]].max()]
        choice = self.choose(pool_of(embedding, entropy), task, 8)
        assert choice.ids == [f"{row:04}" for row in sorted(expected, key=lambda row: -entropy[row])]

    def test_equal_embeddings_leave_the_entropy_to_decide(self, task: Task) -> None:
        entropy = torch.tensor([0.2, 0.9, 0.9, 0.1, 0.5], dtype=torch.float64)
        choice = self.choose(pool_of(torch.zeros(5, 4), entropy), task, 3)
        assert choice.ids == ["0001", "0002", "0004"]


class TestLogoLocalOnly(TestLogo):
    params = {"local": "local_only"}
    local: Role = "local_only"

    @pytest.fixture(autouse=True)
    def brief(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """How long the model is trained is not what is tested."""
        monkeypatch.setattr(Logo, "training_epochs", 3)


def test_a_sure_model_still_has_doubt() -> None:
    context = StrategyContract.context(TestLogo(), "classification")
    logits = torch.tensor([[25.0, 0.0, 0.0]])
    assert float(1 - _probability(logits, context).amax(1)) == pytest.approx(2 * 2.718281828459045**-25, rel=1e-4)
