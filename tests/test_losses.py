import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from feal.losses import inverse_weight, prior_weight

counts = st.lists(st.integers(0, 10**6), min_size=2, max_size=10).filter(any)


@given(counts)
def test_prior(number: list[int]) -> None:
    weight = prior_weight(torch.tensor(number)).tolist()
    assert weight == pytest.approx([2 - n / sum(number) for n in number])


@given(counts)
def test_inverse(number: list[int]) -> None:
    weight = inverse_weight(torch.tensor(number)).tolist()
    present = [n for n in number if n]
    mean = sum(1 / n for n in present) / len(present)
    assert weight == pytest.approx([min(5, 1 / max(n, 1) / mean) for n in number])
    assert all(0 < w <= 5 for w in weight)


def test_inverse_has_mean_one_where_the_cap_does_not_bite() -> None:
    weight = inverse_weight(torch.tensor([10, 20, 0, 40]))
    assert float(weight[[0, 1, 3]].mean()) == pytest.approx(1)
    assert weight.dtype == torch.float64


def test_inverse_is_capped() -> None:
    weight = inverse_weight(torch.tensor([1, *[10**4] * 7]))
    assert float(weight[0]) == 5
    assert bool((weight[1:] < 0.01).all())


def test_the_counts_are_left_alone() -> None:
    number = torch.tensor([3.0, 1.0, 0.0], dtype=torch.float64)
    for function in (prior_weight, inverse_weight):
        function(number)
    assert number.tolist() == [3, 1, 0]


@pytest.mark.parametrize("function", [prior_weight, inverse_weight])
@pytest.mark.parametrize(
    ("number", "message"),
    [
        ([0, 0], "all 0"),
        ([3, -1], "not negative"),
        ([1.0, float("inf")], "finite"),
        ([[1, 2]], "one number a class"),
    ],
)
def test_counts_that_say_nothing(function, number: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        function(torch.tensor(number))
