"""Reduce the class dimension of a large tensor in blocks that stay in the processor's cache."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["Kernel", "reduce_classes"]

# Numbers in one block: smaller ones pay for the calls, larger ones leave a processor's second-level cache. An
# accelerator wants few launches instead.
_BLOCK = 3 << 14
_BLOCK_ON_ACCELERATOR = 1 << 24


class Kernel(Protocol):
    """Computes one block, [C + 1, rows, columns]: concentrations and their sum, into results [rows, columns]."""

    def __call__(self, block: Tensor, *results: Tensor) -> None: ...


def reduce_classes(
    kernel: Kernel, alpha: Tensor, dim: int, dtype: torch.dtype, *, results: int = 1
) -> tuple[Tensor, ...]:
    """Run `kernel` over blocks of `alpha` in `dtype` and put its results together, without autograd.

    Only blocks are ever held in `dtype`: a float64 score of a float32 map needs no float64 copy of the map.

    Shapes: alpha [..., C, ...] with C at `dim`; each result is alpha's shape without `dim`, in `dtype`.
    Errors: IndexError when alpha has no dimension `dim`.

    >>> alpha = torch.arange(1.0, 7.0).reshape(2, 3)
    >>> reduce_classes(lambda block, result: result.copy_(block[-1]), alpha, 1, torch.float64)
    (tensor([ 6., 15.], dtype=torch.float64),)
    """
    shape = alpha.shape
    classes = shape[dim]
    dim %= alpha.ndim
    outer, inner = math.prod(shape[:dim]), math.prod(shape[dim + 1 :])
    source = alpha.detach().reshape(outer, classes, inner)
    target = source.new_empty((results, outer, inner), dtype=dtype)
    for rows, columns in _spans(outer, inner, _block_size(alpha) // (classes + 1)):
        kernel(_with_sum(source[rows, :, columns].transpose(0, 1), dtype), *target[:, rows, columns])
    return tuple(result.reshape(shape[:dim] + shape[dim + 1 :]) for result in target)


def _block_size(alpha: Tensor) -> int:
    return _BLOCK if alpha.device.type == "cpu" else _BLOCK_ON_ACCELERATOR


def _spans(outer: int, inner: int, size: int) -> Iterator[tuple[slice, slice]]:
    """Rectangles of about `size` positions that cover outer x inner, whole rows first."""
    columns = max(1, min(inner, size))
    rows = max(1, size // columns)
    for row in range(0, outer, rows):
        for column in range(0, inner, columns):
            yield slice(row, row + rows), slice(column, column + columns)


def _with_sum(classes: Tensor, dtype: torch.dtype) -> Tensor:
    """[C, ...] copied to [C + 1, ...] in `dtype`, the last row the sum of the others."""
    block = classes.new_empty((len(classes) + 1, *classes.shape[1:]), dtype=dtype)
    block[:-1] = classes
    total = block[-1].copy_(block[0])
    for row in block[1:-1]:  # faster than torch.sum over so few rows
        total += row
    return block
