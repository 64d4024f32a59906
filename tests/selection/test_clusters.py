"""Clusters are k-means', and the picking from them is what a plain loop picks."""

import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from feal.selection.clusters import best_of_each, clustered


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def plain_picking(labels: list[int], score: list[float], budget: int) -> list[int]:
    """Clusters in turn, by a loop: in each turn the best row left of each cluster, best first."""
    left = {label: [row for row, own in enumerate(labels) if own == label] for label in set(labels)}
    picked: list[int] = []
    while any(left.values()):
        turn = []
        for rows in left.values():
            if rows:
                row = min(rows, key=lambda row: (-score[row], row))
                rows.remove(row)
                turn.append(row)
        picked += sorted(turn, key=lambda row: (-score[row], row))
    return picked[:budget]


# Few labels and scores make ties and clusters of several samples; labels may leave numbers out.
rows = st.lists(
    st.tuples(st.sampled_from([0, 1, 2, 3, 7]), st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1e-300, 3.0])), max_size=40
)


@given(rows=rows, budget=st.integers(0, 50))
def test_picking_is_what_a_plain_loop_picks(rows: list[tuple[int, float]], budget: int) -> None:
    labels, score = [label for label, _ in rows], [value for _, value in rows]
    picked = best_of_each(
        torch.tensor(labels, dtype=torch.int64), torch.tensor(score, dtype=torch.float64), budget
    )
    assert picked.tolist() == plain_picking(labels, score, budget)


def test_picking_changes_nothing_it_is_given() -> None:
    labels, score = torch.tensor([1, 0, 1]), torch.tensor([0.1, 0.2, 0.3])
    best_of_each(labels, score, 2)
    assert labels.tolist() == [1, 0, 1]
    assert torch.equal(score, torch.tensor([0.1, 0.2, 0.3]))


def blobs(clusters: int, each: int, *, dims: int = 6, apart: float = 100.0, seed: int = 0) -> torch.Tensor:
    draw = seeded(seed)
    centres = apart * torch.randn(clusters, dims, generator=draw)
    points = centres.repeat_interleave(each, 0) + torch.randn(clusters * each, dims, generator=draw)
    return points[torch.randperm(len(points), generator=draw)]


@pytest.mark.parametrize("points", [torch.randn(300, 6, generator=seeded(3)), blobs(9, 30, apart=2.0)])
def test_every_point_is_nearest_to_the_mean_of_its_cluster(points: torch.Tensor) -> None:
    labels = clustered(points, 12, generator=seeded(1))
    exact = points.double()
    means = torch.stack([exact[labels == label].mean(0) for label in range(12)])
    distances = torch.cdist(exact, means)
    own = distances.gather(1, labels[:, None]).squeeze(1)
    assert bool((own <= distances.min(1).values + 1e-5).all())


@pytest.mark.parametrize("seed", range(5))
def test_clusters_far_apart_are_found(seed: int) -> None:
    points = blobs(12, 15, seed=seed)
    labels = clustered(points, 12, generator=seeded(seed))
    near = torch.cdist(points, points) < 50
    assert torch.equal(near, labels[:, None] == labels)
    picked = best_of_each(labels, torch.rand(len(points), generator=seeded(seed)), 12)
    assert int(near[picked][:, picked].sum()) == 12


def test_iterations_are_limited() -> None:
    points = torch.randn(400, 6, generator=seeded(5))

    def spread(iterations: int) -> float:
        labels = clustered(points, 20, generator=seeded(2), iterations=iterations)
        return sum(float((part - part.mean(0)).square().sum()) for part in map(points.__getitem__, _rows(labels)))

    assert spread(1) > spread(10) >= spread(300)


def _rows(labels: torch.Tensor) -> list[torch.Tensor]:
    return [(labels == label).nonzero().squeeze(1) for label in labels.unique()]


def test_equal_points_share_a_cluster() -> None:
    points = torch.randn(4, 3, generator=seeded()).repeat(6, 1)
    labels = clustered(points, 10, generator=seeded())
    assert torch.equal(labels[:, None] == labels, torch.cdist(points, points) < 1e-6)


@pytest.mark.parametrize("value", [0.0, 3.5, -1e-30])
def test_a_pool_of_equal_points_is_one_cluster(value: float) -> None:
    labels = clustered(torch.full((20, 5), value), 4, generator=seeded())
    assert len(labels.unique()) == 1


@pytest.mark.parametrize("clusters", [1, 5, 6, 100])
def test_few_points(clusters: int) -> None:
    labels = clustered(torch.randn(6, 3, generator=seeded()), clusters, generator=seeded())
    assert len(labels.unique()) == min(clusters, 6)


def test_only_the_warning_about_equal_points_is_silenced(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    fit = KMeans.fit

    def grumbling(self: KMeans, points: object) -> KMeans:
        warnings.warn("something else", ConvergenceWarning, stacklevel=2)
        return fit(self, points)

    monkeypatch.setattr(KMeans, "fit", grumbling)
    with pytest.raises(ConvergenceWarning, match="something else"):
        clustered(torch.randn(20, 3, generator=seeded()), 3, generator=seeded())


def test_the_same_seed_gives_the_same_clusters_and_the_points_stay_as_they_are() -> None:
    points = torch.randn(500, 20, generator=seeded(8)) + 1000
    before = points.clone()
    first = clustered(points, 40, generator=seeded(1))
    assert torch.equal(points, before)
    assert torch.equal(first, clustered(points, 40, generator=seeded(1)))
    assert not torch.equal(first, clustered(points, 40, generator=seeded(2)))


def test_the_number_of_threads_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_info

    seen: list[int] = []
    fit = KMeans.fit

    def watched(self: KMeans, points: object) -> KMeans:
        seen.extend(pool["num_threads"] for pool in threadpool_info())
        return fit(self, points)

    monkeypatch.setattr(KMeans, "fit", watched)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    clustered(torch.randn(20, 3, generator=seeded()), 3, generator=seeded())
    assert set(seen) == {1}
