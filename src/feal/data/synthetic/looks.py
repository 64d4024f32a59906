"""What the classes of skin lesions look like, and how often each centre sees them."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from feal.data.synthetic.fields import addressed

Colour = tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class Look:
    """Traits of a lesion; strengths are about 0 to 1, lengths in half picture widths.

    `colour` and `second` mix in patches as `patchy` says; `veil` is a blue-white haze, `scar` a pale middle,
    `scaly` white flakes, `pearls` small white and `clods` small dark dots, `lakes` round purple pools,
    `ridges` parallel stripes, `halo` a pale ring around, `crust` a dark red middle, `spokes` lines from
    the middle outwards, `rim` a dark line along the border.
    """

    colour: Colour
    second: Colour
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


# Common classes come in several forms, so that a few labels do not show all there is.
LOOKS = {
    "nevus": (
        Look(colour=(0.52, 0.34, 0.23), second=(0.42, 0.26, 0.18), radius=0.47, patchy=0.3, network=0.95),
        Look(colour=(0.60, 0.41, 0.30), second=(0.50, 0.32, 0.22), radius=0.44, soft=0.15, clods=0.95),
        Look(colour=(0.52, 0.34, 0.24), second=(0.44, 0.28, 0.20), radius=0.36, patchy=0.2, halo=0.95),
    ),
    "melanoma": (
        Look(
            colour=(0.45, 0.29, 0.22), second=(0.30, 0.19, 0.17), radius=0.53, long=1.25, lobed=0.11,
            jagged=0.03, lopsided=0.5, patchy=0.7, streaks=0.8, veil=0.8,
        ),
        Look(
            colour=(0.62, 0.44, 0.32), second=(0.26, 0.17, 0.14), radius=0.57, long=1.35, lobed=0.13,
            jagged=0.02, lopsided=0.9, patchy=0.9, soft=0.15,
        ),
        Look(
            colour=(0.20, 0.16, 0.22), second=(0.12, 0.10, 0.15), radius=0.46, lobed=0.07, soft=0.1,
            patchy=0.6, veil=0.4,
        ),
    ),
    "basal-cell": (
        Look(
            colour=(0.78, 0.58, 0.54), second=(0.64, 0.47, 0.47), lobed=0.08, soft=0.18, patchy=0.4,
            vessels=0.95,
        ),
        Look(colour=(0.80, 0.60, 0.55), second=(0.68, 0.50, 0.48), lobed=0.06, soft=0.12, crust=0.95),
        Look(colour=(0.76, 0.56, 0.52), second=(0.62, 0.46, 0.46), lobed=0.08, soft=0.15, spokes=0.95),
    ),
    "keratosis": (
        Look(
            colour=(0.58, 0.43, 0.28), second=(0.46, 0.33, 0.21), radius=0.51, long=1.2, lobed=0.07,
            soft=0.08, patchy=0.35, pearls=0.95,
        ),
        Look(
            colour=(0.68, 0.52, 0.34), second=(0.56, 0.42, 0.27), radius=0.53, long=1.3, lobed=0.07,
            soft=0.08, ridges=0.95,
        ),
        Look(
            colour=(0.72, 0.55, 0.40), second=(0.62, 0.46, 0.32), radius=0.5, lobed=0.12, jagged=0.03,
            soft=0.06, rim=0.95,
        ),
    ),
    "actinic": (
        Look(
            colour=(0.78, 0.34, 0.28), second=(0.70, 0.28, 0.24), radius=0.54, lobed=0.09, jagged=0.03,
            soft=0.2, patchy=0.4, scaly=0.95,
        ),
    ),
    "vascular": (
        Look(
            colour=(0.68, 0.38, 0.36), second=(0.58, 0.32, 0.34), radius=0.45, soft=0.1, patchy=0.3,
            lakes=0.95,
        ),
    ),
    "dermatofibroma": (
        Look(
            colour=(0.58, 0.41, 0.32), second=(0.50, 0.33, 0.26), radius=0.44, soft=0.16, network=0.35,
            scar=0.95,
        ),
    ),
    "squamous": (
        Look(
            colour=(0.72, 0.42, 0.37), second=(0.60, 0.30, 0.28), radius=0.49, lobed=0.11, jagged=0.05,
            soft=0.1, patchy=0.4, scar=0.7, streaks=0.7,
        ),
    ),
}  # fmt: skip

CLASSES = tuple(LOOKS)

# Shares of the common classes from the most frequent on; which class is which differs from centre to centre.
_FALLING = (0.38, 0.26, 0.20, 0.16, 0.13, 0.10)
_ORDERS = {
    "alder": (0, 1, 2, 3, 4, 5),
    "birch": (0, 3, 1, 2, 5, 4),
    "cedar": (2, 0, 3, 1, 4, 5),
    "dogwood": (1, 2, 0, 3, 5, 4),
}


def blend(first: Look, second: Look, share: float) -> Look:
    """A look between two: `share` of the first, the rest of the second."""

    def between(name: str) -> float | Colour:
        a, b = np.array(getattr(first, name)), np.array(getattr(second, name))
        mixed = share * a + (1 - share) * b
        return tuple(mixed) if mixed.ndim else float(mixed)

    return Look(**{field.name: between(field.name) for field in fields(Look)})  # type: ignore[arg-type]


def mix(site: str, classes: int, *, split: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The share of each class among a centre's patients, [classes]; the last classes are rare, 2 to 6 %.

    A third of the test part is spread evenly over the classes: with the centre's own mix, the recall of a rare
    class would rest on a handful of samples.

    >>> mix("alder", 6, split="train").round(2).tolist()
    [0.34, 0.23, 0.18, 0.14, 0.05, 0.05]
    """
    rare = 0 if classes < 3 else min(2, classes - 2)
    generator = addressed("mix", site)
    seldom = generator.uniform(0.04, 0.06, 2)[:rare]
    shuffled = tuple(generator.permutation(6))
    order = [place for place in _ORDERS.get(site, shuffled) if place < classes - rare]
    common = np.empty(classes - rare)
    common[order] = _FALLING[: classes - rare]
    shares = np.concatenate([common / common.sum() * (1 - seldom.sum()), seldom])
    return shares if split == "train" else 2 / 3 * shares + 1 / 3 / classes
