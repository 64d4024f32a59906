"""Distances between gradient embeddings q (x) h (BADGE), without forming these outer products."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from feal.selection.kcenter import (
    ROUNDING_DOUBLE,
    TINY,
    Direction,
    Products,
    compute_mean,
    count_roundings,
    measure_direction,
    row_blocks,
)


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
        self._means = [compute_mean(h) for h in self._h]
        self._products = [Products(h, self._means) for h in self._h]
        self._q_norms = torch.stack([torch.linalg.vector_norm(q, dim=1) for q in self._q])
        lengths = self._q_norms * torch.stack([products.norms for products in self._products])
        self.squares = self._squares(lengths)
        """||G_i||^2 in float64, [N]."""
        # Where the pairs contradict each other, G is shorter than what is rounded on the way to it.
        self._sizes = lengths.mean(0).clamp_min_(TINY).numpy()
        self._largest = float(self._sizes.max())
        self._rounding = ROUNDING_DOUBLE * count_roundings(self._q[0].shape[1] + self._h[0].shape[1])

    def squared_distances(self, row: int) -> Tensor:
        """Return ||G_i - G_row||^2 in float64 [N]; what cannot be told from rounding is 0, as it is for copies."""
        vectors = [measure_direction(h[row], mean) for h, mean in zip(self._h, self._means, strict=True)]
        distances = self.squares + self.squares[row]
        for q, products in zip(self._q, self._products, strict=True):
            for other, product in zip(self._q, products.multiply(vectors), strict=True):
                distances.addcmul_(q.mv(other[row]), product, value=-2 / len(vectors) ** 2)
        self._remove_rounding(distances.numpy(), row, vectors)
        return distances

    def _remove_rounding(self, distances: NDArray[np.float64], row: int, vectors: list[Direction]) -> None:
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
            for rows in row_blocks(len(squares), 2 * h.shape[1]):
                h_inner = (h[rows].double() * other_h[rows].double()).sum(1)
                squares[rows] += 2 * (q[rows] * other_q[rows]).sum(1) * h_inner
        # Two that cancel each other leave a trace of rounding on either side of zero.
        return squares.div_(len(pairs) ** 2).clamp_min_(0)
