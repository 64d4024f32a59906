"""Augment training images, and normalise all images, as batches [b, C, H, W] on any device.

Targets are classes [b], which stay unchanged, or masks [b, H, W], which follow the geometry of their images.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch.nn.functional import affine_grid, grid_sample

from feal.data.resize import Fitting
from feal.errors import FealError
from feal.settings import Task, Transforms

CropRule = Literal["centre", "foreground", "middle", "random"]
ImagesAndTargets = tuple[torch.Tensor, torch.Tensor]

IMAGENET_MEAN, IMAGENET_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

_DRAWS = 7
"""Rotation and its angle, brightness with contrast and their two strengths, the flip, the crop: drawn for every
image, needed or not."""


def rotate(images: torch.Tensor, targets: torch.Tensor, degrees: torch.Tensor) -> ImagesAndTargets:
    """Rotate images around their centres by angles [b], counter-clockwise; the size stays the same.

    Images are sampled bilinearly, masks at the nearest pixel. Beyond the border both are reflected about the
    centres of the outermost pixels (`dcb|abcd|cba`), so no corner is black. An image with the angle 0 keeps
    its bits.
    """
    turned = degrees.nonzero().squeeze(1)
    if not len(turned):
        return images, targets
    grid = _grid(degrees[turned], images)
    images = images.clone()
    images[turned] = _sample(images[turned], grid, "bilinear")
    if targets.ndim > 1:
        targets = targets.clone()
        masks = targets[turned].unsqueeze(1).to(images.dtype)
        targets[turned] = _sample(masks, grid, "nearest").squeeze(1).to(targets.dtype)
    return images, targets


def _sample(values: torch.Tensor, grid: torch.Tensor, mode: Literal["bilinear", "nearest"]) -> torch.Tensor:
    # With align_corners the border pixel's centre is the mirror; without it, the pixel's edge would be.
    return grid_sample(values, grid, mode=mode, padding_mode="reflection", align_corners=True)


def _grid(degrees: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """Return the source of each pixel, [n, H, W, 2]; -1 and 1 are the centres of the outermost pixels."""
    down, right = (max(side - 1, 1) for side in images.shape[2:])
    angle = degrees * (math.pi / 180)
    cosine, sine, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    rows = [(cosine, -sine * down / right, zero), (sine * right / down, cosine, zero)]
    theta = torch.stack([torch.stack(row, dim=1) for row in rows], dim=1).to(images)
    return affine_grid(theta, [len(degrees), 1, *images.shape[2:]], align_corners=True)


def flip(
    images: torch.Tensor, targets: torch.Tensor, *, horizontal: torch.Tensor, vertical: torch.Tensor
) -> ImagesAndTargets:
    """Mirror images left to right where `horizontal` [b], and top to bottom where `vertical` [b]."""
    flipped = _flip(images, horizontal, vertical)
    return flipped, _flip(targets, horizontal, vertical) if targets.ndim > 1 else targets


def _flip(values: torch.Tensor, horizontal: torch.Tensor, vertical: torch.Tensor) -> torch.Tensor:
    for flags, dim in ((horizontal, -1), (vertical, -2)):
        chosen = flags.to(values.device).reshape(-1, *[1] * (values.ndim - 1))
        values = torch.where(chosen, values.flip(dim), values)
    return values


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


def adjust_brightness_and_contrast(
    images: torch.Tensor, *, brightness: torch.Tensor, contrast: torch.Tensor
) -> torch.Tensor:
    """Return x (1 + contrast) + brightness, with one number of each for an image, [b]; the range is [0, 1].

    Values are clamped to [0, 1], or to the image's own range where that is wider.
    """
    if not bool(brightness.any()) and not bool(contrast.any()):
        return images
    shift, scale = (values.to(images).reshape(-1, 1, 1, 1) for values in (brightness, 1 + contrast))
    low, high = images.amin((1, 2, 3), keepdim=True), images.amax((1, 2, 3), keepdim=True)
    return (images * scale + shift).clamp(low.clamp(max=0), high.clamp(min=1))


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


def check_transforms(
    transforms: Transforms, *, task: Task, channels: int, height: int, width: int, fitting: Fitting | None = None
) -> None:
    """Raise a `FealError` if the transforms do not suit the images; `fitting` is how they got their size."""
    crop = transforms.crop
    if crop > min(height, width):
        largest = (fitting or Fitting()).remove_margin(min(height, width))
        raise FealError(
            f"transforms.crop={crop} exceeds the images of {width} x {height} pixels: "
            f"set transforms.crop={largest} or less."
        )
    if crop and transforms.crop_rule == "foreground" and task == "classification":
        raise FealError("transforms.crop_rule=foreground needs masks: choose centre, middle or random.")
    if transforms.normalise == "imagenet" and channels != len(IMAGENET_MEAN):
        raise FealError(
            f"transforms.normalise=imagenet needs {len(IMAGENET_MEAN)} channels, but the images have {channels}: "
            "choose maximum or none."
        )


def normalise(images: torch.Tensor, transforms: Transforms, *, task: Task) -> torch.Tensor:
    """Normalise images outside training, after cropping the centre if a classifier was trained on centre crops.

    Masks are predicted for whole images, whatever the crop in training.
    """
    if transforms.crop and transforms.crop_rule == "centre" and task == "classification":
        images = crop_centre(images, transforms.crop)
    return normalise_values(images, transforms.normalise)


def augment(
    images: torch.Tensor, targets: torch.Tensor, transforms: Transforms, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate, change brightness and contrast, flip, crop and normalise images and targets for training.

    Rotation, brightness with contrast, and a flip are applied with the same probability, independently; a flip is
    left to right, top to bottom or both, each as likely. Every image takes the same number of draws whatever is
    applied to it, so images do not affect each other.

    Args:
        images: [b, C, H, W].
        targets: classes [b], or masks [b, H, W], which follow the geometry of their images.
        transforms: what to apply, and how strongly.
        generator: on the CPU.
    """
    probability = transforms.probability
    draws = torch.rand(len(images), _DRAWS, generator=generator, dtype=torch.float64).unbind(1)
    turn, angle, change, brightness, contrast, mirror, place = draws
    images, targets = rotate(images, targets, (2 * angle - 1) * transforms.rotation * (turn < probability))
    images = adjust_brightness_and_contrast(
        images,
        brightness=(2 * brightness - 1) * transforms.brightness * (change < probability),
        contrast=(2 * contrast - 1) * transforms.contrast * (change < probability),
    )
    if transforms.flips:
        is_flipped, axes = mirror < probability, mirror / max(probability, 1e-12)
        horizontal, vertical = is_flipped & (axes < 2 / 3), is_flipped & (axes >= 1 / 3)
        images, targets = flip(images, targets, horizontal=horizontal, vertical=vertical)
    if transforms.crop:
        masks = targets if targets.ndim > 1 else None
        offsets = draw_crop_offsets(
            place, size=transforms.crop, rule=transforms.crop_rule, shape=images.shape[2:], masks=masks
        )
        images = crop(images, offsets, size=transforms.crop)
        targets = targets if masks is None else crop(masks, offsets, size=transforms.crop)
    return normalise_values(images, transforms.normalise), targets
