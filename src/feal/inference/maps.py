"""Uncertainty of every pixel as a picture, dark where the model is sure."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Map = NDArray[np.float64]

# matplotlib's magma at every eighth: lightness grows evenly from dark to light.
_MAGMA = (
    (0, 0, 4),
    (28, 16, 68),
    (79, 18, 123),
    (129, 37, 129),
    (181, 54, 122),
    (229, 80, 100),
    (251, 135, 97),
    (254, 194, 135),
    (252, 253, 191),
)


def aleatoric_share(aleatoric: Map, *, classes: int) -> Map:
    """Aleatoric uncertainty over its largest value: u / ln C, from 0 to 1."""
    return aleatoric / math.log(classes)


def epistemic_share(epistemic: Map, *, classes: int) -> Map:
    """How wide the Dirichlet is against one without evidence, per dimension, from 0 to 1.

    exp((h + lnGamma(C)) / (C - 1)), with h the differential entropy and -lnGamma(C) the largest there is.

    >>> epistemic_share(np.array([-math.lgamma(3), -math.lgamma(3) - 2]), classes=3).round(3).tolist()
    [1.0, 0.368]
    """
    return np.exp((epistemic + math.lgamma(classes)) / (classes - 1))


def map_picture(share: NDArray[np.floating]) -> Image.Image:
    """Values [H, W] from 0 to 1 as a palette picture, from dark (0) to light (1)."""
    picture = Image.fromarray((share.clip(0, 1) * 255).round().astype(np.uint8))
    picture.putpalette(_palette())
    return picture


def _palette() -> bytes:
    steps = np.linspace(0, len(_MAGMA) - 1, 256)
    table = np.stack([np.interp(steps, range(len(_MAGMA)), part) for part in zip(*_MAGMA, strict=True)], axis=1)
    return table.round().astype(np.uint8).tobytes()
