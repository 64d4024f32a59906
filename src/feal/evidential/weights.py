"""Class weights from labelled counts."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["checked_counts", "inverse_weight", "prior_weight", "weight_of"]

_LARGEST = 5.0


def prior_weight(counts: Tensor) -> Tensor:
    """Weights between 1 and 2 that fall with the class's share of the labels.

    w_c = 2 - n_c / sum n; a class without a sample gets 2.

    Shapes: counts [C], integer or float; float64 [C].
    Errors: ValueError for counts that are negative, not finite or all 0.

    >>> prior_weight(torch.tensor([3, 1, 0]))
    tensor([1.2500, 1.7500, 2.0000], dtype=torch.float64)
    """
    number = checked_counts(counts)
    return 2.0 - number / number.sum()


def inverse_weight(counts: Tensor) -> Tensor:
    """Weights proportional to the inverse class frequency, mean 1, at most 5.

    w_c = min(5, (1 / n_c) / m), m the mean of 1 / n over the classes present. The mean over these is 1 before
    the cap, and less where the cap bites. A class without a sample gets what a single sample would, and does
    not enter the mean.

    Shapes: counts [C], integer or float; float64 [C].
    Errors: ValueError for counts that are negative, not finite or all 0.

    >>> inverse_weight(torch.tensor([3, 1, 0]))
    tensor([0.5000, 1.5000, 1.5000], dtype=torch.float64)
    """
    number = checked_counts(counts)
    present = number > 0
    inverse = torch.where(present, number, 1.0).reciprocal()
    return (inverse / inverse[present].mean()).clamp(max=_LARGEST)


def checked_counts(counts: Tensor) -> Tensor:
    """Counts per class in float64, refused where nothing can be made of them.

    Shapes: counts [C]; float64 [C].
    Errors: ValueError for another shape, for counts that are negative, not finite or all 0.

    >>> checked_counts(torch.tensor([3, 1]))
    tensor([3., 1.], dtype=torch.float64)
    """
    number = counts.double()
    if number.ndim != 1:
        raise ValueError(f"counts must be one number a class, got shape {list(number.shape)}")
    if not bool(torch.isfinite(number).all()) or bool((number < 0).any()):
        raise ValueError(f"counts must be finite and not negative, got {number.tolist()}")
    if not bool((number > 0).any()):
        raise ValueError("counts are all 0: there is no labelled sample to weigh by")
    return number


def weight_of(logits: Tensor, weight: Tensor) -> Tensor:
    """Numbers per class in the logits' dtype and on their device.

    Shapes: logits [N, C, ...], weight [C]; [C].
    Errors: ValueError when the lengths differ.

    >>> weight_of(torch.zeros(1, 2), torch.tensor([1, 2]))
    tensor([1., 2.])
    """
    if weight.shape != logits.shape[1:2]:
        raise ValueError(f"{list(weight.shape)} class weights do not fit {logits.shape[1]} classes")
    return weight.to(logits)
