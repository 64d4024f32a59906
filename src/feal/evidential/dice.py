"""The soft Dice loss that the plain and the evidential segmentation losses share."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["soft_dice"]

_SMOOTH = 1e-5


def soft_dice(probability: Tensor, index: Tensor, spread: Tensor | None = None) -> Tensor:
    """The soft Dice loss over all classes, background included.

    1 - (1/C) sum_c (2 |y_c p_c| + e) / (|y_c^2| + |p_c^2| + |spread_c| + e), sums over all pixels of the batch,
    e = 1e-5.

    Shapes: probability [N, C, ...]; index [N, 1, ...] int64; spread [N, C, ...] or None for none. A scalar.
    Errors: none.

    >>> index = torch.tensor([[[[0, 1]]]])
    >>> soft_dice(torch.tensor([[[[1.0, 0.0]], [[0.0, 1.0]]]]), index)
    tensor(0.)
    """
    pixels = [axis for axis in range(probability.ndim) if axis != 1]
    truth = torch.zeros_like(probability, requires_grad=False).scatter_(1, index, 1.0)
    overlap = (truth * probability).sum(pixels)
    size = truth.sum(pixels) + probability.square().sum(pixels)
    if spread is not None:
        size = size + spread.sum(pixels)
    return 1.0 - ((2.0 * overlap + _SMOOTH) / (size + _SMOOTH)).mean()
