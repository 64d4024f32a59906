"""Colours as people see them who lack a kind of cone."""

from itertools import combinations

import numpy as np
import pytest

from feal.analysis.plots.theme import SHAPES, arm_colour, site_colours, style_series
from feal.selection import STRATEGIES

STRATEGY = {name: arm_colour(name) for name in (*STRATEGIES.names(), "full")}
SITE = site_colours([f"site {number}" for number in range(6)])

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
SEEN = {
    "all cones": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}


def _linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[start : start + 2], 16) for start in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def _lab(linear: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of linear sRGB under D65."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(np.maximum(to_xyz @ linear.clip(0, 1) / [0.9505, 1.0, 1.089], 0.008856))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def _apart(one: str, other: str, eyes: str) -> float:
    """CIE 1976 distance, of which 2.3 is just seen side by side."""
    return float(np.linalg.norm(_lab(SEEN[eyes] @ _linear(one)) - _lab(SEEN[eyes] @ _linear(other))))


@pytest.mark.parametrize("eyes", SEEN)
def test_strategies_and_sites_can_be_told_apart(eyes: str) -> None:
    for colours in (STRATEGY, SITE):
        near = {
            (one, other): round(_apart(colours[one], colours[other], eyes), 1)
            for one, other in combinations(colours, 2)
            if _apart(colours[one], colours[other], eyes) < 10
        }
        assert near == {}


def test_the_measure_itself_tells_red_and_green_apart_only_for_those_who_can() -> None:
    assert _apart("#D04040", "#6E8A20", "all cones") > 60
    assert _apart("#D04040", "#6E8A20", "deuteranopia") < 25
    assert _lab(_linear("#FFFFFF")) == pytest.approx([100, 0, 0], abs=0.1)
    # Of the standard's own conversion: pure red.
    assert _lab(_linear("#FF0000")) == pytest.approx([53.2, 80.1, 67.2], abs=0.3)


@pytest.mark.parametrize("arm", ["entropy global", "entropy local plain", "entropy, strategy.n=3"])
def test_a_strategy_keeps_its_colour_whatever_it_is_combined_with(arm: str) -> None:
    assert arm_colour(arm) == arm_colour("entropy")


def test_up_to_eight_series_have_a_marker_each_and_the_strategys_colour() -> None:
    names = [
        "feal", "random", "entropy global", "entropy local", "badge global", "badge local", "logo", "own",
    ]  # fmt: skip
    found = style_series(names)
    assert len({style.shape for style in found.values()}) == len(names) == len(SHAPES)
    assert {name: style.colour for name, style in found.items()} == {name: arm_colour(name) for name in names}


def test_more_of_one_colour_are_still_apart() -> None:
    losses = [f"{name} {loss}" for name in ("entropy", "badge", "feal") for loss in "abcdef"]
    for one, other in combinations(style_series(losses).values(), 2):
        assert (one.colour, one.shape) != (other.colour, other.shape)
