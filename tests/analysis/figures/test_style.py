from itertools import combinations

from feal.analysis.colours import colour_of
from feal.analysis.figures.style import MARKERS, SYMBOLS, looks


def test_up_to_eight_series_have_a_marker_each_and_the_strategys_colour() -> None:
    names = [
        "feal", "random", "entropy global", "entropy local", "badge global", "badge local", "logo", "own",
    ]  # fmt: skip
    found = looks(names)
    assert len({look.marker for look in found.values()}) == len(names) == len(SYMBOLS) == len(MARKERS)
    assert {name: look.colour for name, look in found.items()} == {name: colour_of(name) for name in names}


def test_more_of_one_colour_are_still_apart() -> None:
    losses = [f"{name} {loss}" for name in ("entropy", "badge", "feal") for loss in "abcdef"]
    for one, other in combinations(looks(losses).values(), 2):
        assert (one.colour, one.marker) != (other.colour, other.marker)
