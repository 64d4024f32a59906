"""What training images go through, and what all images do."""

from __future__ import annotations

import torch

from feal.data.transforms.colour import IMAGENET_MEAN, brightened, contrasted, normalised
from feal.data.transforms.geometry import centred, crop_offsets, cropped, flipped, rotated
from feal.errors import FealError
from feal.settings import Task, Transforms

_RANDOM = ("rotation", "brightness", "contrast", "flip to the side", "flip over")
_EXTENTS = 3
_DRAWS = len(_RANDOM) + _EXTENTS + 1
"""Whether to do each, how far to go with the first three, and the crop: drawn for every image, needed or not."""


def check_transforms(transforms: Transforms, *, task: Task, channels: int, height: int, width: int) -> None:
    """Raise a `FealError` where transforms and images do not go together."""
    crop = transforms.crop
    if crop > min(height, width):
        raise FealError(
            f"transforms.crop={crop} is more than the images' {width} x {height} pixels: make it smaller."
        )
    if crop and transforms.crop_rule == "foreground" and task == "classification":
        raise FealError("transforms.crop_rule=foreground needs masks: choose centre, middle or random.")
    if transforms.normalise == "imagenet" and channels != len(IMAGENET_MEAN):
        raise FealError(
            f"transforms.normalise=imagenet is for {len(IMAGENET_MEAN)} channels, and the images have {channels}: "
            "choose maximum or none."
        )


def seen(images: torch.Tensor, transforms: Transforms, *, task: Task) -> torch.Tensor:
    """Images as a network sees them outside training: normalised, and the centre where it was trained on that.

    Masks are predicted for whole images, whatever was trained on.
    """
    images = normalised(images, transforms.normalise)
    if transforms.crop and transforms.crop_rule == "centre" and task == "classification":
        return centred(images, transforms.crop)
    return images


def augmented(
    images: torch.Tensor, targets: torch.Tensor, transforms: Transforms, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and targets to train on: rotated, flipped, brightened, contrasted, normalised, cropped, in turn.

    Every image draws the same number of times, whatever is done to it, so that none shifts those after it.

    Args:
        images: [b, C, H, W].
        targets: classes [b], or masks [b, H, W], which follow the images' geometry.
        transforms: which, and how far.
        generator: on the CPU.
    """
    draws = torch.rand(len(images), _DRAWS, generator=generator, dtype=torch.float64)
    chosen = draws[:, : len(_RANDOM)] < transforms.probability
    extents = (2 * draws[:, len(_RANDOM) : -1] - 1) * chosen[:, :_EXTENTS]
    images, targets = rotated(images, targets, extents[:, 0] * transforms.rotation)
    if transforms.flips:
        images, targets = flipped(images, targets, sideways=chosen[:, 3], over=chosen[:, 4])
    images = brightened(images, 1 + extents[:, 1] * transforms.brightness)
    images = contrasted(images, 1 + extents[:, 2] * transforms.contrast)
    images = normalised(images, transforms.normalise)
    if not transforms.crop:
        return images, targets
    masks = targets if targets.ndim > 1 else None
    offsets = crop_offsets(
        draws[:, -1], size=transforms.crop, rule=transforms.crop_rule, shape=images.shape[2:], masks=masks
    )
    images = cropped(images, offsets, size=transforms.crop)
    return images, targets if masks is None else cropped(masks, offsets, size=transforms.crop)
