"""k-means: distances of points and of gradient embeddings q (x) h (BADGE), seeding by k-means++, and clusters."""

import warnings
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from feal.selection import kcenter
from feal.selection.base import top_k

DEFAULT_ITERATIONS = 300  # scikit-learn's own limit


class OuterProducts:
    """G_i = mean over K given pairs of q_i (x) h_i, with q [N, C] and h [N, D] in float32, N > 0.

    <G_i, G_j> = mean over all a, b of <q_ai, q_bj> <h_ai, h_bj>, so a distance costs one product of each matrix
    with K vectors. The wide h may lie on disk and is only read; the narrow q is kept in memory in float64.

    Raises ValueError for NaN and infinity in h (naming the row).

    >>> q, h = torch.tensor([[0.5, -0.5], [0.0, 0.0]]), torch.tensor([[3.0, 4.0], [1.0, 1.0]])
    >>> gradients = OuterProducts([(q, h)])
    >>> gradients.squares, gradients.squared_distances(1)
    (tensor([12.5000,  0.0000], dtype=torch.float64), tensor([12.5000,  0.0000], dtype=torch.float64))
    """

    def __init__(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
        self._q, self._h = [q.double() for q, _ in pairs], [h for _, h in pairs]
        self._means = [kcenter.compute_mean(h) for h in self._h]
        self._products = [kcenter.Products(h, self._means) for h in self._h]
        self._q_norms = torch.stack([torch.linalg.vector_norm(q, dim=1) for q in self._q])
        lengths = self._q_norms * torch.stack([products.norms for products in self._products])
        self.squares = self._squares(lengths)
        """||G_i||^2 in float64, [N]."""
        # Where the pairs contradict each other, G is shorter than what is rounded on the way to it.
        self._sizes = lengths.mean(0).clamp_min_(kcenter.TINY).numpy()
        self._largest = float(self._sizes.max())
        width = self._q[0].shape[1] + self._h[0].shape[1]
        self._rounding = kcenter.ROUNDING_DOUBLE * kcenter.count_roundings(width)

    def squared_distances(self, row: int) -> Tensor:
        """Return ||G_i - G_row||^2 in float64 [N]; what cannot be told from rounding is 0, as it is for copies."""
        vectors = [kcenter.measure_direction(h[row], mean) for h, mean in zip(self._h, self._means, strict=True)]
        distances = self.squares + self.squares[row]
        for q, products in zip(self._q, self._products, strict=True):
            for other, product in zip(self._q, products.multiply(vectors), strict=True):
                distances.addcmul_(q.mv(other[row]), product, value=-2 / len(vectors) ** 2)
        self._remove_rounding(distances.numpy(), row, vectors)
        return distances

    def _remove_rounding(self, distances: NDArray[np.float64], row: int, vectors: list[kcenter.Direction]) -> None:
        """Set to 0 what may be nothing but rounding."""
        norms = self._q_norms[:, row].tolist()
        error = 2 * sum(norm * vector.error for norm, vector in zip(norms, vectors, strict=True)) / len(norms)
        sizes, rounding = self._sizes, self._rounding
        # A bound for all leaves few rows, mostly the copies of this one, to be looked at.
        most = error * self._largest + rounding * (self._largest**2 + sizes[row] ** 2)
        rows = np.flatnonzero(distances <= most)
        noise = error * sizes[rows] + rounding * (sizes[rows] ** 2 + sizes[row] ** 2)
        distances[rows[distances[rows] <= noise]] = 0

    def _squares(self, lengths: Tensor) -> Tensor:
        squares = lengths.square().sum(0)
        pairs = list(zip(self._q, self._h, strict=True))
        for (q, h), (other_q, other_h) in combinations(pairs, 2):
            for rows in kcenter.row_blocks(len(squares), 2 * h.shape[1]):
                h_inner = (h[rows].double() * other_h[rows].double()).sum(1)
                squares[rows] += 2 * (q[rows] * other_q[rows]).sum(1) * h_inner
        # Two that cancel each other leave a trace of rounding on either side of zero.
        return squares.div_(len(pairs) ** 2).clamp_min_(0)


def k_means_plus_plus(
    squares: Tensor,
    squared_distances: Callable[[int], Tensor],
    budget: int,
    generator: torch.Generator,
    *,
    first: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Choose `budget` rows: the `first` or else the longest, then each with probability in proportion to D^2.

    D_i^2 is the squared distance of row i to the nearest chosen one; where all are 0, every row not chosen yet is
    equally likely. A pick after the first takes one uniform number u from the generator and is the first row
    whose cumulative weight exceeds u times the sum.

    Shapes: squares [N], the squared length of each row; `squared_distances(j)`, [N], those of all rows to row j,
    0 for copies of it. Returns the rows in order of choice, int64 [min(budget, N)], and their D^2 at the moment of
    the pick, float64; for the first pick its squared length, the distance to nothing at all.

    Raises ValueError for a negative budget, and for squares that are NaN or infinite (naming the row).

    >>> points = torch.tensor([1.0, 3.0, 3.0, -2.0], dtype=torch.float64)
    >>> rows, squares = k_means_plus_plus(
    ...     points**2, lambda j: (points - points[j]) ** 2, 4, torch.Generator().manual_seed(0)
    ... )
    >>> rows.tolist(), squares.tolist()
    ([1, 3, 0, 2], [9.0, 25.0, 4.0, 0.0])
    """
    _check(squares, budget)
    budget = min(budget, len(squares))
    if budget == 0:
        return torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.float64)
    rows = [int(squares.argmax()) if first is None else first]
    picked = [float(squares[rows[0]])]
    nearest = squared_distances(rows[0]).double()
    while len(rows) < budget:
        nearest[rows[-1]] = 0
        row = _draw(nearest, rows, generator)
        rows.append(row)
        picked.append(float(nearest[row]))
        if picked[-1] > 0 and len(rows) < budget:  # the copy of a chosen one brings nothing nearer
            torch.minimum(nearest, squared_distances(row), out=nearest)
    return torch.tensor(rows, dtype=torch.int64), torch.tensor(picked, dtype=torch.float64)


def _check(squares: Tensor, budget: int) -> None:
    if budget < 0:
        raise ValueError(f"The budget must not be negative, and it is {budget}.")
    if not (finite := squares.isfinite()).all():
        raise ValueError(f"The squared length of row {int((~finite).nonzero()[0])} is NaN or infinite.")


def _draw(weights: Tensor, taken: list[int], generator: torch.Generator) -> int:
    """Draw a row with probability in proportion to its weight, float64 [N]; if all are 0, any not taken yet."""
    cumulative = weights.cumsum(0)
    if cumulative[-1] == 0:
        weights = torch.ones_like(weights)
        weights[taken] = 0
        cumulative = weights.cumsum(0)
    level = torch.rand(1, dtype=torch.float64, generator=generator) * cumulative[-1]
    row = int(torch.searchsorted(cumulative, level, right=True))
    # Rounded up to the sum itself, the level is exceeded nowhere.
    return row if row < len(weights) else int(weights.nonzero()[-1])


def k_means(
    points: Tensor, clusters: int, *, generator: torch.Generator, iterations: int = DEFAULT_ITERATIONS
) -> Tensor:
    """Return the cluster of each point (Euclidean), from a k-means++ start and at most so many iterations.

    Equal points share a cluster, so there may be fewer clusters than asked for. As many clusters as points or
    more: each point is its own. The same generator and number of torch's threads give the same bits.

    Shapes: points [N, D], float32 or float64; int64 [N], below `clusters`.

    >>> points = torch.tensor([[0.0], [0.1], [9.0], [9.1]])
    >>> labels = k_means(points, 2, generator=torch.Generator().manual_seed(0))
    >>> bool(labels[0] == labels[1] != labels[2] == labels[3])
    True
    """
    if clusters >= len(points):
        return torch.arange(len(points))
    # It takes seconds to import.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    starts = _choose_starts(points, clusters, generator)
    # The one copy is where scikit-learn takes the mean off; without, it would write into the pool's columns.
    kmeans = KMeans(
        clusters, init=points[starts].numpy(), n_init=1, max_iter=iterations, algorithm="lloyd", copy_x=True
    )
    with threadpool_limits(torch.get_num_threads()), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Number of distinct clusters", ConvergenceWarning)
        labels = kmeans.fit(points.numpy()).labels_
    return torch.from_numpy(labels).long()


def _choose_starts(points: Tensor, clusters: int, generator: torch.Generator) -> Tensor:
    """Choose rows by k-means++, at the price of a matrix-vector product each.

    scikit-learn's own start, in float64 blocks and with several trials for every centre, takes ten times longer
    than all of Lloyd's iterations.
    """
    rows = OuterProducts([(torch.ones(len(points), 1), points)])
    first = int(torch.randint(len(points), (), generator=generator))
    return k_means_plus_plus(rows.squares, rows.squared_distances, clusters, generator, first=first)[0]


def pick_best_of_each(labels: Tensor, score: Tensor, budget: int) -> Tensor:
    """Return the row of the largest score of each cluster, then of the second largest of each, and so on.

    Largest score first within such a turn, ties by row; at most `budget` of them.

    Shapes: labels integer [N], at least 0; score [N].

    >>> pick_best_of_each(torch.tensor([0, 0, 0, 2]), torch.tensor([0.5, 0.9, 0.8, 0.1]), 3).tolist()
    [1, 3, 2]
    """
    order = top_k(score, len(score))
    grouped = order[torch.argsort(labels[order], stable=True)]
    sizes = torch.bincount(labels)
    first = sizes.cumsum(0) - sizes
    turn = torch.empty_like(grouped)
    turn[grouped] = torch.arange(len(grouped)) - first[labels[grouped]]
    return order[torch.argsort(turn[order], stable=True)][:budget]
