"""`synthetic-lesions`: dermoscopic images of skin lesions of several classes."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
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

Tint = tuple[float, float, float]


@dataclass(frozen=True)
class Appearance:
    """Traits of a lesion; strengths are about 0 to 1, lengths in half image widths.

    `colour` and `second` mix in patches of strength `patchy`; `veil` is a blue-white haze, `scar` a pale middle,
    `scaly` white flakes, `pearls` small white and `clods` small dark dots, `lakes` round purple pools,
    `ridges` parallel stripes, `halo` a pale ring around, `crust` a dark red middle, `spokes` lines from
    the middle outwards, `rim` a dark line along the border.
    """

    colour: Tint
    second: Tint
    radius: float = 0.5
    long: float = 1.15
    lobed: float = 0.06
    jagged: float = 0.02
    lopsided: float = 0.1
    soft: float = 0.12
    patchy: float = 0.2
    network: float = 0.0
    clods: float = 0.0
    pearls: float = 0.0
    streaks: float = 0.0
    vessels: float = 0.0
    ridges: float = 0.0
    halo: float = 0.0
    crust: float = 0.0
    spokes: float = 0.0
    rim: float = 0.0
    lakes: float = 0.0
    scaly: float = 0.0
    veil: float = 0.0
    scar: float = 0.0


# Common classes have several forms, so that a few labels do not cover them.
APPEARANCES = {
    "nevus": (
        Appearance((0.52, 0.34, 0.23), (0.42, 0.26, 0.18), radius=0.47, patchy=0.3, network=0.95),
        Appearance((0.60, 0.41, 0.30), (0.50, 0.32, 0.22), radius=0.44, soft=0.15, clods=0.95),
        Appearance((0.52, 0.34, 0.24), (0.44, 0.28, 0.20), radius=0.36, patchy=0.2, halo=0.95),
    ),
    "melanoma": (
        Appearance((0.45, 0.29, 0.22), (0.30, 0.19, 0.17), radius=0.53, long=1.25, lobed=0.11, jagged=0.03,
                   lopsided=0.5, patchy=0.7, streaks=0.8, veil=0.8),
        Appearance((0.62, 0.44, 0.32), (0.26, 0.17, 0.14), radius=0.57, long=1.35, lobed=0.13, jagged=0.02,
                   lopsided=0.9, patchy=0.9, soft=0.15),
        Appearance((0.20, 0.16, 0.22), (0.12, 0.10, 0.15), radius=0.46, lobed=0.07, soft=0.1, patchy=0.6,
                   veil=0.4),
    ),
    "basal-cell": (
        Appearance((0.78, 0.58, 0.54), (0.64, 0.47, 0.47), lobed=0.08, soft=0.18, patchy=0.4, vessels=0.95),
        Appearance((0.80, 0.60, 0.55), (0.68, 0.50, 0.48), lobed=0.06, soft=0.12, crust=0.95),
        Appearance((0.76, 0.56, 0.52), (0.62, 0.46, 0.46), lobed=0.08, soft=0.15, spokes=0.95),
    ),
    "keratosis": (
        Appearance((0.58, 0.43, 0.28), (0.46, 0.33, 0.21), radius=0.51, long=1.2, lobed=0.07, soft=0.08,
                   patchy=0.35, pearls=0.95),
        Appearance((0.68, 0.52, 0.34), (0.56, 0.42, 0.27), radius=0.53, long=1.3, lobed=0.07, soft=0.08,
                   ridges=0.95),
        Appearance((0.72, 0.55, 0.40), (0.62, 0.46, 0.32), radius=0.5, lobed=0.12, jagged=0.03, soft=0.06,
                   rim=0.95),
    ),
    "actinic": (
        Appearance((0.78, 0.34, 0.28), (0.70, 0.28, 0.24), radius=0.54, lobed=0.09, jagged=0.03, soft=0.2,
                   patchy=0.4, scaly=0.95),
    ),
    "vascular": (
        Appearance((0.68, 0.38, 0.36), (0.58, 0.32, 0.34), radius=0.45, soft=0.1, patchy=0.3, lakes=0.95),
    ),
    "dermatofibroma": (
        Appearance((0.58, 0.41, 0.32), (0.50, 0.33, 0.26), radius=0.44, soft=0.16, network=0.35, scar=0.95),
    ),
    "squamous": (
        Appearance((0.72, 0.42, 0.37), (0.60, 0.30, 0.28), radius=0.49, lobed=0.11, jagged=0.05, soft=0.1,
                   patchy=0.4, scar=0.7, streaks=0.7),
    ),
}  # fmt: skip

LESION_CLASSES = tuple(APPEARANCES)

# Shares of the common classes, the most frequent first; their order differs between sites.
_FALLING = (0.38, 0.26, 0.20, 0.16, 0.13, 0.10)
_ORDERS = {
    "alder": (0, 1, 2, 3, 4, 5),
    "birch": (0, 3, 1, 2, 5, 4),
    "cedar": (2, 0, 3, 1, 4, 5),
    "dogwood": (1, 2, 0, 3, 5, 4),
}

_FAIR, _DARK = np.array([0.93, 0.77, 0.68]), np.array([0.78, 0.57, 0.44])
_WARM, _PINK = np.array([0.8, 0.0, -1.0]), np.array([0.6, -1.0, 0.2])
_VEIL, _PALE, _RED, _PURPLE = np.array(
    [(0.48, 0.52, 0.62), (0.95, 0.88, 0.84), (0.72, 0.16, 0.16), (0.38, 0.08, 0.20)]
)
_CRUST, _STRAW, _SLATE, _BLACK = np.array(
    [(0.35, 0.10, 0.08), (0.94, 0.84, 0.48), (0.40, 0.38, 0.44), (0.14, 0.10, 0.09)]
)

# By site: the mean darkness of the patients' skin (0 to 1), and the mean number of hairs over a lesion.
_PATIENTS = {"alder": (0.25, 0.3), "birch": (0.1, 0.2), "cedar": (0.7, 1.0), "dogwood": (0.45, 0.6)}
_ELSEWHERE = (0.35, 0.5)

# Relative spread of an appearance's lengths from one patient to another; all other traits are strengths.
_SPREAD = {"radius": 0.18, "long": 0.06, "soft": 0.25, "lobed": 0.3, "jagged": 0.3}

# Fainter traits are invisible and not drawn, which halves the time.
_VISIBLE = 0.06


class SyntheticLesions(SyntheticDataset):
    """Skin lesions of 2 to 8 `classes`, of which the last two (from 4 on) are rare."""

    name: ClassVar[str] = "synthetic-lesions"
    task: ClassVar[Task] = "classification"
    version: ClassVar[int] = 2

    class Params(SyntheticDataset.Params):
        """Size and make-up of the set."""

        classes: int = pydantic.Field(6, ge=2, le=len(LESION_CLASSES), description="lesion classes")

    params: Params

    @property
    def class_names(self) -> tuple[str, ...]:
        """Return the first `classes` of the known lesions."""
        return LESION_CLASSES[: self.params.classes]

    def draw(self, site: str, case: Case) -> tuple[NDArray[np.uint8], Any]:
        """Draw the image of a case; return it with its class."""
        shares = class_shares(site, self.params.classes, split=case.split)
        label = min(int(np.searchsorted(np.cumsum(shares), case.rank, side="right")), len(shares) - 1)
        patient = make_generator(*case.address, "patient")
        moment = make_generator(*case.address, "take", case.take)
        appearance = _draw_appearance(patient, self.class_names, label, ambiguous=case.kind == "ambiguous")
        camera = get_camera(site)
        canvas = Canvas.of_size(patient, self.params.size)
        shift = patient.normal(0.0, 0.14, 2) + moment.normal(0.0, 0.03, 2)
        angle = patient.uniform(0, 2 * np.pi) + moment.normal(0.0, 0.12)
        skin = canvas.rotate(angle, shift=shift, scale=camera.zoom * moment.normal(1.0, 0.03))
        darkness, hairs = _PATIENTS.get(site, _ELSEWHERE)
        image = _draw_lesion(skin, _draw_skin(skin, darkness), appearance)
        image = _draw_hairs(canvas, _draw_artefacts(canvas, image), hairs)
        return photograph(image * moment.normal(1.0, 0.02), camera, moment), np.int16(label)


def class_shares(site: str, classes: int, *, split: str) -> Field:
    """Return the share of each class among a site's patients, [classes]; the last classes are rare, 2 to 6 %.

    A third of the test split is spread evenly over the classes: with the site's own shares, the recall of a rare
    class would depend on a handful of samples.

    >>> class_shares("alder", 6, split="train").round(2).tolist()
    [0.34, 0.23, 0.18, 0.14, 0.05, 0.05]
    """
    rare = 0 if classes < 3 else min(2, classes - 2)
    generator = make_generator("mix", site)
    seldom = generator.uniform(0.04, 0.06, 2)[:rare]
    shuffled = tuple(generator.permutation(6))
    order = [place for place in _ORDERS.get(site, shuffled) if place < classes - rare]
    common = np.empty(classes - rare)
    common[order] = _FALLING[: classes - rare]
    shares = np.concatenate([common / common.sum() * (1 - seldom.sum()), seldom])
    return shares if split == "train" else 2 / 3 * shares + 1 / 3 / classes


def blend_appearances(first: Appearance, second: Appearance, share: float) -> Appearance:
    """Interpolate between two appearances: `share` of the first, the rest of the second."""

    def between(name: str) -> Any:
        mixed = share * np.array(getattr(first, name)) + (1 - share) * np.array(getattr(second, name))
        return tuple(mixed) if mixed.ndim else float(mixed)

    return Appearance(**{field.name: between(field.name) for field in fields(Appearance)})


def _draw_appearance(
    generator: np.random.Generator, classes: tuple[str, ...], label: int, *, ambiguous: bool
) -> Appearance:
    def draw_form(number: int) -> Appearance:
        forms = APPEARANCES[classes[number]]
        return forms[int(generator.integers(len(forms)))]

    appearance = draw_form(label)
    if ambiguous:
        other = int(generator.integers(len(classes) - 1))
        appearance = blend_appearances(
            appearance, draw_form(other + (other >= label)), generator.uniform(0.68, 0.88)
        )
    return _vary(generator, appearance)


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


def _draw_skin(skin: Canvas, darkness: float) -> Field:
    tone = np.clip(skin.generator.normal(darkness, 0.15), 0.0, 1.0)
    colour = (1 - tone) * _FAIR + tone * _DARK
    image: Field = colour[:, None, None] * (1 + 0.035 * skin.noise(2) + 0.02 * skin.noise(14))
    return image


def _draw_lesion(skin: Canvas, image: Field, traits: Appearance) -> Field:
    u, v = skin.x / np.sqrt(traits.long), skin.y * np.sqrt(traits.long)
    angle, generator = np.arctan2(v, u), skin.generator
    border = np.ones_like(angle)
    for turns in range(2, 10):
        strength = (traits.lobed * 2 / turns if turns < 5 else traits.jagged) * generator.normal()
        border = border + strength * np.cos(turns * angle + generator.uniform(0, 2 * np.pi))
    depth = 1 - np.hypot(u, v) / (traits.radius * np.clip(border, 0.5, 1.6))
    body = _Lesion(generator, skin.x, skin.y, depth, traits).draw_body()
    image = paint(image, _PALE, 0.7 * traits.halo * soft_step(depth + 0.6, width=0.25))
    image = paint(image, body, soft_step(depth, width=max(traits.soft, 2 * skin.pixel)))
    rays = np.cos(angle * int(generator.integers(9, 15)) + generator.uniform(0, 6)) > 0.2
    ring = draw_line(depth + 0.02, width=0.16) * rays
    return paint(image, np.array(traits.second) * 0.7, ring * traits.streaks)


@dataclass(frozen=True)
class _Lesion(Canvas):
    """A lesion to paint on: its coordinates, and the depth inside its border (0 there, 1 at the centre)."""

    depth: Field
    traits: Appearance

    @property
    def dark(self) -> Field:
        """Return a dark shade of the lesion's colour for lines."""
        return np.array(self.traits.second) * 0.55

    def draw_body(self) -> Field:
        """Draw the colours of the lesion, [3, H, W], and the structures of its appearance on them."""
        traits = self.traits
        side = traits.lopsided * (self.x / traits.radius)
        second = soft_step(traits.patchy * self.noise(4) + side - 0.25, width=0.8) * min(1.0, traits.patchy + 0.3)
        colour = np.array(traits.colour)[:, None, None] * (1.04 - 0.14 * np.clip(self.depth, 0, 1))
        body = paint(colour, np.array(traits.second), second)
        for trait, draw in _STRUCTURES.items():
            strength = getattr(traits, trait)
            if strength > _VISIBLE:
                for tint, cover in draw(self):
                    body = paint(body, tint, cover * strength)
        return body

    def middle(self) -> Field:
        return self.spots(np.zeros((1, 2)), np.array([0.55 * self.traits.radius]))

    def dots(self, count: int, radius: float) -> Field:
        places = self.places(count, radius=0.85 * self.traits.radius)
        return self.spots(places, max(radius, 0.8 * self.pixel) * self.generator.uniform(0.75, 1.25, count))

    def network(self) -> Field:
        wave = 2 * np.pi / 0.3
        mesh = np.maximum(np.cos(wave * self.x + 0.5 * self.noise(4)), np.cos(wave * self.y + 0.5 * self.noise(4)))
        return soft_step(mesh - 0.55, width=0.6)

    def spokes(self) -> Field:
        count, start = int(self.generator.integers(6, 9)), self.generator.uniform(0, 2 * np.pi)
        return soft_step(np.cos(np.arctan2(self.y, self.x) * count + start) - 0.3, width=0.6)


def _draw_ridges(lesion: _Lesion) -> list[tuple[Field, Field]]:
    wave = np.cos(2 * np.pi / 0.36 * lesion.y + 1.2 * lesion.noise(3))
    return [(lesion.dark, 0.7 * soft_step(-wave, width=0.8)), (_STRAW, 0.3 * soft_step(wave, width=0.8))]


# From bottom to top, by trait of the appearance: colours and where they cover the lesion.
_STRUCTURES: dict[str, Callable[[_Lesion], list[tuple[Field, Field]]]] = {
    "network": lambda lesion: [(lesion.dark, 0.75 * lesion.network())],
    "ridges": _draw_ridges,
    "veil": lambda lesion: [(_VEIL, soft_step(lesion.noise(3) + 0.6 * lesion.depth - 0.5, width=0.8))],
    "scar": lambda lesion: [(_PALE, 0.8 * lesion.middle())],
    "crust": lambda lesion: [(_CRUST, 0.8 * lesion.middle())],
    "vessels": lambda lesion: [(_RED, 0.7 * draw_line(lesion.noise(5), width=0.28))],
    "scaly": lambda lesion: [
        (_STRAW, 0.9 * soft_step(0.8 * lesion.noise(8) + 2.5 * lesion.depth - 0.9, width=0.8))
    ],
    "spokes": lambda lesion: [(_SLATE, 0.65 * lesion.spokes())],
    "rim": lambda lesion: [(lesion.dark, 0.75 * draw_line(lesion.depth - 0.12, width=0.13))],
    "lakes": lambda lesion: [(_PURPLE, lesion.dots(6, 0.15))],
    "clods": lambda lesion: [(_BLACK, lesion.dots(8, 0.065))],
    "pearls": lambda lesion: [(_PALE, lesion.dots(9, 0.065))],
}


def _draw_artefacts(canvas: Canvas, image: Field) -> Field:
    bubbles, ruler = canvas.generator.random(2)
    if bubbles < 0.2:
        rim = draw_line(canvas.distances(canvas.places(3, radius=1.1)) - 0.13, width=0.05).max(axis=0)
        image = paint(image, _PALE, 0.6 * rim)
    if ruler < 0.15:
        along = canvas.rotate(canvas.generator.uniform(0, 2 * np.pi))
        ticks = draw_line(along.y - 0.85, width=0.12) * (np.cos(along.x * 2 * np.pi / 0.25) > 0.3)
        image = paint(image, _BLACK, 0.6 * ticks)
    return image


def _draw_hairs(canvas: Canvas, image: Field, mean: float) -> Field:
    generator = canvas.generator
    for _ in range(min(5, int(generator.poisson(mean)))):
        along = canvas.rotate(generator.uniform(0, np.pi))
        course = along.y - generator.uniform(-0.9, 0.9) - generator.normal(0, 0.12) * along.x**2
        image = paint(image, _BLACK, 0.7 * draw_line(course, width=max(0.022, 0.55 / len(image[0]))))
    return image
