"""DropQuery against its description: changes, candidates, and the nearest to each centre."""

from pathlib import Path

import numpy as np
import pytest
import torch

from feal.selection import Columns
from feal.selection.kmeans import k_means
from feal.selection.strategies.dropquery import ITERATIONS, DropQuery
from feal.settings import Task
from feal.testing import StrategyContract
from tests.selection.test_kmeans import blobs


def pool_of(features: torch.Tensor, changes: torch.Tensor) -> Columns:
    ids = [f"{row:04}" for row in range(len(features))]
    return Columns(ids, {"features": features, "changes": changes.double()})


class TestDropQuery(StrategyContract):
    strategy = DropQuery
    draws = True

    def test_changes_are_those_of_predictions_with_dropout(
        self, images: dict[str, torch.Tensor], task: Task, tmp_path: Path
    ) -> None:
        pool = self.columns(images, task, tmp_path, batch_size=64)
        network = self.networks(task)["global"]
        batch = torch.stack([images[sample] for sample in pool.ids])
        with torch.no_grad():
            output = network.outputs(batch)
            changes = torch.zeros(len(batch), dtype=torch.float64)
            for number in range(3):
                width = output.head_input.shape[1]
                is_kept = torch.rand(width, generator=torch.Generator().manual_seed(number)) >= 0.75
                dropped = output.head_input.clone()
                dropped[:, ~is_kept] = 0
                changed = (network.head(4 * dropped).argmax(1) != output.logits.argmax(1)).double()
                changes += (changed.mean((1, 2)) if task == "segmentation" else changed) / 3
        torch.testing.assert_close(pool["changes"], changes, rtol=0, atol=1e-3)
        torch.testing.assert_close(pool["features"], output.features)


@pytest.mark.parametrize(("changed", "candidates"), [(30, 30), (200, 200), (3, 25), (0, 240)])
def test_candidates_change_in_most_passes_or_the_threshold_is_lowered(changed: int, candidates: int) -> None:
    features = blobs(8, 30)
    order = torch.randperm(240, generator=torch.Generator().manual_seed(1))
    changes = torch.zeros(240)
    changes[order[:candidates]] = 1 / 3
    changes[order[:changed]] = 2 / 3
    context = StrategyContract.context(TestDropQuery(), "classification")
    choice = DropQuery().choose(pool_of(features, changes), None, context, 1, torch.Generator().manual_seed(0))
    allowed = set(order[:candidates].tolist())
    centre = features[sorted(allowed)].double().mean(0)
    distance = torch.linalg.vector_norm(features.double() - centre, dim=1).numpy()
    expected = min(allowed, key=lambda row: (distance[row], row))
    assert choice.ids == [f"{expected:04}"]
    assert float(choice.parts["distance"][0]) == pytest.approx(distance[expected])


def test_the_nearest_to_each_centre() -> None:
    features = blobs(6, 20)
    context = StrategyContract.context(TestDropQuery(), "classification")
    choice = DropQuery().choose(
        pool_of(features, torch.ones(120)), None, context, 6, torch.Generator().manual_seed(0)
    )
    labels = k_means(features, 6, generator=torch.Generator().manual_seed(0), iterations=ITERATIONS).numpy()
    points = features.double().numpy()
    expected = set()
    for cluster in np.unique(labels):
        members = np.flatnonzero(labels == cluster)
        centre = points[members].mean(0)
        expected.add(f"{members[((points[members] - centre) ** 2).sum(1).argmin()]:04}")
    assert set(choice.ids) == expected


@pytest.mark.parametrize("params", [{"rate": 0}, {"rate": 1}, {"passes": 0}])
def test_parameters_out_of_range(params: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(params))):
        DropQuery(**params)
