"""Define the appearance and the frequency of each class of skin lesions, and paint their structures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from feal.data.synthetic.drawing import (
    Field,
    draw_line,
    draw_noise,
    draw_spots,
    make_generator,
    paint,
    sample_disc,
    soft_step,
)

Tint = tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
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
        Appearance(colour=(0.52, 0.34, 0.23), second=(0.42, 0.26, 0.18), radius=0.47, patchy=0.3, network=0.95),
        Appearance(colour=(0.60, 0.41, 0.30), second=(0.50, 0.32, 0.22), radius=0.44, soft=0.15, clods=0.95),
        Appearance(colour=(0.52, 0.34, 0.24), second=(0.44, 0.28, 0.20), radius=0.36, patchy=0.2, halo=0.95),
    ),
    "melanoma": (
        Appearance(
            colour=(0.45, 0.29, 0.22), second=(0.30, 0.19, 0.17), radius=0.53, long=1.25, lobed=0.11,
            jagged=0.03, lopsided=0.5, patchy=0.7, streaks=0.8, veil=0.8,
        ),
        Appearance(
            colour=(0.62, 0.44, 0.32), second=(0.26, 0.17, 0.14), radius=0.57, long=1.35, lobed=0.13,
            jagged=0.02, lopsided=0.9, patchy=0.9, soft=0.15,
        ),
        Appearance(
            colour=(0.20, 0.16, 0.22), second=(0.12, 0.10, 0.15), radius=0.46, lobed=0.07, soft=0.1,
            patchy=0.6, veil=0.4,
        ),
    ),
    "basal-cell": (
        Appearance(
            colour=(0.78, 0.58, 0.54), second=(0.64, 0.47, 0.47), lobed=0.08, soft=0.18, patchy=0.4,
            vessels=0.95,
        ),
        Appearance(colour=(0.80, 0.60, 0.55), second=(0.68, 0.50, 0.48), lobed=0.06, soft=0.12, crust=0.95),
        Appearance(colour=(0.76, 0.56, 0.52), second=(0.62, 0.46, 0.46), lobed=0.08, soft=0.15, spokes=0.95),
    ),
    "keratosis": (
        Appearance(
            colour=(0.58, 0.43, 0.28), second=(0.46, 0.33, 0.21), radius=0.51, long=1.2, lobed=0.07,
            soft=0.08, patchy=0.35, pearls=0.95,
        ),
        Appearance(
            colour=(0.68, 0.52, 0.34), second=(0.56, 0.42, 0.27), radius=0.53, long=1.3, lobed=0.07,
            soft=0.08, ridges=0.95,
        ),
        Appearance(
            colour=(0.72, 0.55, 0.40), second=(0.62, 0.46, 0.32), radius=0.5, lobed=0.12, jagged=0.03,
            soft=0.06, rim=0.95,
        ),
    ),
    "actinic": (
        Appearance(
            colour=(0.78, 0.34, 0.28), second=(0.70, 0.28, 0.24), radius=0.54, lobed=0.09, jagged=0.03,
            soft=0.2, patchy=0.4, scaly=0.95,
        ),
    ),
    "vascular": (
        Appearance(
            colour=(0.68, 0.38, 0.36), second=(0.58, 0.32, 0.34), radius=0.45, soft=0.1, patchy=0.3,
            lakes=0.95,
        ),
    ),
    "dermatofibroma": (
        Appearance(
            colour=(0.58, 0.41, 0.32), second=(0.50, 0.33, 0.26), radius=0.44, soft=0.16, network=0.35,
            scar=0.95,
        ),
    ),
    "squamous": (
        Appearance(
            colour=(0.72, 0.42, 0.37), second=(0.60, 0.30, 0.28), radius=0.49, lobed=0.11, jagged=0.05,
            soft=0.1, patchy=0.4, scar=0.7, streaks=0.7,
        ),
    ),
}  # fmt: skip

CLASSES = tuple(APPEARANCES)

# Shares of the common classes, the most frequent first; their order differs between sites.
_FALLING = (0.38, 0.26, 0.20, 0.16, 0.13, 0.10)
_ORDERS = {
    "alder": (0, 1, 2, 3, 4, 5),
    "birch": (0, 3, 1, 2, 5, 4),
    "cedar": (2, 0, 3, 1, 4, 5),
    "dogwood": (1, 2, 0, 3, 5, 4),
}


def blend_appearances(first: Appearance, second: Appearance, share: float) -> Appearance:
    """Interpolate between two appearances: `share` of the first, the rest of the second."""

    def between(name: str) -> float | Tint:
        a, b = np.array(getattr(first, name)), np.array(getattr(second, name))
        mixed = share * a + (1 - share) * b
        return tuple(mixed) if mixed.ndim else float(mixed)

    return Appearance(**{field.name: between(field.name) for field in fields(Appearance)})  # type: ignore[arg-type]


def class_shares(site: str, classes: int, *, split: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
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


VEIL, PALE, RED, PURPLE, CRUST, STRAW, SLATE, BLACK = (
    np.array(rgb)
    for rgb in (
        (0.48, 0.52, 0.62),
        (0.95, 0.88, 0.84),
        (0.72, 0.16, 0.16),
        (0.38, 0.08, 0.20),
        (0.35, 0.10, 0.08),
        (0.94, 0.84, 0.48),
        (0.40, 0.38, 0.44),
        (0.14, 0.10, 0.09),
    )
)

# Fainter traits are invisible and not drawn, which halves the time.
_VISIBLE = 0.06


@dataclass(frozen=True, kw_only=True)
class Lesion:
    """A lesion to paint on: its coordinates [H, W] and the depth inside its border (0 there, 1 at the centre)."""

    x: Field
    y: Field
    depth: Field
    appearance: Appearance

    @property
    def pixel(self) -> float:
        """Return the width of a pixel."""
        return 2 / len(self.x)

    @property
    def dark(self) -> NDArray[np.float64]:
        """Return a dark shade of the lesion's colour for lines."""
        return np.array(self.appearance.second) * 0.55


Layers = Iterator[tuple[NDArray[np.float64], Field]]
Painter = Callable[[np.random.Generator, Lesion], Layers]


def paint_structures(generator: np.random.Generator, body: Field, lesion: Lesion) -> Field:
    """Paint the structures of the lesion's appearance on its body [3, H, W]."""
    for trait, painter in _PAINTERS.items():
        strength = getattr(lesion.appearance, trait)
        if strength > _VISIBLE:
            for colour, cover in painter(generator, lesion):
                body = paint(body, colour, cover * strength)
    return body


def _network(generator: np.random.Generator, lesion: Lesion) -> Layers:
    wave = 2 * np.pi / 0.3
    bent_x = wave * lesion.x + 0.5 * draw_noise(generator, lesion.x, lesion.y, cells=4)
    bent_y = wave * lesion.y + 0.5 * draw_noise(generator, lesion.x, lesion.y, cells=4)
    mesh = np.maximum(np.cos(bent_x), np.cos(bent_y))
    yield lesion.dark, 0.75 * soft_step(mesh - 0.55, width=0.6)


def _ridges(generator: np.random.Generator, lesion: Lesion) -> Layers:
    bend = 1.2 * draw_noise(generator, lesion.x, lesion.y, cells=3)
    stripes = np.cos(2 * np.pi / 0.36 * lesion.y + bend)
    yield lesion.dark, 0.7 * soft_step(-stripes, width=0.8)
    yield STRAW, 0.3 * soft_step(stripes, width=0.8)


def _veil(generator: np.random.Generator, lesion: Lesion) -> Layers:
    haze = draw_noise(generator, lesion.x, lesion.y, cells=3) + 0.6 * lesion.depth
    yield VEIL, soft_step(haze - 0.5, width=0.8)


def _scar(_: np.random.Generator, lesion: Lesion) -> Layers:
    yield PALE, 0.8 * _middle(lesion)


def _crust(_: np.random.Generator, lesion: Lesion) -> Layers:
    yield CRUST, 0.8 * _middle(lesion)


def _vessels(generator: np.random.Generator, lesion: Lesion) -> Layers:
    yield RED, 0.7 * draw_line(draw_noise(generator, lesion.x, lesion.y, cells=5), width=0.28)


def _scaly(generator: np.random.Generator, lesion: Lesion) -> Layers:
    plates = 0.8 * draw_noise(generator, lesion.x, lesion.y, cells=8) + 2.5 * lesion.depth
    yield STRAW, 0.9 * soft_step(plates - 0.9, width=0.8)


def _spokes(generator: np.random.Generator, lesion: Lesion) -> Layers:
    turn = np.arctan2(lesion.y, lesion.x) * int(generator.integers(6, 9)) + generator.uniform(0, 2 * np.pi)
    yield SLATE, 0.65 * soft_step(np.cos(turn) - 0.3, width=0.6)


def _rim(_: np.random.Generator, lesion: Lesion) -> Layers:
    yield lesion.dark, 0.75 * draw_line(lesion.depth - 0.12, width=0.13)


def _dots(colour: NDArray[np.float64], *, count: int, radius: float) -> Painter:
    def paint(generator: np.random.Generator, lesion: Lesion) -> Layers:
        places = sample_disc(generator, count, radius=0.85 * lesion.appearance.radius)
        radii = max(radius, 0.8 * lesion.pixel) * generator.uniform(0.75, 1.25, count)
        yield colour, draw_spots(lesion.x, lesion.y, places=places, radii=radii)

    return paint


def _middle(lesion: Lesion) -> Field:
    return draw_spots(
        lesion.x, lesion.y, places=np.zeros((1, 2)), radii=np.array([0.55 * lesion.appearance.radius])
    )


# From bottom to top, by trait of the appearance.
_PAINTERS: dict[str, Painter] = {
    "network": _network,
    "ridges": _ridges,
    "veil": _veil,
    "scar": _scar,
    "crust": _crust,
    "vessels": _vessels,
    "scaly": _scaly,
    "spokes": _spokes,
    "rim": _rim,
    "lakes": _dots(PURPLE, count=6, radius=0.15),
    "clods": _dots(BLACK, count=8, radius=0.065),
    "pearls": _dots(PALE, count=9, radius=0.065),
}
