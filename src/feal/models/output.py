"""What a network says about a batch of images."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional as F


class Output(NamedTuple):
    """Everything a selection strategy may want from one forward pass over `B` images.

    Shapes:
        logits: `[B, C]`, or `[B, C, H, W]` in segmentation.
        features: `[B, D]`, the pooled features before the last layer; in segmentation the pooled bottleneck.
        deep: `[B, channels * 9]`, a middle-to-late block pooled to 3 x 3, see `pool3x3`.
        head_input: what the last layer gets, `[B, D]`, or `[B, channels, H, W]` in segmentation.

    In classification `head_input` is `features` after dropout: the same numbers in evaluation mode.
    """

    logits: torch.Tensor
    features: torch.Tensor
    deep: torch.Tensor
    head_input: torch.Tensor


def pool3x3(maps: torch.Tensor) -> torch.Tensor:
    """Average the maps `[B, channels, H, W]` over a 3 x 3 grid and flatten them to `[B, channels * 9]`.

    A side that 3 does not divide gives cells that overlap by a row or column, as in the authors' code.

    >>> pool3x3(torch.arange(16.0).reshape(1, 1, 4, 4))
    tensor([[ 2.5000,  3.5000,  4.5000,  6.5000,  7.5000,  8.5000, 10.5000, 11.5000,
             12.5000]])
    """
    return F.adaptive_avg_pool2d(maps, 3).flatten(1)
