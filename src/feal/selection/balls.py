"""Coverage of a pool by balls of one radius: the radius, and a greedy choice of centres."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from feal.selection import kcenter
from feal.selection.coverage import REFERENCES, draw_rows, first_of_copies, locate, squared_distances
from feal.selection.kmeans import k_means

QUERIED = 2_048  # samples whose nearest one of another cluster gives a radius: all, or so many drawn
ITERATIONS = 20  # of k-means
MARGIN = 1e-9  # share by which a radius lies below the distance that it must not reach
BLOCK = 256  # candidates looked at together, a multiple of 8


def pure_square(features: Tensor, clusters: int, purity: float, *, generator: Generator) -> float:
    """Return the largest squared radius at which that share of all balls around rows lies in one cluster.

    The clusters are those of k-means. A ball is pure up to the distance of its centre to the nearest row of
    another cluster; the radius is a billionth below the (n + 1)-th smallest of these, with n the balls that may
    be impure. Infinite if there is one cluster only.

    Shapes: features [N, D], N > 0; of more than QUERIED rows, the balls around so many drawn ones stand for all.

    >>> points = torch.tensor([[0.0], [1.0], [5.0], [6.5]])
    >>> round(pure_square(points, 2, 0.5, generator=torch.Generator().manual_seed(0)), 6)
    25.0
    """
    labels = k_means(features, clusters, generator=generator, iterations=ITERATIONS)
    queried = draw_rows(len(features), QUERIED, generator)
    frame = kcenter.build_frame(features)
    centres = locate(frame, features[queried])
    nearest = torch.full((len(queried),), torch.inf, dtype=torch.float64)
    for block in kcenter.row_blocks(len(features), len(queried)):
        squares = squared_distances(centres, locate(frame, features[block]))
        squares.masked_fill_(labels[queried, None] == labels[block], torch.inf)
        torch.minimum(nearest, squares.amin(1), out=nearest)
    # 1 - 0.95 is a little above 0.05 in binary, and times 20 must be 1.
    impure = int((1 - purity) * len(nearest) + 1e-9)
    radius = float(nearest.sort().values[min(impure, len(nearest) - 1)]) ** 0.5
    return float(((1 - MARGIN) * radius * frame.unit) ** 2)


def cover_by_balls(
    features: Tensor, labelled: Tensor, budget: int, square: float, *, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Choose `budget` rows, each the one whose ball holds most rows that no labelled or chosen one's ball holds.

    A ball holds what is no farther than the root of `square`. Ties go by row, and a copy follows its original.
    When every row is covered, the rows left follow in order. Counts run over all rows, or over REFERENCES drawn
    ones of a larger pool; every row is a candidate. The answer is that of float64 arithmetic: products in float32
    decide what is clearly inside or outside.

    Shapes: features [N, D] and labelled [L, D] in float32, possibly on disk and never changed. Returns the rows in
    order of choice, int64 [min(budget, N)], and the share of rows that each covers newly, float64. The pairs take
    one bit each: 125 MB for 100,000 rows.

    >>> features = torch.tensor([[0.0], [1.0], [1.2], [9.0]])
    >>> cover_by_balls(features, features[:0], 3, 1.0, generator=torch.Generator())
    (tensor([1, 3, 0]), tensor([0.7500, 0.2500, 0.0000], dtype=torch.float64))
    """
    budget = min(budget, len(features))
    rows, shares = list[int](), list[float]()
    if budget:
        drawn = features[draw_rows(len(features), REFERENCES, generator)]
        frame = kcenter.build_frame(features, labelled)
        limit = square / frame.unit**2
        references, candidates = locate(frame, drawn), first_of_copies(features)
        is_covered = torch.zeros(len(drawn), dtype=torch.bool)
        for block in kcenter.row_blocks(len(labelled), len(drawn)):
            is_covered |= (squared_distances(locate(frame, labelled[block]), references) <= limit).any(0)
        bits = _hold(references, features, candidates, frame, limit)
        gains = np.zeros(len(candidates), dtype=np.int32)
        for reference in (~is_covered).nonzero()[:, 0].tolist():
            gains += _unpack(bits, reference, len(gains))
        uncovered = (~is_covered).numpy()
        while len(rows) < budget and (gain := int(gains.max())) > 0:
            place = int(gains.argmax())
            rows.append(int(candidates[place]))
            shares.append(gain / len(drawn))
            newly = uncovered & ((bits[:, place // 8] >> (7 - place % 8)) & 1).astype(bool)
            for reference in np.flatnonzero(newly).tolist():
                gains -= _unpack(bits, reference, len(gains))
            uncovered &= ~newly
    is_left = torch.ones(len(features), dtype=torch.bool)
    is_left[rows] = False
    rows += is_left.nonzero()[: budget - len(rows), 0].tolist()
    shares += [0.0] * (budget - len(shares))
    return torch.tensor(rows, dtype=torch.int64), torch.tensor(shares, dtype=torch.float64)


def _unpack(bits: NDArray[np.uint8], reference: int, count: int) -> NDArray[np.uint8]:
    """Return for each candidate whether its ball holds a reference, 0 or 1."""
    return np.unpackbits(bits[reference], count=count)


def _hold(
    references: Tensor, features: Tensor, candidates: Tensor, frame: kcenter.Frame, limit: float
) -> NDArray[np.uint8]:
    """Return whether the ball of each candidate holds each reference, [R, candidates / 8], eight to a byte."""
    centres = references.float()
    error = 2 * kcenter.ROUNDING * kcenter.count_roundings(centres.shape[1])
    lengths = centres.square().sum(1)
    bits = np.zeros((len(centres), -(-len(candidates) // 8)), dtype=np.uint8)
    for start in range(0, len(candidates), BLOCK):
        chosen = features[candidates[start : start + BLOCK]]
        points = frame.offsets(chosen)
        sums = lengths[:, None] + points.square().sum(1)
        squares = torch.addmm(sums, centres, points.T, alpha=-2).sub_(limit)
        is_held = squares <= 0
        unsure = (squares.abs_() <= sums.mul_(error).add_(kcenter.TINY)).nonzero()
        if len(unsure):
            left, right = references[unsure[:, 0]], locate(frame, chosen[unsure[:, 1]])
            is_held[unsure[:, 0], unsure[:, 1]] = (left - right).square_().sum(1) <= limit
        packed = np.packbits(is_held.numpy(), axis=1)
        bits[:, start // 8 : start // 8 + packed.shape[1]] = packed
    return bits
