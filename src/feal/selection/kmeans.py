"""k-means: distances of points and of gradient embeddings q (x) h (BADGE), seeding by k-means++, and clusters."""

import warnings
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from feal.selection import kcenter
from feal.selection.base import top_k

DEFAULT_ITERATIONS = 300  # scikit-learn's own limit
CACHED = 2**22  # numbers up to which all offsets are kept: 16 MB
SMALL = 2048  # rows up to which every draw of k-means++ knows all earlier picks
MISSES = 16  # draws in vain after which all rows are compared with the latest picks
GROWTH = 8  # of the number of picks between such comparisons
DRAWS = 256  # looked at together


class OuterProducts:
    """G_i = mean over K given pairs of q_i (x) h_i, with q [N, C] and h [N, D] in float32, N > 0.

    <G_i, G_j> = mean over all a, b of <q_ai, q_bj> <h_ai, h_bj>, so a distance costs K^2 products of two rows.
    The wide h may lie on disk and is only read; the narrow q is kept in memory in float64.

    Raises ValueError for NaN and infinity in h (naming the row).

    >>> q, h = torch.tensor([[0.5, -0.5], [0.0, 0.0]]), torch.tensor([[3.0, 4.0], [1.0, 1.0]])
    >>> gradients = OuterProducts([(q, h)])
    >>> gradients.squares, gradients.nearest(torch.tensor([1]))
    (tensor([12.5000,  0.0000], dtype=torch.float64), tensor([12.5000,  0.0000], dtype=torch.float64))
    """

    def __init__(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
        self._q, self._h = [q.double() for q, _ in pairs], [h for _, h in pairs]
        self._frames = [kcenter.build_frame(h) for h in self._h]
        means = torch.stack([frame.mean() for frame in self._frames])
        rows, width = self._h[0].shape
        self._offsets = list[Tensor]()
        self._offsets = self._locate(slice(None)) if rows * width <= CACHED else []
        self._to_means = torch.empty((len(pairs), len(pairs), rows), dtype=torch.float64)
        """<h_ai - mean_a / 2, mean_b>, [K, K, N]."""
        lengths, offsets = torch.empty((2, len(pairs), rows), dtype=torch.float64)
        for index, (h, frame) in enumerate(zip(self._h, self._frames, strict=True)):
            for block in kcenter.row_blocks(rows, width):
                numbers = h[block].double()
                lengths[index, block] = torch.linalg.vector_norm(numbers, dim=1)
                self._to_means[index, :, block] = means @ (numbers - means[index] / 2).T
                offsets[index, block] = torch.linalg.vector_norm(frame.offsets(h[block]), dim=1).double()
            offsets[index].clamp_min_(kcenter.TINY**0.5).mul_(frame.unit)
        q_norms = torch.stack([torch.linalg.vector_norm(q, dim=1) for q in self._q])
        lengths.mul_(q_norms)
        self.squares = self._squares(lengths)
        """||G_i||^2 in float64, [N]."""
        # A distance of i and j is wrong by at most noise_i noise_j in float32 and the sum of both in float64.
        # Where the pairs contradict each other, G is shorter than what is rounded on the way to it.
        roundings = kcenter.count_roundings(self._q[0].shape[1] + width)
        self._noise = offsets.mul_(q_norms).mean(0).mul_((2 * kcenter.ROUNDING * roundings) ** 0.5)
        self._double_noise = lengths.mean(0).square_().mul_(kcenter.ROUNDING_DOUBLE * roundings)

    def squared_distances(self, rows: Tensor | slice, centres: Tensor) -> Tensor:
        """Return ||G_i - G_c||^2 in float64 [R, C]; what may be rounding only is 0, as for copies."""
        squares, towards = self.squares[rows, None] + self.squares[centres], self._locate(centres)
        for a, offsets in enumerate(self._locate(rows)):
            for b, toward in enumerate(towards):
                # <x, c> = <x - n/2, m> + <c - m/2, n> + <x - n, c - m> with the means n of x and m of c.
                products = (offsets @ toward.T).double().mul_(self._frames[a].unit * self._frames[b].unit)
                products += self._to_means[a, b, rows, None]
                products += self._to_means[b, a, centres]
                squares.addcmul_(self._q[a][rows] @ self._q[b][centres].T, products, value=-2 / len(towards) ** 2)
        noise = self._noise[rows, None] * self._noise[centres]
        noise += self._double_noise[rows, None] + self._double_noise[centres]
        return squares.masked_fill_(squares <= noise, 0)

    def nearest(self, centres: Tensor) -> Tensor:
        """Return min_c ||G_i - G_c||^2 in float64 [N]."""
        width = max(len(centres), 0 if self._offsets else self._h[0].shape[1])
        blocks = kcenter.row_blocks(len(self.squares), width)
        return torch.cat([self.squared_distances(block, centres).amin(1) for block in blocks])

    def _locate(self, rows: Tensor | slice) -> list[Tensor]:
        if self._offsets:
            return [offsets[rows] for offsets in self._offsets]
        return [frame.offsets(h[rows]) for frame, h in zip(self._frames, self._h, strict=True)]

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
    vectors: OuterProducts, budget: int, generator: torch.Generator, *, first: int | None = None
) -> tuple[Tensor, Tensor]:
    """Choose `budget` rows: the `first` or else the longest, then each with probability in proportion to D^2.

    D_i^2 is the squared distance of row i to the nearest chosen one; where all are 0, every row not chosen yet is
    equally likely. A draw takes one uniform number u from the generator and is the row in which u times the sum
    falls when rows lie side by side, each as long as its D^2.

    Of more than SMALL rows, all are compared with the picks only when there are 1, GROWTH, GROWTH^2, ... of them.
    Between, a row keeps its place but for what its D^2 has lost, at the end of it, and a draw that falls on
    nothing is repeated; after MISSES of them all rows are compared. So D^2 is always that of now.

    Returns the rows in order of choice, int64 [min(budget, N)], and their D^2 at the moment of the pick, float64;
    for the first pick its squared length, the distance to nothing at all.

    Raises ValueError for a negative budget, and for squares that are NaN or infinite (naming the row).

    >>> gradients = OuterProducts([(torch.ones(4, 1), torch.tensor([[1.0], [3.0], [3.0], [-2.0]]))])
    >>> rows, squares = k_means_plus_plus(gradients, 4, torch.Generator().manual_seed(0))
    >>> rows.tolist(), squares.tolist()
    ([1, 3, 0, 2], [9.0, 25.0, 4.0, 0.0])
    """
    size, budget = len(vectors.squares), min(budget, len(vectors.squares))
    if budget < 0:
        raise ValueError(f"The budget must not be negative, and it is {budget}.")
    if not (finite := vectors.squares.isfinite()).all():
        raise ValueError(f"The squared length of row {int((~finite).nonzero()[0])} is NaN or infinite.")
    rows = ([int(vectors.squares.argmax())] if first is None else [first]) if budget else []
    picked = vectors.squares[rows].tolist()
    weights = cumulative = torch.full((size,), torch.inf, dtype=torch.float64)
    numbers = weights[:0]
    known, due = 0, 1  # the number of picks that all rows are compared with, and when to do so again
    misses = 0  # draws in vain since the last pick
    while len(rows) < budget:
        if len(rows) == due or misses == MISSES:
            latest = torch.tensor(rows[known:])
            weights = torch.minimum(weights, vectors.nearest(latest)).index_fill_(0, latest, 0)
            cumulative, known, misses = weights.cumsum(0), len(rows), 0
            if known == due:
                due = due + 1 if size <= SMALL else due * GROWTH
        if cumulative[-1] == 0:
            break
        # So many draws there will be in any case: together they cost one product.
        count = min(DRAWS, min(due, budget) - len(rows))
        numbers = torch.cat((numbers, _draw(count - len(numbers), generator)))
        drawn, depths = _find_rows(cumulative, numbers[:count])
        before = now = weights[drawn].numpy()
        if known < len(rows):
            now = np.minimum(now, vectors.squared_distances(drawn, torch.tensor(rows[known:])).amin(1).numpy())
        apart = vectors.squared_distances(drawn, drawn).numpy() if count > 1 else np.zeros((1, 1))
        used = 0
        while used < count and misses < MISSES:
            if now[used] == before[used] or now[used] > depths[used]:
                rows.append(int(drawn[used]))
                picked.append(float(now[used]))
                now, misses = np.minimum(now, apart[used]), 0
            else:
                misses += 1
            used += 1
        numbers = numbers[used:]
    is_left = torch.ones(size, dtype=torch.float64)
    while len(rows) < budget:
        is_left[rows] = 0
        numbers = numbers if len(numbers) else _draw(1, generator)
        rows.append(int(_find_rows(is_left.cumsum(0), numbers[:1])[0]))
        picked.append(0.0)
        numbers = numbers[1:]
    return torch.tensor(rows, dtype=torch.int64), torch.tensor(picked, dtype=torch.float64)


def _draw(count: int, generator: torch.Generator) -> Tensor:
    return torch.rand(count, dtype=torch.float64, generator=generator)


def _find_rows(cumulative: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows in which numbers below 1 fall, as shares of the sum, and how deep in them, each [R]."""
    levels = numbers * cumulative[-1]
    # Rounded up to the sum itself, a level is exceeded nowhere.
    rows = torch.searchsorted(cumulative, levels, right=True)
    rows.clamp_max_(torch.searchsorted(cumulative, cumulative[-1:]))
    return rows, levels - torch.where(rows > 0, cumulative[rows - 1], 0)


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

    # scikit-learn's own start, with several trials for every centre, takes ten times longer than all iterations.
    first = int(torch.randint(len(points), (), generator=generator))
    rows = OuterProducts([(torch.ones(len(points), 1), points)])
    starts = k_means_plus_plus(rows, clusters, generator, first=first)[0]
    # The one copy is where scikit-learn takes the mean off; without, it would write into the pool's columns.
    kmeans = KMeans(
        clusters, init=points[starts].numpy(), n_init=1, max_iter=iterations, algorithm="lloyd", copy_x=True
    )
    with threadpool_limits(torch.get_num_threads()), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Number of distinct clusters", ConvergenceWarning)
        labels = kmeans.fit(points.numpy()).labels_
    return torch.from_numpy(labels).long()


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
