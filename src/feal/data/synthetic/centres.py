"""The centres: their names, their sizes, and what their cameras do to a picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from feal.data.synthetic.fields import Field, addressed, grid

NAMES = (
    "alder", "birch", "cedar", "dogwood", "elm", "fir",
    "ginkgo", "hazel", "ironwood", "juniper", "katsura", "larch",
)  # fmt: skip

_SHARES = (1.0, 0.8, 0.6, 0.45)


@dataclass(frozen=True, kw_only=True)
class Camera:
    """How a centre's pictures look, whatever they show."""

    cast: tuple[float, float, float]
    contrast: float
    gamma: float
    saturation: float
    blur: float
    noise: float
    grain: float
    vignette: float
    zoom: float


_CAMERAS = {
    "alder": Camera(
        cast=(1.0, 1.0, 1.0), contrast=1.0, gamma=1.0, saturation=1.0,
        blur=0.0, noise=0.012, grain=0.0, vignette=0.0, zoom=1.0,
    ),
    "birch": Camera(
        cast=(0.86, 0.98, 1.12), contrast=0.74, gamma=0.8, saturation=0.75,
        blur=0.5, noise=0.01, grain=0.0, vignette=0.15, zoom=0.84,
    ),
    "cedar": Camera(
        cast=(1.12, 0.93, 0.74), contrast=1.22, gamma=1.25, saturation=1.15,
        blur=0.25, noise=0.022, grain=0.6, vignette=0.75, zoom=1.06,
    ),
    "dogwood": Camera(
        cast=(1.06, 0.86, 1.02), contrast=0.92, gamma=1.15, saturation=0.6,
        blur=0.0, noise=0.035, grain=0.0, vignette=0.4, zoom=1.25,
    ),
}  # fmt: skip


def camera_of(site: str) -> Camera:
    """The camera of a centre: the first four are set by hand, the others drawn once and for all."""
    if site in _CAMERAS:
        return _CAMERAS[site]
    generator = addressed("camera", site)
    return Camera(
        cast=tuple(generator.uniform(0.8, 1.15, 3)),
        contrast=generator.uniform(0.75, 1.25),
        gamma=generator.uniform(0.8, 1.25),
        saturation=generator.uniform(0.6, 1.2),
        blur=generator.choice([0.0, 0.4, 0.9]),
        noise=generator.uniform(0.01, 0.06),
        grain=generator.choice([0.0, 0.6]),
        vignette=generator.uniform(0.0, 0.8),
        zoom=generator.uniform(0.82, 1.25),
    )


def share_of(site: str) -> float:
    """A centre's size as a share of the largest one's."""
    return _SHARES[NAMES.index(site) % len(_SHARES)]


def photographed(picture: Field, camera: Camera, generator: np.random.Generator) -> Field:
    """The picture [3, H, W] as that camera takes it; blur is in pixels of a 32-pixel picture."""
    size = picture.shape[-1]
    grey = picture.mean(axis=0)
    picture = grey + camera.saturation * (picture - grey)
    picture = 0.55 + camera.contrast * (picture - 0.55)
    picture = np.clip(picture, 0.0, 1.0) ** camera.gamma * np.array(camera.cast)[:, None, None]
    if camera.vignette:
        picture = picture * _vignette(size, camera.vignette)
    if camera.blur:
        spread = camera.blur * size / 32
        picture = ndimage.gaussian_filter(picture, (0, spread, spread), truncate=2.5)
    return picture + _grain(generator, size, camera)


def _vignette(size: int, strength: float) -> Field:
    x, y = grid(size)
    dark: Field = 1 - strength / (1 + np.exp(-10 * (np.hypot(x, y) - 1.12)))
    return dark


def _grain(generator: np.random.Generator, size: int, camera: Camera) -> Field:
    light = generator.standard_normal((1, size, size))
    colour = generator.standard_normal((3, size, size))
    both = 0.8 * light + 0.6 * colour
    if camera.grain:
        both = 1.8 * ndimage.gaussian_filter(both, (0, camera.grain, camera.grain), truncate=2.5)
    return camera.noise * both
