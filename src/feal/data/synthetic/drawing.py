"""Draw the parts of synthetic images: seeded generators, pixel grids, smooth noise, spots and lines."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Field = NDArray[np.float64]


def make_generator(*address: str | int) -> np.random.Generator:
    """Make a generator that depends on its address only, not on earlier draws.

    >>> float(make_generator(0, "alder").random()) == float(make_generator(0, "alder").random())
    True
    """
    digest = hashlib.blake2b("\0".join(map(str, address)).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "big")))


@lru_cache(maxsize=8)
def pixel_grid(size: int) -> tuple[Field, Field]:
    """Return the pixel centres of a square image in [-1, 1], as x and y of shape [size, size]."""
    axis = (np.arange(size) + 0.5) * 2 / size - 1
    x, y = np.meshgrid(axis, axis)
    x.flags.writeable = y.flags.writeable = False
    return x, y


def rotate_coordinates(
    x: Field, y: Field, *, angle: float, shift: tuple[float, float], scale: float
) -> tuple[Field, Field]:
    """Return the coordinates of an object that is rotated by `angle`, moved by `shift` and enlarged by `scale`."""
    cos, sin = np.cos(angle) / scale, np.sin(angle) / scale
    moved_x, moved_y = x - shift[0], y - shift[1]
    return cos * moved_x + sin * moved_y, cos * moved_y - sin * moved_x


def draw_noise(generator: np.random.Generator, x: Field, y: Field, *, cells: int) -> Field:
    """Draw smooth noise of about unit variance over the coordinates, with `cells` bumps over [-1, 1]."""
    lattice = generator.standard_normal((2 * cells + 4, 2 * cells + 4))
    places = np.stack([(y + 2) * cells / 2 + 1.5, (x + 2) * cells / 2 + 1.5])
    values: Field = ndimage.map_coordinates(lattice, places, order=2, prefilter=False, mode="mirror")
    # Quadratic B-splines reduce the deviation of white noise to 0.55.
    return values / 0.55


def draw_spots(x: Field, y: Field, *, places: NDArray[np.float64], radii: NDArray[np.float64]) -> Field:
    """Draw the union of soft discs at places [k, 2] with radii [k]; 1 at their centres, 0 outside."""
    if not len(places):
        return np.zeros_like(x)
    far = (x - places[:, :1, None]) ** 2 + (y - places[:, 1:, None]) ** 2
    values: Field = np.exp(-((far / radii[:, None, None] ** 2) ** 1.5)).max(axis=0)
    return values


def sample_disc(generator: np.random.Generator, count: int, *, radius: float) -> NDArray[np.float64]:
    """Draw random places [count, 2], uniformly over a disc."""
    angle, reach = generator.uniform(0, 2 * np.pi, count), radius * np.sqrt(generator.random(count))
    return np.stack([reach * np.cos(angle), reach * np.sin(angle)], axis=1)


def soft_step(value: Field, *, width: float) -> Field:
    """Compute a soft step from 0 to 1 around zero, about `width` wide."""
    rising: Field = 0.5 + 0.5 * np.tanh(2 * value / width)
    return rising


def draw_line(distance: Field, *, width: float) -> Field:
    """Draw a line: 1 where `distance` is zero, falling to 0 about `width` away."""
    profile: Field = np.exp(-((distance / width) ** 2))
    return profile


def paint(image: Field, colour: NDArray[np.float64], cover: Field) -> Field:
    """Paint a colour (or an image) over an image [3, H, W] where `cover` [H, W] is 1."""
    layer = colour[:, None, None] if colour.ndim == 1 else colour
    return image + (layer - image) * cover
