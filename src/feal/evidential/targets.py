"""What every loss asks of its logits and targets."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["class_index", "full_precision"]


def class_index(logits: Tensor, target: Tensor) -> Tensor:
    """The targets as an index into the class dimension of the logits, checked.

    Shapes: logits [N, C, ...]; target [N, ...] or [N, 1, ...], any integer dtype; int64 [N, 1, ...].
    Errors: ValueError for no samples, a target that is not integer, of another shape, or outside 0 .. C - 1.

    >>> class_index(torch.zeros(2, 3), torch.tensor([2, 0])).tolist()
    [[2], [0]]
    """
    if logits.ndim < 2 or logits.numel() == 0:
        raise ValueError(f"logits must be [N, C, ...] with at least one sample, got {list(logits.shape)}")
    if target.is_floating_point() or target.is_complex():
        raise ValueError(f"target must hold integer classes, got {target.dtype}")
    expected = (logits.shape[0], 1, *logits.shape[2:])
    index = target if target.shape == expected else target.unsqueeze(1) if target.ndim else target
    if index.shape != expected:
        raise ValueError(f"target of shape {list(target.shape)} does not fit logits of {list(logits.shape)}")
    index = index.long()
    lowest, highest = (int(bound) for bound in index.aminmax())
    if lowest < 0 or highest >= logits.shape[1]:
        wrong = lowest if lowest < 0 else highest
        raise ValueError(f"target holds class {wrong}, but there are only classes 0 to {logits.shape[1] - 1}")
    return index


def full_precision(logits: Tensor) -> Tensor:
    """Logits in float32 where they came in half precision, which has too few digits for a loss.

    >>> full_precision(torch.zeros(1, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    return logits.float() if torch.finfo(logits.dtype).bits < 32 else logits
