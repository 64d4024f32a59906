"""Class weights, targets, Dice and the plain losses, against numpy and scipy."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax

from feal.losses import (
    BalancedCrossEntropy,
    PlainCrossEntropy,
    PlainDice,
    class_index,
    full_precision,
    inverse_weight,
    prior_weight,
    soft_dice,
)

COUNTS = st.lists(st.integers(0, 10**6), min_size=2, max_size=10).filter(any)


@given(COUNTS)
def test_prior(number: list[int]) -> None:
    weight = prior_weight(torch.tensor(number)).tolist()
    assert weight == pytest.approx([2 - n / sum(number) for n in number])


@given(COUNTS)
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


@pytest.mark.parametrize("shape", [(2, 4, 5), (2, 1, 4, 5)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_both_forms_of_a_map(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    index = class_index(torch.zeros(2, 3, 4, 5), torch.full(shape, 2, dtype=dtype))
    assert index.shape == (2, 1, 4, 5)
    assert index.dtype == torch.int64
    assert bool((index == 2).all())


def test_samples() -> None:
    assert class_index(torch.zeros(2, 3), torch.tensor([1, 2])).tolist() == [[1], [2]]
    assert class_index(torch.zeros(2, 3), torch.tensor([[1], [2]])).tolist() == [[1], [2]]


@pytest.mark.parametrize(
    ("logits", "target", "message"),
    [
        (torch.zeros(3), torch.tensor([0]), r"\[N, C, ...\] .* got \[3\]"),
        (torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), "at least one sample"),
        (torch.zeros(2, 3), torch.tensor([0.0, 1.0]), "integer classes, got torch.float32"),
        (torch.zeros(2, 3), torch.tensor([0, 1, 2]), r"\[3\] does not fit logits of \[2, 3\]"),
        (torch.zeros(2, 3), torch.tensor(0), r"\[\] does not fit"),
        (torch.zeros(2, 3, 4, 4), torch.zeros(2, 2, 4, 4, dtype=torch.long), "does not fit"),
        (torch.zeros(2, 3), torch.tensor([0, 3]), "class 3, but there are only classes 0 to 2"),
        (torch.zeros(2, 3), torch.tensor([-1, 2]), "class -1, but"),
    ],
)
def test_what_does_not_fit_is_said(logits: torch.Tensor, target: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        class_index(logits, target)


def test_precision() -> None:
    for dtype in (torch.float32, torch.float64):
        assert full_precision(torch.zeros(1, dtype=dtype)).dtype == dtype
    assert full_precision(torch.zeros(1, dtype=torch.float16)).dtype == torch.float32


@pytest.mark.parametrize("with_spread", [False, True])
def test_numpy_agrees(with_spread: bool) -> None:
    generator = np.random.default_rng(0)
    probability = generator.dirichlet(np.ones(3), (2, 4, 5)).transpose(0, 3, 1, 2)
    label = generator.integers(0, 3, (2, 4, 5))
    spread = generator.random((2, 3, 4, 5)) if with_spread else None
    total = 0.0
    for c in range(3):
        truth = (label == c).astype(float)
        size = (truth**2).sum() + (probability[:, c] ** 2).sum()
        size += spread[:, c].sum() if spread is not None else 0.0
        total += (2 * (truth * probability[:, c]).sum() + 1e-5) / (size + 1e-5)
    found = soft_dice(
        torch.tensor(probability),
        torch.tensor(label).unsqueeze(1),
        None if spread is None else torch.tensor(spread),
    )
    assert float(found) == pytest.approx(1 - total / 3, rel=1e-12)


def test_perfect_and_hopeless() -> None:
    label = torch.tensor([[[[0, 1, 1, 0]]]])
    perfect = torch.zeros(1, 2, 1, 4).scatter(1, label, 1.0)
    assert float(soft_dice(perfect, label)) == pytest.approx(0)
    assert float(soft_dice(1 - perfect, label)) == pytest.approx(1, abs=1e-4)


def test_a_class_neither_there_nor_predicted_counts_as_right() -> None:
    label = torch.zeros(1, 1, 1, 4, dtype=torch.long)
    perfect = torch.zeros(1, 3, 1, 4).scatter(1, label, 1.0)
    assert float(soft_dice(perfect, label)) == pytest.approx(0, abs=1e-6)


def _batch(seed: int, classes: int = 4, spatial: tuple[int, ...] = ()) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(6, classes, *spatial, generator=generator, dtype=torch.float64) * 3
    return logits, torch.randint(classes, (6, *spatial), generator=generator)


@pytest.mark.parametrize("spatial", [(), (3, 2)])
@pytest.mark.parametrize("weight", [None, [1.0, 2.0, 0.5, 4.0]])
def test_cross_entropy_by_scipy(spatial: tuple[int, ...], weight: list[float] | None) -> None:
    logits, target = _batch(0, spatial=spatial)
    loss = PlainCrossEntropy(None if weight is None else torch.tensor(weight))
    chosen = np.take_along_axis(log_softmax(logits.numpy(), 1), target.unsqueeze(1).numpy(), 1)[:, 0]
    each = np.ones(4) if weight is None else np.array(weight)
    weights = each[target.numpy()]
    assert float(loss(logits, target, 7)) == pytest.approx(-(weights * chosen).sum() / weights.sum())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=4, max_size=4).filter(any), st.integers(0, 1000))
def test_balanced_softmax_by_scipy(counts: list[int], seed: int) -> None:
    logits, target = _batch(seed)
    present = [c for c in range(4) if counts[c]]
    target = torch.tensor(present)[target % len(present)]
    loss = BalancedCrossEntropy(torch.tensor(counts))
    shifted = logits.numpy()[:, present] + np.log(np.array(counts)[present])
    position = [present.index(int(label)) for label in target]
    expected = -log_softmax(shifted, 1)[np.arange(6), position].mean()
    logits.requires_grad_()
    found = loss(logits, target, 0)
    assert float(found.detach()) == pytest.approx(expected, rel=1e-10, abs=1e-12)
    found.backward()
    absent = [c for c in range(4) if not counts[c]]
    assert bool(torch.isfinite(logits.grad).all())
    assert not bool(logits.grad[:, absent].any())


def test_equal_counts_are_plain_cross_entropy() -> None:
    for spatial in ((), (2, 2)):
        logits, target = _batch(1, spatial=spatial)
        balanced = BalancedCrossEntropy(torch.full((4,), 17))(logits, target, 0)
        assert float(balanced) == pytest.approx(float(PlainCrossEntropy()(logits, target, 0)))


def test_balanced_takes_maps_with_absent_classes() -> None:
    logits, target = _batch(2, classes=3, spatial=(2, 2))
    found = BalancedCrossEntropy(torch.tensor([5, 2, 0]))(logits, target % 2, 0)
    two = BalancedCrossEntropy(torch.tensor([5, 2]))(logits[:, :2], target % 2, 0)
    assert float(found) == pytest.approx(float(two))


def test_a_target_without_count_is_an_error() -> None:
    loss = BalancedCrossEntropy(torch.tensor([5, 0, 2, 0]))
    with pytest.raises(ValueError, match=r"classes \[1, 3\] are in the target but have a count of 0"):
        loss(torch.zeros(3, 4), torch.tensor([3, 1, 0]), 0)


@pytest.mark.parametrize(
    ("counts", "message"), [([0, 0], "all 0"), ([1, -1], "not negative"), ([1.0, math.nan], "finite")]
)
def test_counts_that_balance_nothing(counts: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BalancedCrossEntropy(torch.tensor(counts))


@pytest.mark.parametrize("spatial", [(), (3, 2)])
def test_dice_by_numpy(spatial: tuple[int, ...]) -> None:
    logits, target = _batch(3, spatial=spatial)
    probability = softmax(logits.numpy(), 1)
    score = 0.0
    for c in range(4):
        truth = (target.numpy() == c).astype(float)
        own = probability[:, c]
        score += (2 * (truth * own).sum() + 1e-5) / (truth.sum() + (own**2).sum() + 1e-5) / 4
    assert float(PlainDice()(logits, target, 7)) == pytest.approx(1 - score)


@pytest.mark.parametrize(
    "loss", [PlainCrossEntropy(torch.ones(3)), PlainDice(), BalancedCrossEntropy(torch.tensor([1, 2, 3]))], ids=str
)
def test_all_are_called_alike(loss: torch.nn.Module) -> None:
    logits, target = _batch(4, classes=3, spatial=(1, 2))
    assert torch.autograd.gradcheck(lambda z: loss(z, target, 0), logits.requires_grad_())
    assert torch.equal(loss(logits, target, 0), loss(logits, target.unsqueeze(1), 99))
    half = loss(logits.detach().half(), target, 0)
    assert half.dtype == torch.float32
    with pytest.raises(ValueError, match="class 3"):
        loss(logits, torch.full_like(target, 3), 0)


def test_class_weights_of_another_length() -> None:
    for loss in (PlainCrossEntropy(torch.ones(2)), BalancedCrossEntropy(torch.ones(2))):
        with pytest.raises(ValueError, match="do not fit 3 classes"):
            loss(torch.zeros(1, 3), torch.tensor([0]), 0)
