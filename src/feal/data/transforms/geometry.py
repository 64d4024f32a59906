"""Places of pixels: images [b, C, H, W] turned, flipped and cut, and with them their targets.

Targets are classes [b], which stay as they are, or masks [b, H, W], which follow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch.nn.functional import affine_grid, grid_sample

CropRule = Literal["centre", "foreground", "middle", "random"]
Both = tuple[torch.Tensor, torch.Tensor]


def rotated(images: torch.Tensor, targets: torch.Tensor, degrees: torch.Tensor) -> Both:
    """Turn images around their centres by angles [b], counter-clockwise; size stays.

    Images are read bilinearly, masks at the nearest pixel; what comes from outside is 0, in masks the background.
    An image with the angle 0 keeps its bits.
    """
    turned = degrees.nonzero().squeeze(1)
    if not len(turned):
        return images, targets
    grid = _grid(degrees[turned], images)
    images = images.clone()
    images[turned] = grid_sample(images[turned], grid, mode="bilinear", align_corners=False)
    if targets.ndim > 1:
        targets = targets.clone()
        masks = targets[turned].unsqueeze(1).to(images.dtype)
        targets[turned] = (
            grid_sample(masks, grid, mode="nearest", align_corners=False).squeeze(1).to(targets.dtype)
        )
    return images, targets


def _grid(degrees: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """Where each pixel comes from, [n, H, W, 2], in shares of half the width and half the height."""
    height, width = images.shape[2:]
    angle = degrees * (math.pi / 180)
    cosine, sine, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    rows = [(cosine, -sine * height / width, zero), (sine * width / height, cosine, zero)]
    theta = torch.stack([torch.stack(row, dim=1) for row in rows], dim=1).to(images)
    return affine_grid(theta, [len(degrees), 1, height, width], align_corners=False)


def flipped(images: torch.Tensor, targets: torch.Tensor, *, sideways: torch.Tensor, over: torch.Tensor) -> Both:
    """Turn left to right where `sideways` [b], and top to bottom where `over` [b]."""
    return _flip(images, sideways, over), _flip(targets, sideways, over) if targets.ndim > 1 else targets


def _flip(values: torch.Tensor, sideways: torch.Tensor, over: torch.Tensor) -> torch.Tensor:
    for flags, dim in ((sideways, -1), (over, -2)):
        chosen = flags.to(values.device).reshape(-1, *[1] * (values.ndim - 1))
        values = torch.where(chosen, values.flip(dim), values)
    return values


def crop_offsets(
    draws: torch.Tensor, *, size: int, rule: CropRule, shape: Sequence[int], masks: torch.Tensor | None = None
) -> list[tuple[int, int]]:
    """Top and left of a crop of `size` x `size` for each image, every one that the rule allows as likely.

    Args:
        draws: a number in [0, 1) for each image, float64 [b] on the CPU.
        size: at most the images' height and width.
        rule: `centre`; `middle`: both offsets in the middle half of what is left over; `foreground`: a crop that
            shows a pixel other than 0, or any where there is none; `random`: any.
        shape: the images' height and width.
        masks: [b, H, W], for `foreground`.
    """
    gaps = [side - size for side in shape]
    if rule == "foreground":
        assert masks is not None
        allowed = _showing_foreground(masks, size)
        columns, first = gaps[1] + 1, (0, 0)
    else:
        margins = [{"centre": gap // 2, "middle": gap // 4, "random": 0}[rule] for gap in gaps]
        rows, columns = (
            1 if rule == "centre" else gap - 2 * low + 1 for gap, low in zip(gaps, margins, strict=True)
        )
        allowed = torch.ones(len(draws), rows * columns, dtype=torch.bool)
        first = (margins[0], margins[1])
    places = _drawn(allowed, draws)
    return [(first[0] + place // columns, first[1] + place % columns) for place in places]


def _showing_foreground(masks: torch.Tensor, size: int) -> torch.Tensor:
    """Whether the crop at each offset shows any foreground, [b, offsets]; all of them for an empty mask."""
    counts = torch.nn.functional.pad((masks != 0).int(), (1, 0, 1, 0)).cumsum(1).cumsum(2)
    inside = (
        counts[:, size:, size:] - counts[:, :-size, size:] - counts[:, size:, :-size] + counts[:, :-size, :-size]
    )
    showing = (inside > 0).flatten(1).cpu()
    return showing | ~showing.any(1, keepdim=True)


def _drawn(allowed: torch.Tensor, draws: torch.Tensor) -> list[int]:
    """The place of one of the allowed entries of each row."""
    upto = allowed.cumsum(1)
    number = (draws * upto[:, -1]).floor().long() + 1
    places: list[int] = torch.searchsorted(upto, number.unsqueeze(1)).squeeze(1).tolist()
    return places


def cropped(values: torch.Tensor, offsets: Sequence[tuple[int, int]], *, size: int) -> torch.Tensor:
    """The crop of each image or mask at its offset, [..., size, size]."""
    parts = zip(values, offsets, strict=True)
    return torch.stack([part[..., top : top + size, left : left + size] for part, (top, left) in parts])


def centred(images: torch.Tensor, size: int) -> torch.Tensor:
    """The crops at the centre, where `crop_offsets` under `centre` has them."""
    top, left = ((side - size) // 2 for side in images.shape[-2:])
    return images[..., top : top + size, left : left + size]
