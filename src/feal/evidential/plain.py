"""The losses without evidence, called like the evidential ones: `(logits, target, step)`, `step` unused."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from feal.evidential.dice import soft_dice
from feal.evidential.targets import class_index, full_precision
from feal.evidential.weights import checked_counts, weight_of

__all__ = ["BalancedCrossEntropy", "PlainCrossEntropy", "PlainDice"]


class PlainCrossEntropy(nn.Module):
    """Cross entropy of the softmax, weighted as torch does: divided by the sum of the weights.

    sum_i w_y (-log p_y) / sum_i w_y, p = softmax(z).

    Shapes: logits [N, C] or [N, C, H, W]; target [N] or [N, H, W], or with a class dimension of 1;
    class_weight [C] or None for 1. A scalar.
    Errors: ValueError for a target out of range or class weights of another length.

    >>> PlainCrossEntropy()(torch.zeros(1, 2), torch.tensor([1]), 0)
    tensor(0.6931)
    """

    def __init__(self, class_weight: Tensor | None = None) -> None:
        super().__init__()
        self.class_weight: Tensor | None
        self.register_buffer("class_weight", class_weight)

    def forward(self, logits: Tensor, target: Tensor, step: float) -> Tensor:
        logits = full_precision(logits)
        weight = None if self.class_weight is None else weight_of(logits, self.class_weight)
        return F.cross_entropy(logits, class_index(logits, target).squeeze(1), weight)


class BalancedCrossEntropy(nn.Module):
    """Balanced softmax: cross entropy on z + log n_c, with n_c the labelled samples of each class.

    Classes with n_c = 0 are left out of the softmax and get no gradient.

    Shapes: as `PlainCrossEntropy`; counts [C], integer or float.
    Errors: ValueError for counts that are negative, not finite or all 0, for a target out of range, and for a
    target whose class has no count.

    >>> loss = BalancedCrossEntropy(torch.tensor([1, 3, 0]))
    >>> loss(torch.zeros(1, 3), torch.tensor([1]), 0).exp()  # 1 / (3 / 4)
    tensor(1.3333)
    """

    offset: Tensor

    def __init__(self, counts: Tensor) -> None:
        super().__init__()
        self.register_buffer("offset", checked_counts(counts).log())
        self._left_out = bool(self.offset.isinf().any())

    def forward(self, logits: Tensor, target: Tensor, step: float) -> Tensor:
        logits = full_precision(logits)
        index = class_index(logits, target)
        offset = weight_of(logits, self.offset)
        if self._left_out and bool(offset[index].isinf().any()):
            wrong = sorted({int(i) for i in index[offset[index].isinf()]})
            raise ValueError(f"classes {wrong} are in the target but have a count of 0: count every label")
        shape = (1, -1, *[1] * (logits.ndim - 2))
        return F.cross_entropy(logits + offset.reshape(shape), index.squeeze(1))


class PlainDice(nn.Module):
    """The soft Dice loss of the softmax, background included.

    1 - (1/C) sum_c (2 |y_c p_c| + e) / (|y_c^2| + |p_c^2| + e), p = softmax(z), sums over all pixels of the
    batch, e = 1e-5.

    Shapes: as `PlainCrossEntropy`.
    Errors: ValueError for a target out of range.

    >>> PlainDice()(torch.zeros(1, 2, 1, 2), torch.tensor([[[0, 1]]]), 0)
    tensor(0.3333)
    """

    def forward(self, logits: Tensor, target: Tensor, step: float) -> Tensor:
        logits = full_precision(logits)
        return soft_dice(torch.softmax(logits, 1), class_index(logits, target))
