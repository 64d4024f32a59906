"""`synthetic-lesions`: dermoscopic pictures of skin lesions of several classes."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from feal.data.manifest import Task
from feal.data.synthetic.centres import camera_of, photographed
from feal.data.synthetic.cohort import Case
from feal.data.synthetic.dataset import SyntheticSet, as_pixels
from feal.data.synthetic.fields import Field, addressed, grid, in_disc, line, noise, painted, spots, step, turned
from feal.data.synthetic.looks import CLASSES, LOOKS, Look, blend, mix

_FAIR, _DARK = np.array([0.93, 0.77, 0.68]), np.array([0.78, 0.57, 0.44])
_VEIL, _PALE, _RED, _PURPLE = (
    np.array(rgb) for rgb in ((0.48, 0.52, 0.62), (0.95, 0.88, 0.84), (0.72, 0.16, 0.16), (0.38, 0.08, 0.20))
)
_WARM, _PINK = np.array([0.8, 0.0, -1.0]), np.array([0.6, -1.0, 0.2])
_CRUST = np.array([0.35, 0.10, 0.08])
_STRAW = np.array([0.94, 0.84, 0.48])
_BLACK = np.array([0.14, 0.10, 0.09])

# How dark a centre's patients' skin is on average, and how many hairs lie over a lesion.
_PATIENTS = {"alder": (0.25, 0.3), "birch": (0.1, 0.2), "cedar": (0.7, 1.0), "dogwood": (0.45, 0.6)}


@dataclass(frozen=True, kw_only=True)
class SyntheticLesions(SyntheticSet):
    """Skin lesions; `classes` from 2 to 8, of which the last two are rare (from 4 on)."""

    name: ClassVar[str] = "synthetic-lesions"
    task: ClassVar[Task] = "classification"
    version: ClassVar[int] = 1

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
        shares = mix(site, self.classes, split=case.split)
        label = min(int(np.searchsorted(np.cumsum(shares), case.rank, side="right")), self.classes - 1)
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


def _own_look(generator: np.random.Generator, classes: tuple[str, ...], label: int, *, ambiguous: bool) -> Look:
    look = _form(generator, classes[label])
    other = int(generator.integers(len(classes) - 1))
    share = generator.uniform(0.65, 0.85)
    if ambiguous:
        look = blend(look, _form(generator, classes[other + (other >= label)]), share)
    return _varied(generator, look)


def _form(generator: np.random.Generator, name: str) -> Look:
    forms = LOOKS[name]
    return forms[int(generator.integers(len(forms)))]


def _varied(generator: np.random.Generator, look: Look) -> Look:
    shade = np.exp(generator.normal(0.0, 0.22))
    hue = generator.normal(0.0, 0.04) * _WARM + generator.normal(0.0, 0.04) * _PINK
    lengths = {"radius": 0.18, "long": 0.06, "soft": 0.25, "lobed": 0.3, "jagged": 0.3}
    changed: dict[str, Any] = {
        key: getattr(look, key) * float(np.exp(generator.normal(0.0, spread))) for key, spread in lengths.items()
    }
    for key in ("colour", "second"):
        changed[key] = tuple(np.array(getattr(look, key)) * shade + hue)
    for field in fields(Look):
        if field.name not in changed:
            drawn = getattr(look, field.name) * generator.normal(1.0, 0.15) + generator.normal(0.0, 0.06)
            changed[field.name] = float(np.clip(drawn, 0.0, 1.0))
    return replace(look, **changed)


def _placed(
    patient: np.random.Generator, moment: np.random.Generator, *, size: int, zoom: float
) -> tuple[Field, Field]:
    x, y = grid(size)
    shift = patient.normal(0.0, 0.14, 2) + moment.normal(0.0, 0.03, 2)
    angle = patient.uniform(0, 2 * np.pi) + moment.normal(0.0, 0.12)
    return turned(x, y, angle=angle, shift=(shift[0], shift[1]), scale=zoom * moment.normal(1.0, 0.03))


def _skin(generator: np.random.Generator, x: Field, y: Field, site: str) -> Field:
    darkness = _PATIENTS.get(site, (0.35, 0.5))[0]
    tone = np.clip(generator.normal(darkness, 0.15), 0.0, 1.0)
    colour = (1 - tone) * _FAIR + tone * _DARK
    light = 1 + 0.035 * noise(generator, x, y, cells=2) + 0.02 * noise(generator, x, y, cells=14)
    return colour[:, None, None] * light


def _lesion(generator: np.random.Generator, picture: Field, x: Field, y: Field, look: Look) -> Field:
    pixel = 2 / x.shape[0]
    u, v = x / np.sqrt(look.long), y * np.sqrt(look.long)
    angle, far = np.arctan2(v, u), np.hypot(u, v)
    border = _border(generator, angle, look)
    depth = 1 - far / (look.radius * border)
    cover = step(depth, width=max(look.soft, 2 * pixel))
    body = _body(generator, x, y, depth, look)
    body = _structures(generator, body, x, y, angle, depth, look)
    picture = painted(picture, _PALE, step(depth + 0.6, width=0.25) * look.halo * 0.9)
    picture = painted(picture, body, cover)
    rays = np.cos(angle * int(generator.integers(9, 15)) + generator.uniform(0, 6)) > 0.2
    ring = line(depth + 0.02, width=0.16) * rays * look.streaks
    return painted(picture, np.array(look.second) * 0.7, ring)


def _border(generator: np.random.Generator, angle: Field, look: Look) -> Field:
    border = np.ones_like(angle)
    for turns in range(2, 10):
        strength = (look.lobed * 2 / turns if turns < 5 else look.jagged) * generator.normal()
        border = border + strength * np.cos(turns * angle + generator.uniform(0, 2 * np.pi))
    return np.clip(border, 0.5, 1.6)


def _body(generator: np.random.Generator, x: Field, y: Field, depth: Field, look: Look) -> Field:
    patches = noise(generator, x, y, cells=4)
    side = look.lopsided * (x / look.radius)
    second = step(patches * look.patchy + side - 0.25, width=0.8) * min(1.0, look.patchy + 0.3)
    colour = np.array(look.colour)[:, None, None] * (1.04 - 0.14 * np.clip(depth, 0, 1))
    return painted(colour, np.array(look.second), second)


def _structures(
    generator: np.random.Generator, body: Field, x: Field, y: Field, angle: Field, depth: Field, look: Look
) -> Field:
    pixel = 2 / x.shape[0]
    inside = look.radius * 0.85
    dark = np.array(look.second) * 0.55

    wave = 2 * np.pi / 0.3
    bend_x, bend_y = 0.5 * noise(generator, x, y, cells=4), 0.5 * noise(generator, x, y, cells=4)
    mesh = np.maximum(np.cos(wave * x + bend_x), np.cos(wave * y + bend_y))
    body = painted(body, dark, step(mesh - 0.55, width=0.6) * look.network * 0.75)

    stripes = np.cos(2 * np.pi / 0.36 * y + 1.2 * noise(generator, x, y, cells=3))
    body = painted(body, dark, step(-stripes, width=0.8) * look.ridges * 0.7)
    body = painted(body, _STRAW, step(stripes, width=0.8) * look.ridges * 0.35)

    veil = step(noise(generator, x, y, cells=3) + 0.6 * depth - 0.5, width=0.8)
    body = painted(body, _VEIL, veil * look.veil)
    scar = spots(x, y, places=np.zeros((1, 2)), radii=np.array([0.55 * look.radius]))
    body = painted(body, _PALE, scar * look.scar * 0.8)
    body = painted(body, _CRUST, scar * look.crust * 0.9)

    branches = np.abs(noise(generator, x, y, cells=5))
    body = painted(body, _RED, line(branches, width=0.28) * look.vessels * 0.8)
    flakes = step(0.8 * noise(generator, x, y, cells=8) + 2.5 * depth - 0.9, width=0.8)
    body = painted(body, _STRAW, flakes * look.scaly * 0.9)

    for strength, colour, count, radius in (
        (look.lakes, _PURPLE, 6, 0.15),
        (look.clods, _BLACK, 8, 0.065),
        (look.pearls, _PALE, 9, 0.065),
    ):
        places = in_disc(generator, count, radius=inside)
        radii = max(radius, 0.8 * pixel) * generator.uniform(0.75, 1.25, count)
        body = painted(body, colour, spots(x, y, places=places, radii=radii) * min(1.0, strength * 1.1))
    return body


def _artefacts(generator: np.random.Generator, picture: Field) -> Field:
    x, y = grid(picture.shape[-1])
    if generator.random() < 0.3:
        places = in_disc(generator, 3, radius=1.1)
        rim = line(np.hypot(x - places[:, :1, None], y - places[:, 1:, None]) - 0.13, width=0.05).max(axis=0)
        picture = painted(picture, _PALE, 0.6 * rim)
    if generator.random() < 0.2:
        angle = generator.uniform(0, 2 * np.pi)
        u, v = turned(x, y, angle=angle, shift=(0.0, 0.0), scale=1.0)
        ticks = line(v - 0.85, width=0.12) * (np.cos(u * 2 * np.pi / 0.25) > 0.3)
        picture = painted(picture, _BLACK, 0.6 * ticks)
    return picture


def _hairs(generator: np.random.Generator, picture: Field, site: str) -> Field:
    x, y = grid(picture.shape[-1])
    width = max(0.022, 0.55 / picture.shape[-1])
    for _ in range(min(5, int(generator.poisson(_PATIENTS.get(site, (0.35, 0.5))[1])))):
        angle, shift, bend = generator.uniform(0, np.pi), generator.uniform(-0.9, 0.9), generator.normal(0, 0.12)
        u, v = turned(x, y, angle=angle, shift=(0.0, 0.0), scale=1.0)
        picture = painted(picture, _BLACK, 0.7 * line(v - shift - bend * u**2, width=width))
    return picture
