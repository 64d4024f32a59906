import pytest
from hypothesis import given
from hypothesis import strategies as st

from feal.federation.querying import allowance, label_limit
from feal.settings import Settings


def _settings(**changes: object) -> Settings:
    return Settings(dataset="d", model="m", **changes)


@pytest.mark.parametrize(
    ("budget", "cap", "samples", "asked", "expected"),
    [
        (10, 0.85, 100, 0, 10),
        (10, 0.85, 100, 80, 5),
        (10, 0.85, 100, 85, 0),
        (10, 1.0, 7, 0, 7),
        (0.1, 0.85, 99, 0, 9),
        (0.29, 1.0, 100, 0, 29),
        (0.001, 0.85, 100, 0, 0),
        (500, 0.85, 20, 0, 17),
        (3, 0.85, 1, 0, 1),
    ],
)
def test_allowance(budget: float, cap: float, samples: int, asked: int, expected: int) -> None:
    assert allowance(_settings(budget=budget, cap=cap), samples=samples, asked=asked) == expected


@given(st.integers(1, 50), st.floats(0.05, 1.0), st.integers(1, 400))
def test_asking_again_and_again_ends_at_the_cap(budget: int, cap: float, samples: int) -> None:
    settings = _settings(budget=budget, cap=cap)
    asked = 0
    while now := allowance(settings, samples=samples, asked=asked):
        assert now <= budget
        asked += now
    assert asked == label_limit(settings, samples=samples) <= samples
