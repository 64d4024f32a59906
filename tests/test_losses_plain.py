import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax

from feal.losses import BalancedCrossEntropy, PlainCrossEntropy, PlainDice


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
def test_counts_that_say_nothing(counts: list[float], message: str) -> None:
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
