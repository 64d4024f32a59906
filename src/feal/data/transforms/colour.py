"""Values of pixels: brightness, contrast and normalisation of images [b, C, H, W]."""

from __future__ import annotations

from typing import Literal

import torch

IMAGENET_MEAN, IMAGENET_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_GREY = (0.2989, 0.587, 0.114)
"""Shares of red, green and blue."""


def brightened(images: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Images times their factors [b], as torchvision's ColorJitter does.

    Values stay in [0, 1], or in the image's own range where that is wider.
    """
    if bool((factors == 1).all()):
        return images
    return _within(images * _per_image(factors, images), images)


def contrasted(images: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Images' distances to their mean grey times factors [b], as ColorJitter does; values stay in that range."""
    if bool((factors == 1).all()):
        return images
    factors = _per_image(factors, images)
    if images.shape[1] == len(_GREY):
        grey = (images * images.new_tensor(_GREY).reshape(-1, 1, 1)).sum(1, keepdim=True)
    else:
        grey = images
    mean = grey.mean((1, 2, 3), keepdim=True)
    return _within(factors * images + (1 - factors) * mean, images)


def normalised(images: torch.Tensor, how: Literal["none", "imagenet", "maximum"]) -> torch.Tensor:
    """Images as the network was trained on them.

    `imagenet` takes ImageNet's mean from each colour and divides by its deviation; `maximum` divides each image by
    its largest value, and leaves one without a positive value as it is.

    >>> normalised(torch.tensor([[[[0.1, 0.2]]], [[[0.0, 0.0]]]]), "maximum").squeeze()
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
