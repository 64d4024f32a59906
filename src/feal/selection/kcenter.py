"""k-center greedy, exact at the speed of float32: bounds for most distances, float64 for few."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BLOCK_NUMBERS = 2**18  # in one block of rows: 1 MB in float32, so that a block stays in the cache
ROUNDING, ROUNDING_DOUBLE = 2.0**-24, 2.0**-52
TINY = 2.0**-100  # far more than what products in a frame lose to float32's smallest numbers
EXPONENTS = -120, 126  # of units that float32 can hold and invert
SAMPLED = 1024  # rows that the mean is taken of: it need not be exact
CENTRES = 1024  # looked at together
FRONT = 256  # rows that are chosen from together


class Frame(NamedTuple):
    """Coordinates in which features are numbers of about 1 around zero.

    So a product in float32 does not overflow, and what all samples have in common, often most of their length,
    is not rounded. The features may lie on disk; they are only read, and no copy of all of them is made.
    """

    shift: Tensor
    """float32 [D], in units"""
    unit: float
    """a power of two"""

    def offsets(self, features: Tensor) -> Tensor:
        """Return features / unit + shift, rounded once, in float32 [N, D]."""
        return torch.add(self.shift, features, alpha=1 / self.unit).float()

    def mean(self) -> Tensor:
        """Return the features at offset zero, in float64 [D]."""
        return self.shift.double() * -self.unit


def build_frame(features: Tensor, labelled: Tensor | None = None) -> Frame:
    """Return a frame around the mean of features [N, D], N > 0, that holds the labelled ones [L, D] as well.

    Raises ValueError for NaN and infinity (naming the row).
    """
    largest = 0.0
    for kind, rows in (("sample", features), ("labelled sample", labelled)):
        if rows is not None and rows.numel():
            extremes = torch.stack(rows.aminmax())
            if not extremes.isfinite().all():
                row = next(row for row, numbers in enumerate(rows) if not numbers.isfinite().all())
                raise ValueError(f"The features of {kind} {row} contain NaN or infinity.")
            largest = max(largest, float(extremes.abs().max()))
    unit = 2.0 ** min(max(math.frexp(largest)[1], EXPONENTS[0]), EXPONENTS[1])
    some = features[:: max(1, len(features) // SAMPLED)]
    return Frame(some.double().mean(0).div_(-unit).float(), unit)


def count_roundings(width: int) -> float:
    """Return how many roundings there are in a product of so many terms, and around it."""
    return 1.1 * width + 16  # constant features come near to that


def row_blocks(rows: int, width: int) -> Iterator[slice]:
    """Return slices that cover so many rows, each of about BLOCK_NUMBERS numbers."""
    step = max(1, BLOCK_NUMBERS // max(1, width))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def k_center(features: Tensor, labelled: Tensor, budget: int) -> tuple[Tensor, Tensor]:
    """Choose `budget` rows, each the farthest from the labelled and the earlier chosen ones.

    The pick is argmax_i min_c ||x_i - c|| over the centres c (Euclidean), ties by row; without any centre the
    first row. When only copies of centres are left, they follow by row. The answer is that of float64
    arithmetic: float32 products rule out what cannot be the farthest, and the rest is computed exactly.

    Shapes: features [N, D] and labelled [L, D], float32, possibly on disk and never changed. Returns the rows in
    order of choice, int64 [min(budget, N)], and their distances at the moment of the pick, float64, the first
    infinite if there was no centre.

    Raises ValueError for a negative budget, other types, shapes that do not fit, NaN and infinity (naming the
    row).

    >>> k_center(torch.tensor([[1.0], [5.0], [7.0], [5.0]]), torch.tensor([[0.0]]), 3)
    (tensor([2, 1, 0]), tensor([7., 2., 1.], dtype=torch.float64))
    """
    _check(features, labelled, budget)
    if not (budget := min(budget, len(features))):
        return torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.float64)
    cover = _Cover(features.detach(), labelled.detach())
    while len(cover.rows) < budget:
        cover.choose_from_front(budget)
    return torch.tensor(cover.rows), torch.tensor(cover.squares, dtype=torch.float64).sqrt_()


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


_Points = tuple[Tensor, Tensor]  # offsets [N, D] and their squared lengths [N]


class _Cover:
    """Chosen rows, and for each row an upper bound of the squared distance to its nearest centre.

    A distance to the nearest of some centres is an upper bound of that to the nearest of all. So a row is
    compared with further centres only when its bound is among the largest.
    """

    def __init__(self, features: Tensor, labelled: Tensor) -> None:
        self.rows, self.squares = list[int](), list[float]()
        self._features, self._labelled, self._frame = features, labelled, build_frame(features, labelled)
        self._error = 2 * ROUNDING * count_roundings(features.shape[1])
        # In units of the frame; exact for rows compared with every centre, below any distance for chosen ones.
        self._nearest = np.full(len(features), np.inf)
        self._compared = np.zeros(len(features), dtype=np.int64)  # with so many centres
        if not len(labelled):
            self._choose(0)
            self._labelled = features[:1]
        for centres in map(self._locate, self._labelled.split(CENTRES)):
            for block in row_blocks(*features.shape):
                bounds = self._bound_squares(self._locate(features[block]), centres, 1).amin(1).numpy()
                np.minimum(self._nearest[block], bounds, out=self._nearest[block])

    def choose_from_front(self, budget: int) -> None:
        """Choose rows, up to `budget` in all, from those with the largest bounds while they are the farthest."""
        rows = find_largest(self._nearest, FRONT)
        inside = self._nearest[rows]
        self._nearest[rows] = -np.inf
        outside = int(self._nearest.argmax())
        rest = (self._nearest[outside], -outside)
        self._nearest[rows] = inside
        self._update(rows)
        bounds: NDArray[np.float32] | None = None
        while len(self.rows) < budget:
            nearest = self._nearest[rows]
            place = int(nearest.argmax())
            if (nearest[place], -rows[place]) < rest:
                break
            self._choose(int(rows[place]))
            if nearest[place] > 0 and len(self.rows) < budget:  # the copy of a centre brings nothing nearer
                if bounds is None:
                    points = self._locate(self._take(rows))
                    bounds = self._bound_squares(points, points, -1).numpy()
                nearest[place] = -np.inf
                nearer = np.flatnonzero(bounds[place] < nearest)
                self._measure(rows[nearer], np.zeros_like(nearer), self._take(rows[[place]]))
        self._compared[rows] = len(self._labelled) + len(self.rows)

    def _choose(self, row: int) -> None:
        self.rows.append(row)
        self.squares.append(float(self._nearest[row]) * self._frame.unit**2)
        self._nearest[row] = -np.inf

    def _update(self, rows: NDArray[np.int64]) -> None:
        """Make the bounds of rows exact."""
        rows = rows[self._compared[rows] < len(self._labelled) + len(self.rows)]
        if not len(rows):
            return
        points = self._locate(self._take(rows))
        for some in self._split_centres(int(self._compared[rows].min())):
            centres = self._locate(some)
            bounds = self._bound_squares(points, centres, -1)
            # The nearest of these centres is among those not clearly farther than another.
            error = 3 * self._error * (points[1] + centres[1].max()) + 4 * TINY
            limit = np.minimum(self._nearest[rows], (bounds.amin(1).double() + error).numpy())
            pairs = np.flatnonzero(bounds.numpy() < limit[:, None])  # 40 times as fast as in two dimensions
            row, centre = np.divmod(pairs, len(some))
            self._measure(rows[row], centre, some)

    def _split_centres(self, first: int) -> Iterator[Tensor]:
        """Yield the features of the centres from the first on: labelled ones, then chosen ones."""
        if first < len(self._labelled):
            yield from self._labelled[first:].split(CENTRES)
        chosen = np.array(self.rows[max(0, first - len(self._labelled)) :], dtype=np.int64)
        for start in range(0, len(chosen), CENTRES):
            yield self._take(chosen[start : start + CENTRES])

    def _measure(self, rows: NDArray[np.int64], which: NDArray[np.int64], centres: Tensor) -> None:
        """Update rows with the exact distances of the pairs (rows[k], which[k])."""
        batch = max(1, BLOCK_NUMBERS // max(1, centres.shape[1]))
        for start in range(0, len(rows), batch):
            row, centre = rows[start : start + batch], which[start : start + batch]
            apart = self._take(row).double()
            apart.sub_(centres.index_select(0, torch.from_numpy(centre)))
            squares = apart.square_().sum(1).div_(self._frame.unit**2)
            np.minimum.at(self._nearest, row, squares.numpy())

    def _bound_squares(self, left: _Points, right: _Points, side: int) -> Tensor:
        """Return bounds [N, M] of squared distances in the frame, not below 0: lower (side -1) or upper (1) ones.

        ||x - c||^2 = ||x||^2 + ||c||^2 - 2 <x, c> is wrong by at most a share of ||x||^2 + ||c||^2.
        """
        share = 1 + side * self._error
        squares = torch.addmm(right[1] * share + side * TINY, left[0], right[0].T, alpha=-2)
        return squares.add_((left[1] * share)[:, None]).clamp_min_(0)

    def _locate(self, features: Tensor) -> _Points:
        offsets = self._frame.offsets(features)
        return offsets, torch.linalg.vector_norm(offsets, dim=1).square_()

    def _take(self, rows: NDArray[np.int64]) -> Tensor:
        return self._features.index_select(0, torch.from_numpy(rows))


def find_largest(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return the rows of the largest values in ascending order; of equal values the first."""
    if len(values) <= count:
        return np.arange(len(values))
    least = np.partition(values, -count)[-count]
    above = np.flatnonzero(values > least)
    return np.sort(np.concatenate((above, np.flatnonzero(values == least)[: count - len(above)])))
