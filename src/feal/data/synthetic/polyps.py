"""`synthetic-polyps`: endoscopic images of the bowel wall with masks of polyps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pydantic
from numpy.typing import NDArray

from feal.data.synthetic.base import (
    Case,
    Field,
    SyntheticDataset,
    draw_line,
    draw_noise,
    draw_spots,
    get_camera,
    make_generator,
    paint,
    photograph,
    pixel_grid,
    rotate_coordinates,
    sample_disc,
    soft_step,
)
from feal.settings import Task

_MUCOSA, _VESSEL, _LUMEN, _LIGHT, _STOOL = np.array(
    [(0.80, 0.46, 0.40), (0.62, 0.20, 0.20), (0.22, 0.07, 0.06), (1.0, 0.97, 0.93), (0.72, 0.62, 0.25)]
)

# The share of patients without a polyp, and by site the share of small polyps; the rest are large.
_NONE = 0.06
_SMALL = {"alder": 0.2, "birch": 0.35, "cedar": 0.15, "dogwood": 0.3}


@dataclass(frozen=True, kw_only=True)
class _Polyp:
    radius: float
    long: float
    height: float
    tint: Field
    place: tuple[float, float]
    angle: float


class SyntheticPolyps(SyntheticDataset):
    """Polyps on the bowel wall: pixel classes background and polyp; a few images show no polyp."""

    name: ClassVar[str] = "synthetic-polyps"
    task: ClassVar[Task] = "segmentation"
    version: ClassVar[int] = 2

    class Params(SyntheticDataset.Params):
        """Size and make-up of the set."""

        train: int = pydantic.Field(300, ge=1, le=10**6, description="training samples of the largest centre")
        test: int = pydantic.Field(100, ge=0, le=10**6, description="test samples of every centre")
        size: int = pydantic.Field(64, ge=32, le=512, description="height and width in pixels")

    params: Params

    @property
    def class_names(self) -> tuple[str, ...]:
        """Return the two pixel classes."""
        return ("background", "polyp")

    def draw(self, site: str, case: Case) -> tuple[NDArray[np.uint8], Any]:
        """Draw the image of a case; return it with its mask [size, size] of 0 and 1."""
        patient = make_generator(*case.address, "patient")
        moment = make_generator(*case.address, "take", case.take)
        camera = get_camera(site)
        x, y = _place(moment, size=self.params.size, zoom=camera.zoom)
        relief, image = _draw_wall(patient, x, y)
        polyp = _draw_polyp(patient, case, site)
        mask = np.zeros_like(x, dtype=np.uint8)
        if polyp is not None:
            depth, image, relief = _paint_polyp(patient, image, relief, x, y, polyp)
            mask = (depth > 0).astype(np.uint8)
        image = _light(patient, image, relief, x, y)
        return photograph(image * moment.normal(1.0, 0.02), camera, moment), mask


def _place(moment: np.random.Generator, *, size: int, zoom: float) -> tuple[Field, Field]:
    x, y = pixel_grid(size)
    shift = moment.normal(0.0, 0.04, 2)
    scale = zoom * moment.normal(1.0, 0.03)
    return rotate_coordinates(x, y, angle=moment.normal(0.0, 0.08), shift=(shift[0], shift[1]), scale=scale)


def _draw_polyp(generator: np.random.Generator, case: Case, site: str) -> _Polyp | None:
    if case.rank < _NONE:
        return None
    small = case.rank < _NONE + _SMALL.get(site, 0.25)
    flat = case.kind == "ambiguous"
    place = sample_disc(generator, 1, radius=0.55)[0]
    tint = generator.normal(0.0, 0.03, 3) + np.array([0.035, -0.03, -0.02]) * (0.4 if flat else 1.0)
    return _Polyp(
        radius=generator.uniform(0.16, 0.24) if small else generator.uniform(0.28, 0.5),
        long=generator.uniform(1.0, 1.45),
        height=generator.uniform(0.25, 0.4) if flat else generator.uniform(0.5, 1.0),
        tint=tint,
        place=(place[0], place[1]),
        angle=generator.uniform(0, np.pi),
    )


def _draw_wall(generator: np.random.Generator, x: Field, y: Field) -> tuple[Field, Field]:
    u, v = rotate_coordinates(x, y, angle=generator.uniform(0, 2 * np.pi))
    bend = 0.25 * draw_noise(generator, x, y, cells=2)
    folds = np.zeros_like(x)
    for _ in range(int(generator.integers(1, 4))):
        place, width = generator.uniform(-1.1, 1.1), generator.uniform(0.10, 0.22)
        folds = folds + 0.16 * draw_line(v + bend + generator.normal(0, 0.15) * u**2 - place, width=width)
    for place in sample_disc(generator, int(generator.integers(1, 4)), radius=1.0):
        # Smooth bulges of the wall: raised like a polyp, but without its edge and colour.
        folds = folds + 0.14 * np.exp(-((x - place[0]) ** 2 + (y - place[1]) ** 2) / 0.06)
    relief = folds + 0.03 * draw_noise(generator, x, y, cells=4) + 0.008 * draw_noise(generator, x, y, cells=16)
    colour = _MUCOSA + generator.normal(0.0, 0.035, 3)
    image = colour[:, None, None] * (1 + 0.05 * draw_noise(generator, x, y, cells=3))
    vessels = draw_line(draw_noise(generator, x, y, cells=5), width=0.1)
    image = paint(image, _VESSEL, vessels * generator.uniform(0.0, 0.4))
    if generator.random() < 0.2:
        stain = soft_step(draw_noise(generator, x, y, cells=4) - 1.1, width=0.5)
        image = paint(image, _STOOL, 0.7 * stain)
    return relief, image


def _paint_polyp(
    generator: np.random.Generator, image: Field, relief: Field, x: Field, y: Field, polyp: _Polyp
) -> tuple[Field, Field, Field]:
    u, v = rotate_coordinates(x, y, angle=polyp.angle, shift=polyp.place, scale=polyp.radius)
    u, v = u / np.sqrt(polyp.long), v * np.sqrt(polyp.long)
    angle = np.arctan2(v, u)
    border = np.ones_like(angle)
    for turns in range(2, 6):
        border = border + generator.normal(0.0, 0.12 / turns) * np.cos(turns * angle + generator.uniform(0, 6))
    depth = 1 - np.hypot(u, v) / border
    pixel = 2 / x.shape[0] / polyp.radius
    cover = soft_step(depth, width=max(0.08, 2 * pixel))
    dome = np.sqrt(np.clip(1 - (1 - np.clip(depth, 0, 1)) ** 2, 0, 1))
    grain = 1 + 0.05 * draw_noise(generator, u * 0.5, v * 0.5, cells=9)
    image = paint(image, (image + polyp.tint[:, None, None]) * grain, cover)
    relief = relief * (1 - cover) + cover * (relief * 0.5 + polyp.height * polyp.radius * dome)
    shadow = draw_line(np.clip(-depth, 0, None), width=0.22) * (1 - cover)
    return depth, image * (1 - 0.22 * polyp.height * shadow), relief


def _light(generator: np.random.Generator, image: Field, relief: Field, x: Field, y: Field) -> Field:
    slope_y, slope_x = np.gradient(relief, 2 / x.shape[0])
    lamp = generator.normal(0.0, 0.35, 2)
    facing = (1 + lamp[0] * slope_x + lamp[1] * slope_y) / np.sqrt(1 + slope_x**2 + slope_y**2)
    image = image * np.clip(0.35 + 0.7 * facing, 0.25, 1.3)
    place = sample_disc(generator, 1, radius=1.3)[0]
    away = np.hypot(x - place[0], y - place[1])
    if generator.random() < 0.5:
        image = paint(image, _LUMEN, 0.8 * soft_step(0.35 - away, width=0.5))
    wet = draw_noise(generator, x, y, cells=12) + 3.0 * (facing - 1.0)
    image = paint(image, _LIGHT, 0.85 * soft_step(wet - 1.9, width=0.4))
    glints, radii = sample_disc(generator, 5, radius=1.0), generator.uniform(0.02, 0.05, 5)
    return paint(image, _LIGHT, 0.8 * draw_spots(x, y, places=glints, radii=radii))
