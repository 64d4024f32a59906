"""The highest scores."""

from __future__ import annotations

import torch


def best(score: torch.Tensor, budget: int) -> torch.Tensor:
    """Row numbers of the `budget` largest scores [n], largest first, ties by row.

    >>> best(torch.tensor([1.0, 3.0, 2.0, 3.0]), 3).tolist()
    [1, 3, 2]
    """
    return torch.argsort(score, descending=True, stable=True)[:budget]
