"""Building blocks of the pictures: addressed random generators, pixel grids, smooth noise, spots and lines."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Field = NDArray[np.float64]


def addressed(*address: str | int) -> np.random.Generator:
    """A generator that depends on its address only, not on what else was drawn.

    >>> float(addressed(0, "alder").random()) == float(addressed(0, "alder").random())
    True
    """
    digest = hashlib.blake2b("\0".join(map(str, address)).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "big")))


@lru_cache(maxsize=8)
def grid(size: int) -> tuple[Field, Field]:
    """Pixel centres of a square picture in [-1, 1], as x and y of shape [size, size]."""
    axis = (np.arange(size) + 0.5) * 2 / size - 1
    x, y = np.meshgrid(axis, axis)
    x.flags.writeable = y.flags.writeable = False
    return x, y


def turned(x: Field, y: Field, *, angle: float, shift: tuple[float, float], scale: float) -> tuple[Field, Field]:
    """Coordinates of an object that is turned by `angle`, moved by `shift` and enlarged by `scale`."""
    cos, sin = np.cos(angle) / scale, np.sin(angle) / scale
    moved_x, moved_y = x - shift[0], y - shift[1]
    return cos * moved_x + sin * moved_y, cos * moved_y - sin * moved_x


def noise(generator: np.random.Generator, x: Field, y: Field, *, cells: int) -> Field:
    """Smooth noise of about unit variance, bound to the coordinates, with `cells` bumps over [-1, 1]."""
    lattice = generator.standard_normal((2 * cells + 4, 2 * cells + 4))
    places = np.stack([(y + 2) * cells / 2 + 1.5, (x + 2) * cells / 2 + 1.5])
    values: Field = ndimage.map_coordinates(lattice, places, order=2, prefilter=False, mode="mirror")
    # Quadratic B-splines smooth white noise to 0.55 of its spread.
    return values / 0.55


def spots(x: Field, y: Field, *, places: NDArray[np.float64], radii: NDArray[np.float64]) -> Field:
    """The union of soft discs at places [k, 2] with radii [k]; 1 in their middle, 0 outside."""
    if not len(places):
        return np.zeros_like(x)
    far = (x - places[:, :1, None]) ** 2 + (y - places[:, 1:, None]) ** 2
    values: Field = np.exp(-((far / radii[:, None, None] ** 2) ** 1.5)).max(axis=0)
    return values


def in_disc(generator: np.random.Generator, count: int, *, radius: float) -> NDArray[np.float64]:
    """Random places [count, 2], evenly spread over a disc."""
    angle, reach = generator.uniform(0, 2 * np.pi, count), radius * np.sqrt(generator.random(count))
    return np.stack([reach * np.cos(angle), reach * np.sin(angle)], axis=1)


def step(value: Field, *, width: float) -> Field:
    """A soft step from 0 to 1 around zero, about `width` wide."""
    rising: Field = 0.5 + 0.5 * np.tanh(2 * value / width)
    return rising


def line(distance: Field, *, width: float) -> Field:
    """1 on the line where `distance` is zero, falling to 0 about `width` away."""
    profile: Field = np.exp(-((distance / width) ** 2))
    return profile


def painted(picture: Field, colour: NDArray[np.float64], cover: Field) -> Field:
    """A picture [3, H, W] with a colour (or picture) laid over it where `cover` [H, W] is 1."""
    layer = colour[:, None, None] if colour.ndim == 1 else colour
    return picture + (layer - picture) * cover
