"""`synthetic-lesions`: dermoscopic pictures of skin lesions of several classes."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from feal.data.synthetic.centres import camera_of, photographed
from feal.data.synthetic.cohort import Case
from feal.data.synthetic.dataset import SyntheticSet, as_pixels
from feal.data.synthetic.fields import Field, addressed, grid, in_disc, line, noise, painted, step, turned
from feal.data.synthetic.looks import CLASSES, LOOKS, Look, blend, mix
from feal.data.synthetic.structures import BLACK, PALE, Lesion, structures
from feal.settings import Task

_FAIR, _DARK = np.array([0.93, 0.77, 0.68]), np.array([0.78, 0.57, 0.44])
_WARM, _PINK = np.array([0.8, 0.0, -1.0]), np.array([0.6, -1.0, 0.2])

# How dark a centre's patients' skin is on average (0 to 1), and how many hairs lie over a lesion.
_PATIENTS = {"alder": (0.25, 0.3), "birch": (0.1, 0.2), "cedar": (0.7, 1.0), "dogwood": (0.45, 0.6)}
_ELSEWHERE = (0.35, 0.5)

# Relative spread of a look's lengths from one patient to another; all other traits are strengths.
_SPREAD = {"radius": 0.18, "long": 0.06, "soft": 0.25, "lobed": 0.3, "jagged": 0.3}


@dataclass(frozen=True, kw_only=True)
class SyntheticLesions(SyntheticSet):
    """Skin lesions of 2 to 8 `classes`, of which the last two (from 4 on) are rare."""

    name: ClassVar[str] = "synthetic-lesions"
    task: ClassVar[Task] = "classification"
    version: ClassVar[int] = 2

    classes: int = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("classes", 2, len(CLASSES))

    @property
    def class_names(self) -> tuple[str, ...]:
        """The first `classes` of the known lesions."""
        return CLASSES[: self.classes]

    def draw(self, site: str, case: Case) -> tuple[NDArray[np.uint8], Any]:
        """The picture of a case and its class."""
        label = _class_at(case.rank, site, self.classes, case.split)
        patient = addressed(*case.address, "patient")
        moment = addressed(*case.address, "take", case.take)
        look = _own_look(patient, self.class_names, label, ambiguous=case.kind == "ambiguous")
        camera = camera_of(site)
        x, y = _placed(patient, moment, size=self.size, zoom=camera.zoom)
        picture = _skin(patient, x, y, site)
        picture = _lesion(patient, picture, x, y, look)
        picture = _artefacts(patient, picture)
        picture = _hairs(patient, picture, site)
        picture = picture * moment.normal(1.0, 0.02)
        return as_pixels(photographed(picture, camera, moment)), np.int16(label)


def _class_at(rank: float, site: str, classes: int, split: str) -> int:
    return min(int(np.searchsorted(_limits(site, classes, split), rank, side="right")), classes - 1)


@lru_cache(maxsize=64)
def _limits(site: str, classes: int, split: str) -> NDArray[np.float64]:
    return np.cumsum(mix(site, classes, split=split))


def _own_look(generator: np.random.Generator, classes: tuple[str, ...], label: int, *, ambiguous: bool) -> Look:
    look = _form(generator, classes[label])
    if ambiguous:
        other = int(generator.integers(len(classes) - 1))
        other += other >= label
        look = blend(look, _form(generator, classes[other]), generator.uniform(0.68, 0.88))
    return _varied(generator, look)


def _form(generator: np.random.Generator, name: str) -> Look:
    forms = LOOKS[name]
    return forms[int(generator.integers(len(forms)))]


def _varied(generator: np.random.Generator, look: Look) -> Look:
    shade = np.exp(generator.normal(0.0, 0.22))
    hue = generator.normal(0.0, 0.033) * _WARM + generator.normal(0.0, 0.033) * _PINK
    changed: dict[str, Any] = {
        key: tuple(np.array(getattr(look, key)) * shade + hue) for key in ("colour", "second")
    }
    for key, spread in _SPREAD.items():
        changed[key] = getattr(look, key) * float(np.exp(generator.normal(0.0, spread)))
    for field in fields(Look):
        if field.name not in changed:
            drawn = getattr(look, field.name) * generator.normal(1.0, 0.15) + generator.normal(0.0, 0.06)
            changed[field.name] = min(max(float(drawn), 0.0), 1.0)
    return replace(look, **changed)


def _placed(
    patient: np.random.Generator, moment: np.random.Generator, *, size: int, zoom: float
) -> tuple[Field, Field]:
    x, y = grid(size)
    shift = patient.normal(0.0, 0.14, 2) + moment.normal(0.0, 0.03, 2)
    angle = patient.uniform(0, 2 * np.pi) + moment.normal(0.0, 0.12)
    return turned(x, y, angle=angle, shift=(shift[0], shift[1]), scale=zoom * moment.normal(1.0, 0.03))


def _skin(generator: np.random.Generator, x: Field, y: Field, site: str) -> Field:
    darkness = _PATIENTS.get(site, _ELSEWHERE)[0]
    tone = np.clip(generator.normal(darkness, 0.15), 0.0, 1.0)
    colour = (1 - tone) * _FAIR + tone * _DARK
    light = 1 + 0.035 * noise(generator, x, y, cells=2) + 0.02 * noise(generator, x, y, cells=14)
    skin: Field = colour[:, None, None] * light
    return skin


def _lesion(generator: np.random.Generator, picture: Field, x: Field, y: Field, look: Look) -> Field:
    u, v = x / np.sqrt(look.long), y * np.sqrt(look.long)
    angle = np.arctan2(v, u)
    depth = 1 - np.hypot(u, v) / (look.radius * _border(generator, angle, look))
    lesion = Lesion(x=x, y=y, depth=depth, look=look)
    body = structures(generator, _body(generator, lesion), lesion)
    picture = painted(picture, PALE, 0.7 * look.halo * step(depth + 0.6, width=0.25))
    picture = painted(picture, body, step(depth, width=max(look.soft, 2 * lesion.pixel)))
    rays = np.cos(angle * int(generator.integers(9, 15)) + generator.uniform(0, 6)) > 0.2
    ring = line(depth + 0.02, width=0.16) * rays
    return painted(picture, np.array(look.second) * 0.7, ring * look.streaks)


def _border(generator: np.random.Generator, angle: Field, look: Look) -> Field:
    border = np.ones_like(angle)
    for turns in range(2, 10):
        strength = (look.lobed * 2 / turns if turns < 5 else look.jagged) * generator.normal()
        border = border + strength * np.cos(turns * angle + generator.uniform(0, 2 * np.pi))
    return np.clip(border, 0.5, 1.6)


def _body(generator: np.random.Generator, lesion: Lesion) -> Field:
    look = lesion.look
    patches = look.patchy * noise(generator, lesion.x, lesion.y, cells=4)
    side = look.lopsided * (lesion.x / look.radius)
    second = step(patches + side - 0.25, width=0.8) * min(1.0, look.patchy + 0.3)
    colour = np.array(look.colour)[:, None, None] * (1.04 - 0.14 * np.clip(lesion.depth, 0, 1))
    return painted(colour, np.array(look.second), second)


def _artefacts(generator: np.random.Generator, picture: Field) -> Field:
    x, y = grid(picture.shape[-1])
    bubbles, ruler = generator.random(2)
    if bubbles < 0.2:
        places = in_disc(generator, 3, radius=1.1)
        rim = line(np.hypot(x - places[:, :1, None], y - places[:, 1:, None]) - 0.13, width=0.05).max(axis=0)
        picture = painted(picture, PALE, 0.6 * rim)
    if ruler < 0.15:
        u, v = turned(x, y, angle=generator.uniform(0, 2 * np.pi), shift=(0.0, 0.0), scale=1.0)
        ticks = line(v - 0.85, width=0.12) * (np.cos(u * 2 * np.pi / 0.25) > 0.3)
        picture = painted(picture, BLACK, 0.6 * ticks)
    return picture


def _hairs(generator: np.random.Generator, picture: Field, site: str) -> Field:
    x, y = grid(picture.shape[-1])
    width = max(0.022, 0.55 / picture.shape[-1])
    for _ in range(min(5, int(generator.poisson(_PATIENTS.get(site, _ELSEWHERE)[1])))):
        u, v = turned(x, y, angle=generator.uniform(0, np.pi), shift=(0.0, 0.0), scale=1.0)
        course = v - generator.uniform(-0.9, 0.9) - generator.normal(0, 0.12) * u**2
        picture = painted(picture, BLACK, 0.7 * line(course, width=width))
    return picture
