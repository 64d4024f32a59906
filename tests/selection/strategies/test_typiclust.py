"""TypiClust against scikit-activeml on the same clusters, and against its description."""

from typing import Any

import numpy as np
import pytest
import torch
from skactiveml.pool import TypiClust as Independent
from sklearn.base import BaseEstimator, ClusterMixin

from feal.selection import Columns
from feal.selection.kmeans import k_means
from feal.selection.strategies.typiclust import ITERATIONS, TypiClust, _order_clusters
from feal.testing import StrategyContract
from tests.selection.strategies.test_maxherding import named
from tests.selection.test_kmeans import blobs


class TestTypiClust(StrategyContract):
    strategy = TypiClust
    draws = True

    def rows(self, pool: Columns, known: Columns, budget: int, **params: Any) -> list[int]:
        context, draw = self.context("classification"), torch.Generator().manual_seed(0)
        choice = TypiClust(**params).choose(pool, known, context, budget, draw)
        return [int(sample[1:]) for sample in choice.ids]


class OurClusters(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """k-means as the strategy has it."""

    def __init__(self, n_clusters: int = 2) -> None:
        self.n_clusters = n_clusters

    def fit_predict(self, X: Any, y: Any = None) -> Any:  # noqa: N803
        draw = torch.Generator().manual_seed(0)
        return k_means(torch.tensor(X).float(), self.n_clusters, generator=draw, iterations=ITERATIONS).numpy()


@pytest.mark.parametrize("known", [0, 3])
def test_scikit_activeml_chooses_the_same(known: int) -> None:
    # So many members that half of a cluster are more than the neighbours looked at.
    points = torch.cat([some[: 60 - 2 * number] for number, some in enumerate(blobs(8, 60).split(60))])
    points = torch.cat((points[:known], points))  # the labelled ones first: they and their cluster are taken out
    labels = np.full(len(points), np.nan)
    labels[:known] = 0
    expected = Independent(cluster_algo=OurClusters, k=5, random_state=0).query(
        torch.cat((points[known:], points[:known])).double().numpy(), np.roll(labels, -known), batch_size=4
    )
    chosen = TestTypiClust().rows(named(points[known:]), named(points[:known], "l"), 4, neighbours=5)
    assert chosen == expected.tolist()


def test_clusters_come_by_labels_and_size_and_small_ones_last() -> None:
    sizes = {0: 4, 1: 9, 2: 12, 3: 7, 4: 6}
    pool = torch.tensor([cluster for cluster, size in sizes.items() for _ in range(size)])
    labels = torch.cat((pool, torch.tensor([2, 2, 1, 4, 5])))
    assert _order_clusters(labels, len(pool)) == [3, 1, 4, 2, 0]


def test_the_second_of_each_follow() -> None:
    pool = blobs(3, 20)
    rows = TestTypiClust().rows(named(pool), Columns([], {}), 7, clusters=3)
    nearest = torch.cdist(pool, pool) < 50
    assert [int(nearest[rows[:3]][:, row].nonzero()[0]) for row in rows[3:6]] == [0, 1, 2]


def test_a_crowd_is_drawn_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("feal.selection.strategies.typiclust.CROWD", 10)
    rows = TestTypiClust().rows(named(blobs(3, 40)), Columns([], {}), 100, clusters=3)
    assert len(set(rows)) == 100
