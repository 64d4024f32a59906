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
    target = index.squeeze(1)
    spreads = [None] * probability.shape[1] if spread is None else spread.unbind(1)
    scores = [
        _score(own, target == label, own_spread)
        for label, (own, own_spread) in enumerate(zip(probability.unbind(1), spreads, strict=True))
    ]
    return 1.0 - torch.stack(scores).mean()


def _score(probability: Tensor, truth: Tensor, spread: Tensor | None) -> Tensor:
    """Of one class; class by class, float32 gradients are the authors' to 1e-5 in every entry."""
    size = truth.sum() + probability.square().sum()
    if spread is not None:
        size = size + spread.sum()
    return (2.0 * (truth * probability).sum() + _SMOOTH) / (size + _SMOOTH)
