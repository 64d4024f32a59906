"""`synthetic-polyps`: endoscopic images of the bowel wall with masks of polyps."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pydantic
from numpy.typing import NDArray

from feal.data.synthetic.base import (
    Canvas,
    Case,
    Field,
    SyntheticDataset,
    draw_line,
    get_camera,
    make_generator,
    paint,
    photograph,
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
    place: Field
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
        shift, scale = moment.normal(0.0, 0.04, 2), camera.zoom * moment.normal(1.0, 0.03)
        angle = moment.normal(0.0, 0.08)
        wall = Canvas.of_size(patient, self.params.size).rotate(angle, shift=shift, scale=scale)
        relief, image = _draw_wall(wall)
        polyp = _draw_polyp(wall, case, site)
        mask = np.zeros_like(wall.x, dtype=np.uint8)
        if polyp is not None:
            depth, image, relief = _paint_polyp(wall, image, relief, polyp)
            mask = (depth > 0).astype(np.uint8)
        image = _light(wall, image, relief)
        return photograph(image * moment.normal(1.0, 0.02), camera, moment), mask


def _draw_polyp(wall: Canvas, case: Case, site: str) -> _Polyp | None:
    if case.rank < _NONE:
        return None
    small = case.rank < _NONE + _SMALL.get(site, 0.25)
    flat = case.kind == "ambiguous"
    place, generator = wall.places(1, radius=0.55)[0], wall.generator
    tint = generator.normal(0.0, 0.03, 3) + np.array([0.035, -0.03, -0.02]) * (0.4 if flat else 1.0)
    return _Polyp(
        radius=generator.uniform(0.16, 0.24) if small else generator.uniform(0.28, 0.5),
        long=generator.uniform(1.0, 1.45),
        height=generator.uniform(0.25, 0.4) if flat else generator.uniform(0.5, 1.0),
        tint=tint,
        place=place,
        angle=generator.uniform(0, np.pi),
    )


def _draw_wall(wall: Canvas) -> tuple[Field, Field]:
    generator = wall.generator
    along = wall.rotate(generator.uniform(0, 2 * np.pi))
    bend = 0.25 * wall.noise(2)
    folds = np.zeros_like(wall.x)
    for _ in range(int(generator.integers(1, 4))):
        place, width = generator.uniform(-1.1, 1.1), generator.uniform(0.10, 0.22)
        folds = folds + 0.16 * draw_line(
            along.y + bend + generator.normal(0, 0.15) * along.x**2 - place, width=width
        )
    for place in wall.places(int(generator.integers(1, 4)), radius=1.0):
        # Smooth bulges of the wall: raised like a polyp, but without its edge and colour.
        folds = folds + 0.14 * np.exp(-((wall.x - place[0]) ** 2 + (wall.y - place[1]) ** 2) / 0.06)
    relief = folds + 0.03 * wall.noise(4) + 0.008 * wall.noise(16)
    colour = _MUCOSA + generator.normal(0.0, 0.035, 3)
    image = colour[:, None, None] * (1 + 0.05 * wall.noise(3))
    image = paint(image, _VESSEL, draw_line(wall.noise(5), width=0.1) * generator.uniform(0.0, 0.4))
    if generator.random() < 0.2:
        image = paint(image, _STOOL, 0.7 * soft_step(wall.noise(4) - 1.1, width=0.5))
    return relief, image


def _paint_polyp(wall: Canvas, image: Field, relief: Field, polyp: _Polyp) -> tuple[Field, Field, Field]:
    generator, head = wall.generator, wall.rotate(polyp.angle, shift=polyp.place, scale=polyp.radius)
    u, v = head.x / np.sqrt(polyp.long), head.y * np.sqrt(polyp.long)
    angle = np.arctan2(v, u)
    border = np.ones_like(angle)
    for turns in range(2, 6):
        border = border + generator.normal(0.0, 0.12 / turns) * np.cos(turns * angle + generator.uniform(0, 6))
    depth = 1 - np.hypot(u, v) / border
    cover = soft_step(depth, width=max(0.08, 2 * wall.pixel / polyp.radius))
    dome = np.sqrt(np.clip(1 - (1 - np.clip(depth, 0, 1)) ** 2, 0, 1))
    grain = 1 + 0.05 * Canvas(generator, u * 0.5, v * 0.5).noise(9)
    image = paint(image, (image + polyp.tint[:, None, None]) * grain, cover)
    relief = relief * (1 - cover) + cover * (relief * 0.5 + polyp.height * polyp.radius * dome)
    shadow = draw_line(np.clip(-depth, 0, None), width=0.22) * (1 - cover)
    return depth, image * (1 - 0.22 * polyp.height * shadow), relief


def _light(wall: Canvas, image: Field, relief: Field) -> Field:
    slope_y, slope_x = np.gradient(relief, wall.pixel)
    lamp = wall.generator.normal(0.0, 0.35, 2)
    facing = (1 + lamp[0] * slope_x + lamp[1] * slope_y) / np.sqrt(1 + slope_x**2 + slope_y**2)
    image = image * np.clip(0.35 + 0.7 * facing, 0.25, 1.3)
    [away] = wall.distances(wall.places(1, radius=1.3))
    if wall.generator.random() < 0.5:
        image = paint(image, _LUMEN, 0.8 * soft_step(0.35 - away, width=0.5))
    wet = wall.noise(12) + 3.0 * (facing - 1.0)
    image = paint(image, _LIGHT, 0.85 * soft_step(wet - 1.9, width=0.4))
    glints, radii = wall.places(5, radius=1.0), wall.generator.uniform(0.02, 0.05, 5)
    return paint(image, _LIGHT, 0.8 * wall.spots(glints, radii))
