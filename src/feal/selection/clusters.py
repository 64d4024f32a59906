"""The best sample of every cluster: k-means on the pool's features, then a score within each cluster."""

from __future__ import annotations

import warnings

import torch

from feal.selection.kmeanspp import k_means_plus_plus
from feal.selection.outerproducts import OuterProducts
from feal.selection.ranking import best

DEFAULT_ITERATIONS = 300
"""scikit-learn's own limit."""


def clustered(
    points: torch.Tensor, clusters: int, *, generator: torch.Generator, iterations: int = DEFAULT_ITERATIONS
) -> torch.Tensor:
    """The cluster of each point by k-means (Euclidean), k-means++ start, at most so many of Lloyd's iterations.

    Equal points share a cluster, so there may be fewer clusters than asked for. As many clusters as points or
    more: each point is its own. The same generator and number of torch's threads give the same bits.

    Shapes: points [N, D], float32 or float64; int64 [N], below `clusters`.

    >>> points = torch.tensor([[0.0], [0.1], [9.0], [9.1]])
    >>> labels = clustered(points, 2, generator=torch.Generator().manual_seed(0))
    >>> bool(labels[0] == labels[1] != labels[2] == labels[3])
    True
    """
    if clusters >= len(points):
        return torch.arange(len(points))
    # Seconds to import: only who clusters waits for it.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    starts = _starts(points, clusters, generator)
    # The one copy is where scikit-learn takes the mean off; without, it would write into the pool's columns.
    kmeans = KMeans(
        clusters,
        init=points[starts].numpy(),
        n_init=1,
        max_iter=iterations,
        algorithm="lloyd",
        copy_x=True,
    )
    with threadpool_limits(torch.get_num_threads()), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Number of distinct clusters", ConvergenceWarning)
        labels = kmeans.fit(points.numpy()).labels_
    return torch.from_numpy(labels).long()


def _starts(points: torch.Tensor, clusters: int, generator: torch.Generator) -> torch.Tensor:
    """Rows by k-means++, at the price of a matrix-vector product each.

    scikit-learn's own start, in float64 blocks and with several trials for every centre, takes ten times longer
    than all of Lloyd's iterations.
    """
    rows = OuterProducts([(torch.ones(len(points), 1), points)])
    first = int(torch.randint(len(points), (), generator=generator))
    return k_means_plus_plus(rows.squares, rows.squared_distances, clusters, generator, first=first)[0]


def best_of_each(labels: torch.Tensor, score: torch.Tensor, budget: int) -> torch.Tensor:
    """Row numbers of the largest score of each cluster, then of the second largest of each, and so on.

    Largest score first within such a turn, ties by row; at most `budget` of them.

    Shapes: labels integer [N], at least 0; score [N].

    >>> best_of_each(torch.tensor([0, 0, 0, 2]), torch.tensor([0.5, 0.9, 0.8, 0.1]), 3).tolist()
    [1, 3, 2]
    """
    order = best(score, len(score))
    grouped = order[torch.argsort(labels[order], stable=True)]
    sizes = torch.bincount(labels)
    first = sizes.cumsum(0) - sizes
    turn = torch.empty_like(grouped)
    turn[grouped] = torch.arange(len(grouped)) - first[labels[grouped]]
    return order[torch.argsort(turn[order], stable=True)][:budget]
