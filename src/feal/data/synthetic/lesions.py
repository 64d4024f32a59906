"""`synthetic-lesions`: dermoscopic images of skin lesions of several classes."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import pydantic
from numpy.typing import NDArray

from feal.data.synthetic.base import Case, SyntheticDataset, get_camera, photograph, to_uint8
from feal.data.synthetic.drawing import (
    Field,
    draw_line,
    draw_noise,
    make_generator,
    paint,
    pixel_grid,
    rotate_coordinates,
    sample_disc,
    soft_step,
)
from feal.data.synthetic.lesion_appearance import (
    APPEARANCES,
    BLACK,
    CLASSES,
    PALE,
    Appearance,
    Lesion,
    blend_appearances,
    class_shares,
    paint_structures,
)
from feal.settings import Task

_FAIR, _DARK = np.array([0.93, 0.77, 0.68]), np.array([0.78, 0.57, 0.44])
_WARM, _PINK = np.array([0.8, 0.0, -1.0]), np.array([0.6, -1.0, 0.2])

# By site: the mean darkness of the patients' skin (0 to 1), and the mean number of hairs over a lesion.
_PATIENTS = {"alder": (0.25, 0.3), "birch": (0.1, 0.2), "cedar": (0.7, 1.0), "dogwood": (0.45, 0.6)}
_ELSEWHERE = (0.35, 0.5)

# Relative spread of an appearance's lengths from one patient to another; all other traits are strengths.
_SPREAD = {"radius": 0.18, "long": 0.06, "soft": 0.25, "lobed": 0.3, "jagged": 0.3}


class SyntheticLesions(SyntheticDataset):
    """Skin lesions of 2 to 8 `classes`, of which the last two (from 4 on) are rare."""

    name: ClassVar[str] = "synthetic-lesions"
    task: ClassVar[Task] = "classification"
    version: ClassVar[int] = 2

    class Params(SyntheticDataset.Params):
        """Size and make-up of the set."""

        classes: int = pydantic.Field(6, ge=2, le=len(CLASSES), description="lesion classes")

    params: Params

    @property
    def class_names(self) -> tuple[str, ...]:
        """Return the first `classes` of the known lesions."""
        return CLASSES[: self.params.classes]

    def draw(self, site: str, case: Case) -> tuple[NDArray[np.uint8], Any]:
        """Draw the image of a case; return it with its class."""
        label = _pick_class(case.rank, site, self.params.classes, case.split)
        patient = make_generator(*case.address, "patient")
        moment = make_generator(*case.address, "take", case.take)
        appearance = _draw_appearance(patient, self.class_names, label, ambiguous=case.kind == "ambiguous")
        camera = get_camera(site)
        x, y = _place(patient, moment, size=self.params.size, zoom=camera.zoom)
        image = _draw_skin(patient, x, y, site)
        image = _draw_lesion(patient, image, x, y, appearance)
        image = _draw_artefacts(patient, image)
        image = _draw_hairs(patient, image, site)
        image = image * moment.normal(1.0, 0.02)
        return to_uint8(photograph(image, camera, moment)), np.int16(label)


def _pick_class(rank: float, site: str, classes: int, split: str) -> int:
    return min(int(np.searchsorted(_cumulative_shares(site, classes, split), rank, side="right")), classes - 1)


@lru_cache(maxsize=64)
def _cumulative_shares(site: str, classes: int, split: str) -> NDArray[np.float64]:
    return np.cumsum(class_shares(site, classes, split=split))


def _draw_appearance(
    generator: np.random.Generator, classes: tuple[str, ...], label: int, *, ambiguous: bool
) -> Appearance:
    appearance = _draw_form(generator, classes[label])
    if ambiguous:
        other = int(generator.integers(len(classes) - 1))
        other += other >= label
        appearance = blend_appearances(
            appearance, _draw_form(generator, classes[other]), generator.uniform(0.68, 0.88)
        )
    return _vary(generator, appearance)


def _draw_form(generator: np.random.Generator, name: str) -> Appearance:
    forms = APPEARANCES[name]
    return forms[int(generator.integers(len(forms)))]


def _vary(generator: np.random.Generator, appearance: Appearance) -> Appearance:
    shade = np.exp(generator.normal(0.0, 0.22))
    hue = generator.normal(0.0, 0.033) * _WARM + generator.normal(0.0, 0.033) * _PINK
    changed: dict[str, Any] = {
        key: tuple(np.array(getattr(appearance, key)) * shade + hue) for key in ("colour", "second")
    }
    for key, spread in _SPREAD.items():
        changed[key] = getattr(appearance, key) * float(np.exp(generator.normal(0.0, spread)))
    for field in fields(Appearance):
        if field.name not in changed:
            drawn = getattr(appearance, field.name) * generator.normal(1.0, 0.15) + generator.normal(0.0, 0.06)
            changed[field.name] = min(max(float(drawn), 0.0), 1.0)
    return replace(appearance, **changed)


def _place(
    patient: np.random.Generator, moment: np.random.Generator, *, size: int, zoom: float
) -> tuple[Field, Field]:
    x, y = pixel_grid(size)
    shift = patient.normal(0.0, 0.14, 2) + moment.normal(0.0, 0.03, 2)
    angle = patient.uniform(0, 2 * np.pi) + moment.normal(0.0, 0.12)
    return rotate_coordinates(x, y, angle=angle, shift=(shift[0], shift[1]), scale=zoom * moment.normal(1.0, 0.03))


def _draw_skin(generator: np.random.Generator, x: Field, y: Field, site: str) -> Field:
    darkness = _PATIENTS.get(site, _ELSEWHERE)[0]
    tone = np.clip(generator.normal(darkness, 0.15), 0.0, 1.0)
    colour = (1 - tone) * _FAIR + tone * _DARK
    light = 1 + 0.035 * draw_noise(generator, x, y, cells=2) + 0.02 * draw_noise(generator, x, y, cells=14)
    skin: Field = colour[:, None, None] * light
    return skin


def _draw_lesion(
    generator: np.random.Generator, image: Field, x: Field, y: Field, appearance: Appearance
) -> Field:
    u, v = x / np.sqrt(appearance.long), y * np.sqrt(appearance.long)
    angle = np.arctan2(v, u)
    depth = 1 - np.hypot(u, v) / (appearance.radius * _draw_border(generator, angle, appearance))
    lesion = Lesion(x=x, y=y, depth=depth, appearance=appearance)
    body = paint_structures(generator, _draw_body(generator, lesion), lesion)
    image = paint(image, PALE, 0.7 * appearance.halo * soft_step(depth + 0.6, width=0.25))
    image = paint(image, body, soft_step(depth, width=max(appearance.soft, 2 * lesion.pixel)))
    rays = np.cos(angle * int(generator.integers(9, 15)) + generator.uniform(0, 6)) > 0.2
    ring = draw_line(depth + 0.02, width=0.16) * rays
    return paint(image, np.array(appearance.second) * 0.7, ring * appearance.streaks)


def _draw_border(generator: np.random.Generator, angle: Field, appearance: Appearance) -> Field:
    border = np.ones_like(angle)
    for turns in range(2, 10):
        strength = (appearance.lobed * 2 / turns if turns < 5 else appearance.jagged) * generator.normal()
        border = border + strength * np.cos(turns * angle + generator.uniform(0, 2 * np.pi))
    return np.clip(border, 0.5, 1.6)


def _draw_body(generator: np.random.Generator, lesion: Lesion) -> Field:
    appearance = lesion.appearance
    patches = appearance.patchy * draw_noise(generator, lesion.x, lesion.y, cells=4)
    side = appearance.lopsided * (lesion.x / appearance.radius)
    second = soft_step(patches + side - 0.25, width=0.8) * min(1.0, appearance.patchy + 0.3)
    colour = np.array(appearance.colour)[:, None, None] * (1.04 - 0.14 * np.clip(lesion.depth, 0, 1))
    return paint(colour, np.array(appearance.second), second)


def _draw_artefacts(generator: np.random.Generator, image: Field) -> Field:
    x, y = pixel_grid(image.shape[-1])
    bubbles, ruler = generator.random(2)
    if bubbles < 0.2:
        places = sample_disc(generator, 3, radius=1.1)
        rim = draw_line(np.hypot(x - places[:, :1, None], y - places[:, 1:, None]) - 0.13, width=0.05).max(axis=0)
        image = paint(image, PALE, 0.6 * rim)
    if ruler < 0.15:
        u, v = rotate_coordinates(x, y, angle=generator.uniform(0, 2 * np.pi), shift=(0.0, 0.0), scale=1.0)
        ticks = draw_line(v - 0.85, width=0.12) * (np.cos(u * 2 * np.pi / 0.25) > 0.3)
        image = paint(image, BLACK, 0.6 * ticks)
    return image


def _draw_hairs(generator: np.random.Generator, image: Field, site: str) -> Field:
    x, y = pixel_grid(image.shape[-1])
    width = max(0.022, 0.55 / image.shape[-1])
    for _ in range(min(5, int(generator.poisson(_PATIENTS.get(site, _ELSEWHERE)[1])))):
        u, v = rotate_coordinates(x, y, angle=generator.uniform(0, np.pi), shift=(0.0, 0.0), scale=1.0)
        course = v - generator.uniform(-0.9, 0.9) - generator.normal(0, 0.12) * u**2
        image = paint(image, BLACK, 0.7 * draw_line(course, width=width))
    return image
