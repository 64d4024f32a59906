import numpy as np
import pytest
import torch

from feal.losses import soft_dice


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
