"""Colours that colour-blind readers can tell apart, the same for a strategy everywhere."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import cycle

# Okabe and Ito's set, then darker and lighter ones of Paul Tol's "muted": apart under all common deficiencies.
_OF_STRATEGY = {
    "feal": "#D55E00",
    "random": "#6E6E6E",
    "entropy": "#0072B2",
    "badge": "#009E73",
    "coreset": "#E69F00",
    "logo": "#CC79A7",
    "kafal": "#56B4E9",
    "strata": "#882255",
    "gradnorm": "#999933",
    "tod": "#332288",
    "full": "#000000",
}
_OTHERS = ("#44AA99", "#AA4499", "#117733", "#88CCEE", "#DDCC77", "#CC6677")

_OF_SITES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#332288", "#999933", "#882255")


def site_colours(sites: Sequence[str]) -> dict[str, str]:
    """A colour for each site, by its place in the order of names; they come again after nine.

    >>> site_colours(["birch", "alder"])
    {'alder': '#0072B2', 'birch': '#D55E00'}
    """
    return dict(zip(sorted(sites), cycle(_OF_SITES), strict=False))


def colour_of(arm: str) -> str:
    """The colour of an arm: that of the strategy it begins with; one of one's own keeps one by its name.

    >>> colour_of("feal"), colour_of("entropy local"), colour_of("entropy global plain")
    ('#D55E00', '#0072B2', '#0072B2')
    """
    strategy = arm.split()[0].rstrip(",") if arm.split() else arm
    if strategy in _OF_STRATEGY:
        return _OF_STRATEGY[strategy]
    return _OTHERS[hashlib.sha256(strategy.encode()).digest()[0] % len(_OTHERS)]
