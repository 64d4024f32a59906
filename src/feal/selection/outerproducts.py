"""Outer products q (x) h of every sample, compared with each other without being formed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from feal.selection.products import (
    ROUNDING_DOUBLE,
    TINY,
    Direction,
    Products,
    blocks,
    direction,
    mean_row,
    roundings,
)


class OuterProducts:
    """G_i = mean over K given pairs of q_i (x) h_i, with q [N, C] and h [N, D] in float32, N > 0.

    <G_i, G_j> = mean over all a, b of <q_ai, q_bj> <h_ai, h_bj>, so a distance costs one product of each matrix
    with K vectors. The matrices may lie on disk; they are only read.

    Raises ValueError for NaN and infinity (naming the row).

    >>> q, h = torch.tensor([[0.5, -0.5], [0.0, 0.0]]), torch.tensor([[3.0, 4.0], [1.0, 1.0]])
    >>> gradients = OuterProducts([(q, h)])
    >>> gradients.squares, gradients.squared_distances(1)
    (tensor([12.5000,  0.0000], dtype=torch.float64), tensor([12.5000,  0.0000], dtype=torch.float64))
    """

    def __init__(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
        self._q, self._h = (_Factor([pair[side] for pair in pairs]) for side in (0, 1))
        self.squares = _squares(pairs)
        """||G_i||^2 in float64, [N]."""
        # Where the pairs contradict each other, G is shorter than what is rounded on the way to it.
        self._sizes = (self._q.norms * self._h.norms).mean(0).clamp_min_(TINY)
        self._rounding = ROUNDING_DOUBLE * roundings(self._h.width)
        self._blur = self._sizes.square() * self._rounding

    def squared_distances(self, row: int) -> Tensor:
        """||G_i - G_row||^2 in float64 [N]; what cannot be told from rounding is 0, as it is for copies."""
        q, h = self._q.directions(row), self._h.directions(row)
        distances = self.squares + self.squares[row]
        for some_q, some_h in zip(self._q.products, self._h.products, strict=True):
            for q_product, h_product in zip(some_q.with_each(q), some_h.with_each(h), strict=True):
                distances.addcmul_(q_product, h_product, value=-2 / len(q) ** 2)
        noise = torch.add(self._blur, self._sizes, alpha=2 * self._error(row, q, h)).add_(self._blur[row])
        return distances.masked_fill_(distances <= noise, 0)

    def _error(self, row: int, q: list[Direction], h: list[Direction]) -> float:
        """<G_i, G_row> is wrong by at most this times the size of sample i."""
        norms = zip(self._q.norms[:, row].tolist(), self._h.norms[:, row].tolist(), strict=True)
        errors: list[float] = [
            of_q.error * h_norm + (q_norm + of_q.error) * of_h.error
            for (q_norm, h_norm), of_q, of_h in zip(norms, q, h, strict=True)
        ]
        return sum(errors) / len(errors)


class _Factor:
    """One side of the outer products: K matrices [N, width]."""

    def __init__(self, matrices: list[Tensor]) -> None:
        self._matrices = matrices
        self._means = torch.stack([mean_row(matrix) for matrix in matrices])
        self.width = matrices[0].shape[1]
        self.products = [Products(matrix, self._means) for matrix in matrices]
        self.norms = torch.stack([products.norms for products in self.products])
        """[K, N]"""

    def directions(self, row: int) -> list[Direction]:
        """Of the row's K vectors."""
        pairs = zip(self._matrices, self._means, strict=True)
        return [direction(matrix[row].double(), mean) for matrix, mean in pairs]


def _squares(pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    squares = torch.zeros(len(pairs[0][0]), dtype=torch.float64)
    for rows in blocks(len(squares), sum(q.shape[1] + h.shape[1] for q, h in pairs)):
        numbers = [(q[rows].double(), h[rows].double()) for q, h in pairs]
        for q, h in numbers:
            for other_q, other_h in numbers:
                squares[rows] += (q * other_q).sum(1) * (h * other_h).sum(1)
    return squares.div_(len(pairs) ** 2)
