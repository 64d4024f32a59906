"""The seeding of k-means++: samples far from those chosen already are the more likely."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


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
    """A row with probability in proportion to its weight, float64 [N]; where all are 0, any not taken yet."""
    cumulative = weights.cumsum(0)
    if cumulative[-1] == 0:
        weights = torch.ones_like(weights)
        weights[taken] = 0
        cumulative = weights.cumsum(0)
    level = torch.rand(1, dtype=torch.float64, generator=generator) * cumulative[-1]
    row = int(torch.searchsorted(cumulative, level, right=True))
    # Rounded up to the sum itself, the level is exceeded nowhere.
    return row if row < len(weights) else int(weights.nonzero()[-1])
