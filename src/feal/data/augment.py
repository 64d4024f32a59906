"""Augment training images, and normalise all images, as batches [b, C, H, W] on any device.

Targets are classes [b], which stay unchanged, or masks [b, H, W], which follow the geometry of their images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch.nn.functional import affine_grid, grid_sample

from feal.errors import FealError
from feal.settings import Task, Transforms

CropRule = Literal["centre", "foreground", "middle", "random"]
ImagesAndTargets = tuple[torch.Tensor, torch.Tensor]

IMAGENET_MEAN, IMAGENET_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_LUMA = (0.2989, 0.587, 0.114)
"""Weights of red, green and blue in grey."""

_RANDOM = ("rotation", "brightness", "contrast", "horizontal flip", "vertical flip")
_EXTENTS = 3
_DRAWS = len(_RANDOM) + _EXTENTS + 1
"""Whether to apply each, how strongly the first three, and the crop: drawn for every image, needed or not."""


def rotate(images: torch.Tensor, targets: torch.Tensor, degrees: torch.Tensor) -> ImagesAndTargets:
    """Rotate images around their centres by angles [b], counter-clockwise; the size stays the same.

    Images are sampled bilinearly, masks at the nearest pixel; outside the image values are 0, in masks the
    background. An image with the angle 0 keeps its bits.
    """
    turned = degrees.nonzero().squeeze(1)
    if not len(turned):
        return images, targets
    height, width = images.shape[2:]
    angle = degrees[turned] * (math.pi / 180)
    cosine, sine, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    # The source of each pixel, in units of half the width and half the height.
    rows = [(cosine, -sine * height / width, zero), (sine * width / height, cosine, zero)]
    theta = torch.stack([torch.stack(row, dim=1) for row in rows], dim=1).to(images)
    grid = affine_grid(theta, [len(turned), 1, height, width], align_corners=False)
    images = images.clone()
    images[turned] = grid_sample(images[turned], grid, mode="bilinear", align_corners=False)
    if targets.ndim > 1:
        masks = targets[turned].unsqueeze(1).to(images.dtype)
        masks = grid_sample(masks, grid, mode="nearest", align_corners=False).squeeze(1)
        targets = targets.clone()
        targets[turned] = masks.to(targets.dtype)
    return images, targets


def flip(
    images: torch.Tensor, targets: torch.Tensor, *, horizontal: torch.Tensor, vertical: torch.Tensor
) -> ImagesAndTargets:
    """Mirror images left to right where `horizontal` [b], and top to bottom where `vertical` [b]."""

    def flip_values(values: torch.Tensor) -> torch.Tensor:
        for flags, dim in ((horizontal, -1), (vertical, -2)):
            chosen = flags.to(values.device).reshape(-1, *[1] * (values.ndim - 1))
            values = torch.where(chosen, values.flip(dim), values)
        return values

    return flip_values(images), flip_values(targets) if targets.ndim > 1 else targets


def draw_crop_offsets(
    draws: torch.Tensor, *, size: int, rule: CropRule, shape: Sequence[int], masks: torch.Tensor | None = None
) -> list[tuple[int, int]]:
    """Draw top and left of a `size` x `size` crop for each image, uniformly among those that the rule allows.

    Args:
        draws: a number in [0, 1) for each image, float64 [b] on the CPU.
        size: at most the images' height and width.
        rule: `centre`; `middle`: both offsets in the middle half of their range; `foreground`: a crop that shows
            a pixel other than 0, or any crop of an empty mask; `random`: any crop.
        shape: the images' height and width.
        masks: [b, H, W], for `foreground`.
    """
    gaps = [side - size for side in shape]
    if rule == "foreground":
        assert masks is not None
        allowed = _shows_foreground(masks, size)
    else:
        spans = []
        for gap in gaps:
            low = {"centre": gap // 2, "middle": gap // 4, "random": 0}[rule]
            spans.append(slice(low, (low if rule == "centre" else gap - low) + 1))
        is_allowed = torch.zeros(gaps[0] + 1, gaps[1] + 1, dtype=torch.bool)
        is_allowed[spans[0], spans[1]] = True
        allowed = is_allowed.flatten().expand(len(draws), -1)
    upto = allowed.cumsum(1)
    number = (draws * upto[:, -1]).floor().long() + 1
    chosen = torch.searchsorted(upto, number.unsqueeze(1)).squeeze(1).tolist()
    return [divmod(index, gaps[1] + 1) for index in chosen]


def _shows_foreground(masks: torch.Tensor, size: int) -> torch.Tensor:
    """Return whether the crop at each offset shows any foreground, [b, offsets]; true for an empty mask."""
    counts = torch.nn.functional.pad((masks != 0).int(), (1, 0, 1, 0)).cumsum(1).cumsum(2)
    inside = (
        counts[:, size:, size:] - counts[:, :-size, size:] - counts[:, size:, :-size] + counts[:, :-size, :-size]
    )
    showing = (inside > 0).flatten(1).cpu()
    return showing | ~showing.any(1, keepdim=True)


def crop(values: torch.Tensor, offsets: Sequence[tuple[int, int]], *, size: int) -> torch.Tensor:
    """Crop each image or mask at its offset, [..., size, size]."""
    parts = zip(values, offsets, strict=True)
    return torch.stack([part[..., top : top + size, left : left + size] for part, (top, left) in parts])


def crop_centre(images: torch.Tensor, size: int) -> torch.Tensor:
    """Crop at the centre, as `draw_crop_offsets` does with the rule `centre`."""
    top, left = ((side - size) // 2 for side in images.shape[-2:])
    return images[..., top : top + size, left : left + size]


def adjust_brightness(images: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Multiply images by factors [b], as torchvision's ColorJitter does.

    Values are clamped to [0, 1], or to the image's own range where that is wider.
    """
    if bool((factors == 1).all()):
        return images
    return _within(images * _per_image(factors, images), images)


def adjust_contrast(images: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Multiply the distance to the mean grey by factors [b], as ColorJitter does; values are clamped likewise."""
    if bool((factors == 1).all()):
        return images
    factors = _per_image(factors, images)
    if images.shape[1] == len(_LUMA):
        grey = (images * images.new_tensor(_LUMA).reshape(-1, 1, 1)).sum(1, keepdim=True)
    else:
        grey = images
    mean = grey.mean((1, 2, 3), keepdim=True)
    return _within(factors * images + (1 - factors) * mean, images)


def normalise_values(images: torch.Tensor, how: Literal["none", "imagenet", "maximum"]) -> torch.Tensor:
    """Normalise pixel values.

    `imagenet` subtracts ImageNet's mean of each colour and divides by its deviation; `maximum` divides each image
    by its largest value, and leaves an image without a positive value unchanged.

    >>> normalise_values(torch.tensor([[[[0.1, 0.2]]], [[[0.0, 0.0]]]]), "maximum").squeeze()
    tensor([[0.5000, 1.0000],
            [0.0000, 0.0000]])
    """
    if how == "imagenet":
        mean, deviation = (images.new_tensor(value) for value in (IMAGENET_MEAN, IMAGENET_DEVIATION))
        return (images - mean.reshape(-1, 1, 1)) / deviation.reshape(-1, 1, 1)
    if how == "maximum":
        largest = images.amax((1, 2, 3), keepdim=True)
        return images / torch.where(largest > 0, largest, torch.ones_like(largest))
    return images


def _per_image(values: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    return values.to(images).reshape(-1, 1, 1, 1)


def _within(changed: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    low, high = images.amin((1, 2, 3), keepdim=True), images.amax((1, 2, 3), keepdim=True)
    return changed.clamp(low.clamp(max=0), high.clamp(min=1))


def check_transforms(transforms: Transforms, *, task: Task, channels: int, height: int, width: int) -> None:
    """Raise a `FealError` if the transforms do not suit the images."""
    crop = transforms.crop
    if crop > min(height, width):
        raise FealError(
            f"transforms.crop={crop} exceeds the images of {width} x {height} pixels: make it smaller."
        )
    if crop and transforms.crop_rule == "foreground" and task == "classification":
        raise FealError("transforms.crop_rule=foreground needs masks: choose centre, middle or random.")
    if transforms.normalise == "imagenet" and channels != len(IMAGENET_MEAN):
        raise FealError(
            f"transforms.normalise=imagenet needs {len(IMAGENET_MEAN)} channels, but the images have {channels}: "
            "choose maximum or none."
        )


def normalise(images: torch.Tensor, transforms: Transforms, *, task: Task) -> torch.Tensor:
    """Normalise images outside training, and crop the centre if a classifier was trained on centre crops.

    Masks are predicted for whole images, whatever the crop in training.
    """
    images = normalise_values(images, transforms.normalise)
    if transforms.crop and transforms.crop_rule == "centre" and task == "classification":
        return crop_centre(images, transforms.crop)
    return images


def augment(
    images: torch.Tensor, targets: torch.Tensor, transforms: Transforms, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate, flip, brighten, change the contrast, normalise and crop images and targets for training.

    Every image takes the same number of draws whatever is applied to it, so images do not affect each other.

    Args:
        images: [b, C, H, W].
        targets: classes [b], or masks [b, H, W], which follow the geometry of their images.
        transforms: what to apply, and how strongly.
        generator: on the CPU.
    """
    draws = torch.rand(len(images), _DRAWS, generator=generator, dtype=torch.float64)
    chosen = draws[:, : len(_RANDOM)] < transforms.probability
    extents = (2 * draws[:, len(_RANDOM) : -1] - 1) * chosen[:, :_EXTENTS]
    images, targets = rotate(images, targets, extents[:, 0] * transforms.rotation)
    if transforms.flips:
        images, targets = flip(images, targets, horizontal=chosen[:, 3], vertical=chosen[:, 4])
    images = adjust_brightness(images, 1 + extents[:, 1] * transforms.brightness)
    images = adjust_contrast(images, 1 + extents[:, 2] * transforms.contrast)
    images = normalise_values(images, transforms.normalise)
    if not transforms.crop:
        return images, targets
    masks = targets if targets.ndim > 1 else None
    offsets = draw_crop_offsets(
        draws[:, -1], size=transforms.crop, rule=transforms.crop_rule, shape=images.shape[2:], masks=masks
    )
    images = crop(images, offsets, size=transforms.crop)
    return images, targets if masks is None else crop(masks, offsets, size=transforms.crop)
