"""Cosine similarities inside one pool: quick ones whose error is bounded, and exact ones for single pairs."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

# The error of one rounding; twice that in float64, as the exact cosines are rounded themselves.
ROUNDING = {torch.float32: 2.0**-24, torch.float64: 2.0**-52}
# Norms in between can be squared, summed and inverted in float32 without overflow or loss of digits.
SAFE_NORMS = (1e-15, 1e15)
TINY = 5e-324
PAIR_NUMBERS = 2**18  # float64 numbers in one batch of pairs: 2 MB, so that a batch stays in the cache

Rows = Tensor | slice


def product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right.T: every large matrix product of the relaxation goes through here."""
    return left @ right.T


class Cosines:
    """The cosines of a pool's features [N, D]; a row of zeros has cosine 0 to everything."""

    def __init__(self, features: Tensor) -> None:
        self.features = features
        # D roundings in a product, D / 16 in the norms, a few more; constant features come near to that.
        roundings = 1.1 * features.shape[1] + 16
        self.margins = {dtype: roundings * rounding for dtype, rounding in ROUNDING.items()}
        self.norms = torch.linalg.vector_norm(features, dim=1)
        # Numbers too large or too small for float32 products are brought to length 1 before each product.
        self.wild = self._has_wild_rows()
        self.inverse = self.norms.reciprocal().masked_fill_(self.norms == 0, 0).float()

    def __len__(self) -> int:
        return len(self.features)

    def units(self, rows: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """The rows at length 1."""
        if self.wild or dtype == torch.float64:
            return self._exact_units(rows).to(dtype)
        return self._take(rows).float().mul_(self.inverse[rows, None])

    def by_row(self, units: Tensor, rows: Rows) -> Tensor:
        """Quick cosines [len(units), len(rows)] in the type of the units, within its margin of `exact`."""
        if self.wild or units.dtype == torch.float64:
            return product(units, self._exact_units(rows).to(units.dtype))
        return product(units, self._take(rows).float()).mul_(self.inverse[rows])

    def by_column(self, rows: Rows, units: Tensor) -> Tensor:
        """The transpose of `by_row` in float32, the faster way round for a handful of units."""
        if self.wild:
            return product(self._exact_units(rows).float(), units)
        return product(self._take(rows).float(), units).mul_(self.inverse[rows, None])

    def exact(self, left: Tensor, right: Tensor) -> Tensor:
        """Float64 cosines of the pairs (left[k], right[k]); equal rows give equal cosines, to the last bit."""
        batch = max(1, PAIR_NUMBERS // max(1, self.features.shape[1]))
        parts = [
            self._exact_batch(left[start : start + batch], right[start : start + batch])
            for start in range(0, len(left), batch)
        ]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.float64)

    def _exact_batch(self, left: Tensor, right: Tensor) -> Tensor:
        # One very long row alone would be summed in two halves by two threads: never leave it alone.
        pairs = torch.stack((left, right)).repeat(1, 2 if len(left) == 1 else 1)
        rows, position = pairs.unique(return_inverse=True)
        units = self._exact_units(rows)
        return (units[position[0]] * units[position[1]]).sum(-1)[: len(left)]

    def _take(self, rows: Rows) -> Tensor:
        # Twice as fast as an index in brackets; a slice stays a view.
        return self.features[rows] if isinstance(rows, slice) else self.features.index_select(0, rows)

    def _exact_units(self, rows: Rows) -> Tensor:
        numbers = self._take(rows).double()
        if self.wild:
            numbers = numbers / numbers.abs().amax(1, keepdim=True).clamp_min_(TINY)
        return normalize(numbers, dim=1, eps=TINY)

    def _has_wild_rows(self) -> bool:
        """Whether a row other than zeros has a norm outside the safe range; refuses NaN and infinity."""
        low, high = SAFE_NORMS
        outside = ~((self.norms > low) & (self.norms < high))
        wild = False
        for rows in outside.nonzero()[:, 0].split(1024):
            numbers = self.features[rows]
            finite = numbers.isfinite().all(1)
            if not finite.all():
                row = int(rows[~finite][0])
                raise ValueError(f"The features of sample {row} contain NaN or infinity.")
            wild = wild or bool((numbers != 0).any())
        return wild
