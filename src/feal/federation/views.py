"""A few looks at the same image, for networks that see it only through a frozen trunk."""

from __future__ import annotations

import torch
from torch.nn import functional as F

MOST = 8
CROPPED = 1 / 16
"""What an enlarged view leaves out at every side."""


def viewed(images: torch.Tensor, view: int) -> torch.Tensor:
    """View 0 is the images themselves; 1 to 3 flip them; 4 to 7 are these four of the middle 7/8, enlarged.

    Shapes: images and result [B, channels, H, W], in the same memory format.
    Errors: ValueError for another view.

    >>> viewed(torch.arange(4.0).reshape(1, 1, 2, 2), 1)
    tensor([[[[1., 0.],
              [3., 2.]]]])
    """
    if not 0 <= view < MOST:
        raise ValueError(f"views are numbered from 0 to {MOST - 1}, and {view} is none")
    flipped = [axis for bit, axis in ((1, 3), (2, 2)) if view & bit]
    enlarged = _enlarged(images) if view & 4 else images
    return enlarged.flip(flipped) if flipped else enlarged


def viewed_mask(mask: torch.Tensor, view: int) -> torch.Tensor:
    """A mask [H, W] of classes as its image is seen in a view."""
    whole = mask[None, None]
    enlarged = _enlarged(whole, smooth=False) if view & 4 else whole
    return viewed(enlarged, view & 3)[0, 0]


def _enlarged(images: torch.Tensor, *, smooth: bool = True) -> torch.Tensor:
    height, width = images.shape[2:]
    top, left = round(height * CROPPED), round(width * CROPPED)
    middle = images[:, :, top : height - top, left : width - left]
    if smooth:
        return F.interpolate(middle, size=(height, width), mode="bilinear", align_corners=False)
    return F.interpolate(middle.to(torch.uint8), size=(height, width), mode="nearest-exact").to(images.dtype)
