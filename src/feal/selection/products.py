"""Products of a pool's rows with single vectors: at the speed of float32, with a bound on their error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK_NUMBERS = 2**17  # float64 numbers in one block of rows: 1 MB, so that a block stays in the cache
ROUNDING, ROUNDING_DOUBLE = 2.0**-24, 2.0**-52
TINY = 2.0**-100  # rows shorter than this may lose digits to float32's smallest numbers


class Mean(NamedTuple):
    """The mean of a population of vectors, and how far it is from zero."""

    vector: Tensor
    """float64 [D]"""
    length: float


class Direction(NamedTuple):
    """A vector as seen from the mean of its population."""

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
        for rows in blocks(len(features), features.shape[1]):
            numbers = features[rows].double()
            self.norms[rows] = torch.linalg.vector_norm(numbers, dim=1)
            self.to_means[:, rows] = vectors @ numbers.T
        if not (finite := self.norms.isfinite()).all():
            raise ValueError(f"The features of sample {int((~finite).nonzero()[0])} contain NaN or infinity.")

    def with_each(self, vectors: Sequence[Direction]) -> list[Tensor]:
        """<x_i, v_k> in float64, K times [N], for one vector of each population."""
        if len(vectors) == 1:
            columns = [self._features.mv(vectors[0].unit)]
        else:  # this way round it takes half the time
            columns = list(torch.stack([vector.unit for vector in vectors]) @ self._features.T)
        return [
            torch.add(to_mean, column, alpha=vector.length)
            for to_mean, column, vector in zip(self.to_means, columns, vectors, strict=True)
        ]


def roundings(width: int) -> float:
    """How many roundings there are in a product of so many terms, and around it."""
    return 1.1 * width + 16  # constant features come near to that


def direction(vector: Tensor, mean: Mean) -> Direction:
    """For a vector [D]."""
    offset = vector.double() - mean.vector
    length = float(torch.linalg.vector_norm(offset))
    error = ROUNDING * length + ROUNDING_DOUBLE * (length + 2 * mean.length)
    return Direction(offset.div_(length or 1.0).float(), length, error * roundings(len(vector)))


def mean_row(features: Tensor) -> Mean:
    """The mean of features [N, D], N > 0."""
    total = torch.zeros(features.shape[1], dtype=torch.float64)
    for rows in blocks(len(features), features.shape[1]):
        total += features[rows].double().sum(0)
    return Mean(total / len(features), float(torch.linalg.vector_norm(total)) / len(features))


def blocks(rows: int, width: int) -> Iterator[slice]:
    """Slices that cover so many rows, each of about BLOCK_NUMBERS numbers."""
    step = max(1, BLOCK_NUMBERS // max(1, width))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))
