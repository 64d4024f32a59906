"""Coverage of a pool by chosen samples: distances in blocks, a lazy greedy choice, radii and typicality.

Squared distances are Euclidean and in float64. No matrix of all pairs is formed: sums run over blocks, and over at
most REFERENCES samples.
"""

import numpy as np
import torch
from torch import Generator, Tensor

from feal.selection import kcenter

REFERENCES = 10_000  # samples that coverage is summed over: all of a pool up to this size, else so many drawn
PAIRED = 3_000  # samples whose pairs give a quantile of distances: all of them, or so many drawn
CROWD = 5_000  # members of a cluster that typicality is computed of: all, or so many drawn
BATCH = 64  # candidates whose gain is computed together
KEPT_NUMBERS = 2**25  # of the kernel: 256 MB
TIE = 1e-9  # share of the largest gain within which another is equal to it
NOTHING = 1e-12  # gain up to which a candidate covers nothing more


def cover_greedily(
    features: Tensor,
    labelled: Tensor,
    budget: int,
    square: float,
    *,
    generator: Generator,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Choose `budget` rows, each the one that adds most to what the labelled and the chosen ones cover.

    The pick is argmax_i sum_j w_j max(0, K_ij - m_j) with K_ij = exp(-||x_i - x_j||^2 / square), where m_j is the
    largest K_jl over labelled and chosen l, and 0 without any. Gains within a billionth of the largest are equal
    to it, ties go by row, and a copy follows its original. When nothing is left to cover, the rows left follow in
    order, with gain 0. Without weights, or with none above 0, all are 1.

    The sum over j runs over all rows, or over REFERENCES drawn ones of a larger pool; every row is a candidate.
    A gain never grows (the sum is submodular), so an old one is an upper bound, and few are computed again.

    Shapes: features [N, D] and labelled [L, D] in float32, possibly on disk and never changed; weights [N], at
    least 0. Returns the rows in order of choice, int64 [min(budget, N)], and their gains at the moment of the
    pick as a share of sum_j w_j, float64.

    >>> features = torch.tensor([[0.0], [1.0], [1.0], [99.0]])
    >>> cover_greedily(features, features[:0], 3, 1.0, generator=torch.Generator())
    (tensor([1, 3, 0]), tensor([0.5920, 0.2500, 0.1580], dtype=torch.float64))
    """
    budget = min(budget, len(features))
    rows, gains = list[int](), list[float]()
    if budget:
        cover = _Cover(features, labelled, square, weights, generator)
        while len(rows) < budget and (pick := cover.choose()) is not None:
            rows.append(pick[0])
            gains.append(pick[1])
    is_left = torch.ones(len(features), dtype=torch.bool)
    is_left[rows] = False
    rows += is_left.nonzero()[: budget - len(rows), 0].tolist()
    gains += [0.0] * (budget - len(gains))
    return torch.tensor(rows, dtype=torch.int64), torch.tensor(gains, dtype=torch.float64)


def squared_distances(rows: Tensor, others: Tensor) -> Tensor:
    """Return ||x - y||^2 of float64 rows [N, D] and [M, D], [N, M]; what may be rounding only is 0.

    >>> squared_distances(torch.tensor([[3.0, 0.0]]).double(), torch.tensor([[3.0, 0.0], [0.0, 4.0]]).double())
    tensor([[ 0., 25.]], dtype=torch.float64)
    """
    sums = rows.square().sum(1)[:, None] + others.square().sum(1)
    squares = torch.addmm(sums, rows, others.T, alpha=-2)
    noise = kcenter.ROUNDING_DOUBLE * kcenter.count_roundings(rows.shape[1])
    return squares.masked_fill_(squares <= sums.mul_(noise), 0)


def quantile_square(features: Tensor, quantile: float, *, generator: Generator) -> float:
    """Return the quantile of the squared distances of all pairs but copies; 1 if there is no such pair.

    Shapes: features [N, D]; of more than PAIRED rows, the pairs of so many drawn ones stand for all.

    >>> quantile_square(torch.tensor([[0.0], [1.0], [3.0], [3.0]]), 0.5, generator=torch.Generator())
    4.0
    """
    if not len(features):
        return 1.0
    frame = kcenter.build_frame(features)
    rows = locate(frame, features[draw_rows(len(features), PAIRED, generator)])
    squares = squared_distances(rows, rows).numpy()
    apart = squares[np.triu(squares > 0)]
    return float(np.quantile(apart, quantile)) * frame.unit**2 if len(apart) else 1.0


def smallest_square(features: Tensor) -> float | None:
    """Return the smallest squared distance of two rows that are no copies; None if there are none.

    >>> smallest_square(torch.tensor([[0.0], [5.0], [3.0], [3.0]]))
    4.0
    """
    if not len(features):
        return None
    frame, smallest = kcenter.build_frame(features), torch.inf
    rows = locate(frame, features)
    for block in kcenter.row_blocks(len(rows), len(rows)):
        squares = squared_distances(rows[block], rows)
        smallest = min(smallest, float(squares.masked_fill_(squares == 0, torch.inf).min()))
    return smallest * frame.unit**2 if smallest < torch.inf else None


def typicality(features: Tensor, neighbours: int) -> Tensor:
    """Return how dense a cluster is around each member: 1 / (mean distance to its nearest members + 1e-5).

    There are min(neighbours, N / 2) such members, rounded down; a member without any has typicality 0.

    Shapes: features [N, D]; float64 [N].

    >>> typicality(torch.tensor([[0.0], [1.0], [3.0]]), 20)
    tensor([1.0000, 1.0000, 0.5000], dtype=torch.float64)
    """
    count = min(neighbours, len(features) // 2)
    if not count:
        return torch.zeros(len(features), dtype=torch.float64)
    frame = kcenter.build_frame(features)
    rows, means = locate(frame, features), torch.empty(len(features), dtype=torch.float64)
    for block in kcenter.row_blocks(len(rows), len(rows)):
        squares = squared_distances(rows[block], rows)
        squares[torch.arange(len(squares)), torch.arange(block.start, block.stop)] = torch.inf
        means[block] = squares.topk(count, dim=1, largest=False).values.sqrt_().mean(1) * frame.unit
    return 1 / (means + 1e-5)


def draw_rows(size: int, count: int, generator: Generator) -> Tensor:
    """Return `count` of `size` row numbers in ascending order, drawn at random; all if there are no more."""
    if size <= count:
        return torch.arange(size)
    return torch.randperm(size, generator=generator)[:count].sort().values


def locate(frame: kcenter.Frame, features: Tensor) -> Tensor:
    """Return the features in a frame, float64 [N, D]."""
    return features.double().div_(frame.unit).add_(frame.shift)


def first_of_copies(features: Tensor) -> Tensor:
    """Return the rows that equal no earlier one, in ascending order."""
    draw = torch.Generator().manual_seed(0)
    factors = torch.randint(-(2**62), 2**62, (features.shape[1],), generator=draw) | 1
    # Integers overflow without rounding: copies have equal sums, others by a chance of 2^-62.
    sums = torch.empty(len(features), dtype=torch.int64)
    for block in kcenter.row_blocks(*features.shape):
        sums[block] = (features[block].contiguous().view(torch.int32).long() * factors).sum(1)
    rows: Tensor = torch.from_numpy(np.unique(sums.numpy(), return_index=True)[1])
    return rows.sort().values


class _Cover:
    """What is covered of each reference, and for each candidate an upper bound of what it would add."""

    def __init__(
        self, features: Tensor, labelled: Tensor, square: float, weights: Tensor | None, generator: Generator
    ) -> None:
        self._features, self._frame = features, kcenter.build_frame(features, labelled)
        # As small as float32 can divide by.
        self._square = max(square / self._frame.unit**2, kcenter.TINY)
        drawn = draw_rows(len(features), REFERENCES, generator)
        self._references = locate(self._frame, features[drawn])
        if weights is None or not bool((weights[drawn] > 0).any()):
            weights = torch.ones(len(features))
        self._weights = weights[drawn].double()
        self._weights /= self._weights.sum()
        self._covered = self._cover_by(labelled)
        """m_j, [R]"""
        self._candidates = first_of_copies(features)
        self._bounds = self._bound_gains()
        self._slots = dict[int, int]()
        capacity = max(BATCH, min(len(self._candidates), KEPT_NUMBERS // len(drawn)))
        self._kept = torch.empty((capacity, len(drawn)), dtype=torch.float64)
        """Rows of the kernel, by `_slots` of candidates."""

    def choose(self) -> tuple[int, float] | None:
        """Choose the row with the largest gain and return it with its gain; None if there is no gain."""
        places = torch.arange(len(self._bounds))
        is_stale = torch.ones(len(self._bounds), dtype=torch.bool)
        best, leader = NOTHING, len(self._bounds)
        while True:
            # What may be larger, and what may be as large and stands before.
            near = torch.where(places < leader, best * (1 - TIE), best * (1 + TIE))
            bounds = self._bounds.masked_fill(~(is_stale & (self._bounds > near)), -torch.inf)
            some = torch.from_numpy(kcenter.find_largest(bounds.numpy(), BATCH))
            some = some[bounds[some] > -torch.inf]
            if not len(some):
                break
            self._bounds[some] = self._compute_gains(some)
            is_stale[some] = False
            best = max(best, float(self._bounds[some].max()))
            equal = ~is_stale & (self._bounds >= best * (1 - TIE))
            leader = int(equal.nonzero()[0]) if best > NOTHING else leader
        if best == NOTHING:
            return None
        gain = float(self._bounds[leader])
        self._compute_gains(places[leader : leader + 1])  # its row may not be kept any more
        torch.maximum(self._covered, self._kept[self._slots[leader]], out=self._covered)
        self._bounds[leader] = -torch.inf
        return int(self._candidates[leader]), gain

    def _compute_gains(self, places: Tensor) -> Tensor:
        missing = [place for place in places.tolist() if place not in self._slots]
        if len(self._slots) + len(missing) > len(self._kept):
            self._slots.clear()
            missing = places.tolist()
        if missing:
            points = locate(self._frame, self._features[self._candidates[missing]])
            first = len(self._slots)
            self._kept[first : first + len(missing)] = self._similarity(
                squared_distances(points, self._references)
            )
            self._slots |= {place: first + number for number, place in enumerate(missing)}
        rows = self._kept[[self._slots[place] for place in places.tolist()]]
        return rows.sub_(self._covered).clamp_min_(0) @ self._weights

    def _similarity(self, squares: Tensor) -> Tensor:
        """Return the kernel of squared distances in the frame, in their place."""
        return squares.div_(-self._square).exp_()

    def _cover_by(self, labelled: Tensor) -> Tensor:
        nearest = torch.full((len(self._references),), torch.inf, dtype=torch.float64)
        for block in kcenter.row_blocks(len(labelled), len(nearest)):
            squares = squared_distances(locate(self._frame, labelled[block]), self._references)
            torch.minimum(nearest, squares.amin(0), out=nearest)
        return self._similarity(nearest)

    def _bound_gains(self) -> Tensor:
        """Return upper bounds of all gains by products in float32: distances no larger than they are."""
        references = self._references.float()
        error = 2 * kcenter.ROUNDING * kcenter.count_roundings(references.shape[1])
        reference_squares = references.square().sum(1).mul_(1 - error).sub_(kcenter.TINY)
        covered, weights = self._covered.float().mul_(1 - 1e-6), self._weights.float()
        # Filled in place: small tensors kept between large ones would keep the allocator from giving memory back.
        bounds = torch.empty(len(self._candidates), dtype=torch.float64)
        for block in kcenter.row_blocks(len(bounds), len(references) // 4):
            points = self._frame.offsets(self._features[self._candidates[block]])
            squares = torch.addmm(reference_squares, points, references.T, alpha=-2)
            squares.add_(points.square().sum(1).mul_(1 - error)[:, None]).clamp_min_(0)
            bounds[block] = (self._similarity(squares).sub_(covered).clamp_min_(0) @ weights).double()
        # Sums of so many numbers and the exponential are rounded, too.
        return bounds.mul_(1 + 1e-4).add_(NOTHING)
