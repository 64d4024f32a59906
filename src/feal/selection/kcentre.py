"""k-centre greedy: always the sample farthest from all that is labelled or chosen already."""

from __future__ import annotations

import torch
from torch import Tensor

from feal.selection.products import (
    BLOCK_NUMBERS,
    ROUNDING,
    ROUNDING_DOUBLE,
    TINY,
    Products,
    blocks,
    direction,
    mean_row,
    roundings,
)

CHOSEN = -1.0  # in place of the squared distance: below any
CENTRES = 1024  # labelled samples looked at together


def k_centre_greedy(features: Tensor, labelled: Tensor, budget: int) -> tuple[Tensor, Tensor]:
    """Choose `budget` rows, each the farthest from the labelled and the earlier chosen ones.

    The pick is argmax_i min_c ||x_i - c|| over the centres c (Euclidean), ties by row; without any centre the
    first row. When only copies of centres are left, they follow by row. The answer is that of float64
    arithmetic: float32 products rule out what cannot be nearer than before, and the rest is computed exactly.

    Shapes: features [N, D] and labelled [L, D], float32, possibly on disk and never changed. Returns the rows in
    order of choice, int64 [min(budget, N)], and their distances at the moment of the pick, float64, the first
    infinite if there was no centre.

    Raises ValueError for a negative budget, other types, shapes that do not fit, NaN and infinity (naming the
    row).

    >>> k_centre_greedy(torch.tensor([[1.0], [5.0], [7.0], [5.0]]), torch.tensor([[0.0]]), 3)
    (tensor([2, 1, 0]), tensor([7., 2., 1.], dtype=torch.float64))
    """
    _check(features, labelled, budget)
    budget = min(budget, len(features))
    rows = torch.empty(budget, dtype=torch.int64)
    squares = torch.empty(budget, dtype=torch.float64)
    if budget:
        cover = _Cover(features.detach())
        cover.add_labelled(labelled.detach())
        for pick in range(budget):
            rows[pick], squares[pick] = cover.take_farthest(last=pick == budget - 1)
    return rows, squares.sqrt_()


def _check(features: Tensor, labelled: Tensor, budget: int) -> None:
    if budget < 0:
        raise ValueError(f"The budget must not be negative, and it is {budget}.")
    for name, rows in (("features", features), ("labelled features", labelled)):
        if rows.ndim != 2 or rows.dtype != torch.float32:
            raise ValueError(
                f"The {name} are one row a sample in float32, not {rows.dtype} of shape {list(rows.shape)}."
            )
    if features.shape[1] != labelled.shape[1]:
        raise ValueError(
            f"The features have {features.shape[1]} numbers a sample and the labelled ones {labelled.shape[1]}."
        )


class _Cover:
    """Squared distances of all rows to their nearest centre, exact in float64.

    With e = c - mean: ||x - c||^2 = ||x - mean||^2 + ||e||^2 + 2 <mean, e> - 2 <x, e>. The last term, in float32,
    is all that a new centre costs; exact distances are computed for rows that may have come nearer.
    """

    def __init__(self, features: Tensor) -> None:
        self._features, self._mean = features, mean_row(features)
        products = Products(features, self._mean[None])
        self._mean_norm = float(torch.linalg.vector_norm(self._mean))
        self._sizes = products.norms.clamp_min(TINY)
        # At the least ||x - mean||^2: it is rounded, too, though in float64.
        self._rounding = ROUNDING_DOUBLE * roundings(features.shape[1])
        self._own = products.norms.square() - 2 * products.to_means[0] + self._mean_norm**2
        self._own.sub_((products.norms + self._mean_norm).square_(), alpha=self._rounding)
        self._nearest = torch.full((len(features),), torch.inf, dtype=torch.float64)
        self._bar = torch.full_like(self._nearest, -torch.inf)  # own - nearest; infinite where nothing is nearer

    def take_farthest(self, *, last: bool) -> tuple[int, float]:
        """The row farthest from all centres, which becomes one, and its squared distance."""
        row = int(self._nearest.argmax())
        square = float(self._nearest[row])
        self._nearest[row], self._bar[row] = CHOSEN, torch.inf
        if square > 0 and not last:  # the copy of a centre brings nothing nearer
            self._add(self._features[row])
        return row, square

    def _add(self, centre: Tensor) -> None:
        towards = direction(centre.double(), self._mean)
        below = torch.sub(self._bar, self._sizes, alpha=2 * towards.error)
        below.sub_(self._features.mv(towards.unit), alpha=2 * towards.length)
        level = self._level(centre[None].double() - self._mean)
        rows = (below < -float(level)).nonzero()[:, 0]
        if len(rows):
            self._measure(rows, torch.zeros_like(rows), centre[None])

    def _level(self, offsets: Tensor) -> Tensor:
        """||e||^2 + 2 <mean, e> of offsets e, at the least."""
        squares = offsets.square().sum(1)
        reach = (squares.sqrt() + self._mean_norm).square_()
        return squares + 2 * (offsets @ self._mean) - self._rounding * reach

    def add_labelled(self, centres: Tensor) -> None:
        """Labelled samples [L, D] as centres, many at once."""
        for start in range(0, len(centres), CENTRES):
            some = centres[start : start + CENTRES]
            offsets = some.double() - self._mean
            longest = float(torch.linalg.vector_norm(offsets, dim=1).max())
            if not longest < torch.inf:
                row = start + int((~some.isfinite().all(1)).nonzero()[0])
                raise ValueError(f"The features of labelled sample {row} contain NaN or infinity.")
            self._add_some(some, offsets, longest)

    def _add_some(self, centres: Tensor, offsets: Tensor, longest: float) -> None:
        level = self._level(offsets)
        # Divided by the largest length, as a product with numbers below 1 cannot overflow.
        scale = longest or 1.0
        units, levels = (offsets / scale).float().mul_(-2), (level / scale).float()
        error = roundings(centres.shape[1]) * ROUNDING
        slack = (2 * longest * self._sizes + float(level.abs().max())).mul_(error)
        slack.add_((self._sizes + longest + self._mean_norm).square_(), alpha=self._rounding)
        for rows in blocks(len(self._features), len(centres)):
            beyond = torch.addmm(levels, self._features[rows], units.T)
            nearer = torch.minimum(beyond.amin(1).double() * scale + slack[rows], -self._bar[rows]) + slack[rows]
            limit = torch.nextafter(nearer.div_(scale).float(), torch.tensor(torch.inf))
            row, centre = (beyond <= limit[:, None]).nonzero(as_tuple=True)
            self._measure(row + rows.start, centre, centres)

    def _measure(self, rows: Tensor, which: Tensor, centres: Tensor) -> None:
        """Brings the rows up to date with the exact distances of the pairs (rows[k], which[k])."""
        batch = max(1, BLOCK_NUMBERS // max(1, centres.shape[1]))
        for row, centre in zip(rows.split(batch), which.split(batch), strict=True):
            apart = self._features.index_select(0, row).double().sub_(centres.index_select(0, centre))
            self._nearest.scatter_reduce_(0, row, apart.square_().sum(1), "amin")
        nearest = self._nearest[rows]
        self._bar[rows] = (self._own[rows] - nearest).masked_fill_(nearest <= 0, torch.inf)
