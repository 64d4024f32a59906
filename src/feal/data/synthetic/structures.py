"""What dermoscopy shows inside a lesion: network, dots, vessels, scale and the like, one painter each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feal.data.synthetic.fields import Field, in_disc, line, noise, painted, spots, step
from feal.data.synthetic.looks import Look

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

# Fainter traits are left out: nobody would see them, and drawing them takes half the time.
_VISIBLE = 0.06


@dataclass(frozen=True, kw_only=True)
class Lesion:
    """A lesion to paint on: its coordinates [H, W], the depth below its border (0 there, 1 in the middle)."""

    x: Field
    y: Field
    depth: Field
    look: Look

    @property
    def pixel(self) -> float:
        """The width of a pixel."""
        return 2 / len(self.x)

    @property
    def dark(self) -> NDArray[np.float64]:
        """A shade of the lesion's own colour for lines."""
        return np.array(self.look.second) * 0.55


Layers = Iterator[tuple[NDArray[np.float64], Field]]
Painter = Callable[[np.random.Generator, Lesion], Layers]


def structures(generator: np.random.Generator, body: Field, lesion: Lesion) -> Field:
    """The lesion's body [3, H, W] with all that its look asks for, as strongly as it asks."""
    for trait, painter in _PAINTERS.items():
        strength = getattr(lesion.look, trait)
        if strength > _VISIBLE:
            for colour, cover in painter(generator, lesion):
                body = painted(body, colour, cover * strength)
    return body


def _network(generator: np.random.Generator, lesion: Lesion) -> Layers:
    wave = 2 * np.pi / 0.3
    bent_x = wave * lesion.x + 0.5 * noise(generator, lesion.x, lesion.y, cells=4)
    bent_y = wave * lesion.y + 0.5 * noise(generator, lesion.x, lesion.y, cells=4)
    mesh = np.maximum(np.cos(bent_x), np.cos(bent_y))
    yield lesion.dark, 0.75 * step(mesh - 0.55, width=0.6)


def _ridges(generator: np.random.Generator, lesion: Lesion) -> Layers:
    bend = 1.2 * noise(generator, lesion.x, lesion.y, cells=3)
    stripes = np.cos(2 * np.pi / 0.36 * lesion.y + bend)
    yield lesion.dark, 0.7 * step(-stripes, width=0.8)
    yield STRAW, 0.3 * step(stripes, width=0.8)


def _veil(generator: np.random.Generator, lesion: Lesion) -> Layers:
    haze = noise(generator, lesion.x, lesion.y, cells=3) + 0.6 * lesion.depth
    yield VEIL, step(haze - 0.5, width=0.8)


def _scar(_: np.random.Generator, lesion: Lesion) -> Layers:
    yield PALE, 0.8 * _middle(lesion)


def _crust(_: np.random.Generator, lesion: Lesion) -> Layers:
    yield CRUST, 0.8 * _middle(lesion)


def _vessels(generator: np.random.Generator, lesion: Lesion) -> Layers:
    yield RED, 0.7 * line(noise(generator, lesion.x, lesion.y, cells=5), width=0.28)


def _scaly(generator: np.random.Generator, lesion: Lesion) -> Layers:
    plates = 0.8 * noise(generator, lesion.x, lesion.y, cells=8) + 2.5 * lesion.depth
    yield STRAW, 0.9 * step(plates - 0.9, width=0.8)


def _spokes(generator: np.random.Generator, lesion: Lesion) -> Layers:
    turn = np.arctan2(lesion.y, lesion.x) * int(generator.integers(6, 9)) + generator.uniform(0, 2 * np.pi)
    yield SLATE, 0.65 * step(np.cos(turn) - 0.3, width=0.6)


def _rim(_: np.random.Generator, lesion: Lesion) -> Layers:
    yield lesion.dark, 0.75 * line(lesion.depth - 0.12, width=0.13)


def _dots(colour: NDArray[np.float64], *, count: int, radius: float) -> Painter:
    def paint(generator: np.random.Generator, lesion: Lesion) -> Layers:
        places = in_disc(generator, count, radius=0.85 * lesion.look.radius)
        radii = max(radius, 0.8 * lesion.pixel) * generator.uniform(0.75, 1.25, count)
        yield colour, spots(lesion.x, lesion.y, places=places, radii=radii)

    return paint


def _middle(lesion: Lesion) -> Field:
    return spots(lesion.x, lesion.y, places=np.zeros((1, 2)), radii=np.array([0.55 * lesion.look.radius]))


# From the bottom to the top; the names are traits of a look.
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
