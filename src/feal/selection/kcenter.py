"""k-center greedy, exact at the speed of float32: products of features and vectors with a bound on their error."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BLOCK_NUMBERS = 2**17  # float64 numbers in one block of rows: 1 MB, so that a block stays in the cache
ROUNDING, ROUNDING_DOUBLE = 2.0**-24, 2.0**-52
TINY = 2.0**-100  # rows shorter than this may lose digits to float32's smallest numbers
CHOSEN = -1.0  # in place of the squared distance: below any
CENTRES = 1024  # labelled samples looked at together
AHEAD = 6  # products with so many rows at once take less than twice as long as with one


class Mean(NamedTuple):
    """The mean of a population of vectors, and how far it is from zero."""

    vector: Tensor
    """float64 [D]"""
    length: float


class Direction(NamedTuple):
    """A vector relative to the mean of its population."""

    unit: Tensor
    """(v - mean) / length in float32, [D]: at length 1 a product neither overflows nor vanishes."""
    length: float
    """||v - mean||"""
    error: float
    """A product of v with a row x is wrong by at most max(||x||, TINY) times this."""


class Products:
    """Products of features [N, D] with vectors that come from populations of known means.

    <x, v> = <x, mean> + <x, v - mean>: the first term is known once and for all in float64, and only the second
    is computed in float32. So what all samples have in common, often most of their length, is not rounded.
    The features may lie on disk; they are only read, and no copy of them is made.

    Raises ValueError for NaN and infinity (naming the row).
    """

    def __init__(self, features: Tensor, means: Sequence[Mean]) -> None:
        self._features = features
        self.norms = torch.empty(len(features), dtype=torch.float64)
        """||x_i||, [N]."""
        self.to_means = torch.empty((len(means), len(features)), dtype=torch.float64)
        """<x_i, mean_k>, [K, N]."""
        vectors = torch.stack([mean.vector for mean in means])
        for rows in row_blocks(len(features), features.shape[1]):
            numbers = features[rows].double()
            self.norms[rows] = torch.linalg.vector_norm(numbers, dim=1)
            self.to_means[:, rows] = vectors @ numbers.T
        if not (finite := self.norms.isfinite()).all():
            raise ValueError(f"The features of sample {int((~finite).nonzero()[0])} contain NaN or infinity.")

    def multiply(self, vectors: Sequence[Direction]) -> list[Tensor]:
        """Return <x_i, v_k> in float64, K times [N], for one vector of each population."""
        if len(vectors) == 1:
            columns = [self._features.mv(vectors[0].unit)]
        else:  # this way round it takes half the time
            columns = list(torch.stack([vector.unit for vector in vectors]) @ self._features.T)
        return [
            torch.add(to_mean, column, alpha=vector.length)
            for to_mean, column, vector in zip(self.to_means, columns, vectors, strict=True)
        ]


def count_roundings(width: int) -> float:
    """Return how many roundings there are in a product of so many terms, and around it."""
    return 1.1 * width + 16  # constant features come near to that


def measure_direction(vector: Tensor, mean: Mean) -> Direction:
    """Return a vector [D] relative to the mean."""
    offset = vector.double() - mean.vector
    length = float(torch.linalg.vector_norm(offset))
    error = ROUNDING * length + ROUNDING_DOUBLE * (length + 2 * mean.length)
    return Direction(offset.div_(length or 1.0).float(), length, error * count_roundings(len(vector)))


def compute_mean(features: Tensor) -> Mean:
    """Return the mean of features [N, D], N > 0."""
    total = torch.zeros(features.shape[1], dtype=torch.float64)
    for rows in row_blocks(len(features), features.shape[1]):
        total += features[rows].double().sum(0)
    return Mean(total / len(features), float(torch.linalg.vector_norm(total)) / len(features))


def row_blocks(rows: int, width: int) -> Iterator[slice]:
    """Return slices that cover so many rows, each of about BLOCK_NUMBERS numbers."""
    step = max(1, BLOCK_NUMBERS // max(1, width))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def k_center(features: Tensor, labelled: Tensor, budget: int) -> tuple[Tensor, Tensor]:
    """Choose `budget` rows, each the farthest from the labelled and the earlier chosen ones.

    The pick is argmax_i min_c ||x_i - c|| over the centres c (Euclidean), ties by row; without any centre the
    first row. When only copies of centres are left, they follow by row. The answer is that of float64
    arithmetic: float32 products rule out what cannot be nearer than before, and the rest is computed exactly.

    Shapes: features [N, D] and labelled [L, D], float32, possibly on disk and never changed. Returns the rows in
    order of choice, int64 [min(budget, N)], and their distances at the moment of the pick, float64, the first
    infinite if there was no centre.

    Raises ValueError for a negative budget, other types, shapes that do not fit, NaN and infinity (naming the
    row).

    >>> k_center(torch.tensor([[1.0], [5.0], [7.0], [5.0]]), torch.tensor([[0.0]]), 3)
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

    With e = c - mean: ||x - c||^2 = ||x - mean||^2 + (||c||^2 - ||mean||^2) - 2 <x, e>. The last term, in float32,
    is all that a new centre costs; exact distances are computed for rows that may have come nearer.
    """

    def __init__(self, features: Tensor) -> None:
        self._features, self._mean = features, compute_mean(features)
        products = Products(features, [self._mean])
        self._norms, self._sizes = products.norms, products.norms.clamp_min(TINY)
        self._largest = float(self._sizes.max())
        self._rounding = ROUNDING_DOUBLE * count_roundings(features.shape[1])
        # ||x - mean||^2 at the least: it is rounded, too, though in float64.
        own = self._norms.square() - 2 * products.to_means[0] + self._mean.length**2
        self._own = own.sub_((self._norms + self._mean.length).square_(), alpha=self._rounding).numpy()
        # What changes by a few numbers at a time is an array, for which that takes a fraction of a tensor's time.
        self._nearest = np.full(len(features), np.inf)
        self._bar = np.full(len(features), -np.inf)  # own - nearest; infinite where nothing can come nearer
        self._ahead: dict[int, tuple[Direction, Tensor]] = {}

    def take_farthest(self, *, last: bool) -> tuple[int, float]:
        """Return the row farthest from all centres, which becomes one, and its squared distance."""
        row = int(self._nearest.argmax())
        square = float(self._nearest[row])
        self._nearest[row], self._bar[row] = CHOSEN, np.inf
        if square > 0 and not last:  # the copy of a centre brings nothing nearer
            self._add(row)
        return row, square

    def add_labelled(self, centres: Tensor) -> None:
        """Make labelled samples [L, D] centres, many at once."""
        for start in range(0, len(centres), CENTRES):
            some = centres[start : start + CENTRES].double()
            if not (finite := some.isfinite().all(1)).all():
                row = start + int((~finite).nonzero()[0])
                raise ValueError(f"The features of labelled sample {row} contain NaN or infinity.")
            self._add_some(some)

    def _add(self, row: int) -> None:
        centre = self._features[row]
        towards, products = self._products(row)
        below = torch.sub(torch.from_numpy(self._bar), products, alpha=2 * towards.length).numpy()
        level = self._level(self._norms[row]).item()
        rows = np.flatnonzero(below < 2 * towards.error * self._largest - level)
        if len(rows):
            self._measure(rows, np.zeros_like(rows), centre[None].double())

    def _products(self, row: int) -> tuple[Direction, Tensor]:
        """Return the direction of a row and all rows' products with it.

        What is farthest next often is among the farthest already, so their products are computed beside it.
        """
        if row not in self._ahead:
            count = min(AHEAD, len(self._nearest)) - 1
            farthest = np.argpartition(self._nearest, -count)[-count:].tolist() if count else []
            rows = list(dict.fromkeys([row, *farthest]))
            directions = [measure_direction(self._features[each], self._mean) for each in rows]
            products = torch.stack([towards.unit for towards in directions]) @ self._features.T
            self._ahead = dict(zip(rows, zip(directions, products, strict=True), strict=True))
        return self._ahead[row]

    def _add_some(self, centres: Tensor) -> None:
        offsets = centres - self._mean.vector
        level = self._level(torch.linalg.vector_norm(centres, dim=1))
        longest = float(torch.linalg.vector_norm(offsets, dim=1).max())
        # Divided by the largest length, as a product with numbers below 1 cannot overflow.
        scale = longest or 1.0
        units, levels = (offsets / scale).float().mul_(-2), (level / scale).float()
        slack = (2 * longest * self._sizes + float(level.abs().max())).mul_(
            count_roundings(centres.shape[1]) * ROUNDING
        )
        slack.add_((self._sizes + longest + self._mean.length).square_(), alpha=self._rounding)
        for rows in row_blocks(len(self._features), len(centres)):
            beyond = torch.addmm(levels, self._features[rows], units.T)
            closest = beyond.amin(1).double() * scale + slack[rows]
            limit = torch.minimum(closest, -torch.from_numpy(self._bar[rows])).add_(slack[rows]).div_(scale)
            upwards = torch.nextafter(limit.float(), torch.tensor(torch.inf))
            near = np.flatnonzero((beyond <= upwards[:, None]).numpy())  # 40 times as fast as in two dimensions
            row, centre = np.divmod(near, len(centres))
            self._measure(row + rows.start, centre, centres)

    def _level(self, norms: Tensor) -> Tensor:
        """Return a lower bound of ||c||^2 - ||mean||^2."""
        return norms.square() - self._mean.length**2 - self._rounding * (norms + self._mean.length).square()

    def _measure(self, rows: NDArray[np.int64], which: NDArray[np.int64], centres: Tensor) -> None:
        """Update rows with the exact distances of the pairs (rows[k], which[k])."""
        batch = max(1, BLOCK_NUMBERS // max(1, centres.shape[1]))
        for start in range(0, len(rows), batch):
            row, centre = rows[start : start + batch], which[start : start + batch]
            apart = self._features.index_select(0, torch.from_numpy(row)).double()
            apart.sub_(centres.index_select(0, torch.from_numpy(centre)))
            np.minimum.at(self._nearest, row, apart.square_().sum(1).numpy())
        nearest = self._nearest[rows]
        self._bar[rows] = np.where(nearest > 0, self._own[rows] - nearest, np.inf)
