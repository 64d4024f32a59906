"""Reduce the class dimension of a large tensor in blocks that stay in the processor's cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

__all__ = ["reduce_classes"]

# Numbers in one block. Measured on two processors' worth of cache: smaller blocks pay for the calls, larger ones for
# the memory. An accelerator wants few launches instead.
_BLOCK = {"cpu": 1 << 16}
_BLOCK_ELSEWHERE = 1 << 24


def reduce_classes(
    kernel: Callable[[Tensor], tuple[Tensor, ...]], alpha: Tensor, dim: int, dtype: torch.dtype, *, results: int
) -> tuple[Tensor, ...]:
    """Run `kernel` over blocks of `alpha` in `dtype` and put its results together, without autograd.

    `kernel` takes [C + 1, rows, columns], the concentrations and below them their sum, and returns `results` tensors
    [rows, columns]. Only the blocks are ever held in `dtype`, so a float64 score of a float32 map costs no float64 map.

    Shapes: alpha [..., C, ...] with C at `dim`; each result is alpha's shape without `dim`.
    Errors: IndexError when alpha has no dimension `dim`.

    >>> alpha = torch.arange(1.0, 7.0).reshape(2, 3)
    >>> reduce_classes(lambda block: (block[-1],), alpha, 1, torch.float64, results=1)
    (tensor([ 6., 15.], dtype=torch.float64),)
    """
    shape = alpha.shape
    classes = shape[dim]
    dim %= alpha.ndim
    outer, inner = math.prod(shape[:dim]), math.prod(shape[dim + 1 :])
    source = alpha.detach().reshape(outer, classes, inner)
    target = source.new_empty((results, outer, inner), dtype=dtype)
    for rows, columns in _spans(outer, inner, _block_size(alpha) // (classes + 1)):
        block = _with_sum(source[rows, :, columns].transpose(0, 1), dtype)
        for result, value in zip(target, kernel(block), strict=True):
            result[rows, columns] = value
    return tuple(result.reshape(shape[:dim] + shape[dim + 1 :]) for result in target)


def _block_size(alpha: Tensor) -> int:
    return _BLOCK.get(alpha.device.type, _BLOCK_ELSEWHERE)


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
