import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from feal.selection.gradient_embedding import OuterProducts

Pairs = list[tuple[Tensor, Tensor]]


def formed(pairs: Pairs) -> Tensor:
    """G itself, in float64."""
    return torch.stack([(q.double()[:, :, None] * h.double()[:, None]).flatten(1) for q, h in pairs]).mean(0)


def random_pairs(kind: str, size: int, width: int, models: int, seed: int) -> Pairs:
    draw = torch.Generator().manual_seed(seed)
    pairs = []
    for _ in range(models):
        p = torch.softmax(3 * torch.randn((size, 4), generator=draw), dim=1)
        q = torch.nn.functional.one_hot(p.argmax(1), 4) - p
        h = torch.randn((size, width), generator=draw)
        h = {"plain": h, "far from zero": h + 100, "zeros": 0 * h, "huge": 1e25 * h, "minute": 1e-30 * h}[kind]
        pairs.append((q, h))
    return pairs


@settings(deadline=None, max_examples=80)
@given(
    kind=st.sampled_from(["plain", "far from zero", "zeros", "huge", "minute"]),
    size=st.integers(1, 30),
    width=st.sampled_from([1, 5, 200]),
    models=st.sampled_from([1, 2, 3]),
    seed=st.integers(0, 10**6),
)
def test_agrees_with_the_gradients_formed(kind: str, size: int, width: int, models: int, seed: int) -> None:
    pairs = random_pairs(kind, size, width, models, seed)
    gradients, products = formed(pairs), OuterProducts(pairs)
    squares = gradients.square().sum(1)
    torch.testing.assert_close(products.squares, squares, rtol=1e-9, atol=1e-300)
    for row in range(size):
        exact = (gradients - gradients[row]).square().sum(1)
        # Relative to the lengths, as that is what is rounded.
        error = (products.squared_distances(row) - exact).abs()
        scale = torch.stack([(q.double().norm(dim=1) * h.double().norm(dim=1)) for q, h in pairs]).mean(0)
        assert (error <= 1e-4 * (scale + scale[row]).square()).all()


@pytest.mark.parametrize("models", [1, 2])
@pytest.mark.parametrize("width", [3, 128, 1280])
def test_copies_are_at_distance_zero_and_neighbours_are_not(width: int, models: int) -> None:
    pairs = random_pairs("far from zero", 60, width, models, 0)
    copied = [(torch.cat((q, q)), torch.cat((h, h))) for q, h in pairs]
    products = OuterProducts(copied)
    for row in (0, 31, 59, 60, 119):
        zero = (products.squared_distances(row) == 0).nonzero()[:, 0].tolist()
        assert zero == [row % 60, row % 60 + 60]


def test_distances_of_collapsed_features_are_told_apart() -> None:
    draw = torch.Generator().manual_seed(0)
    h = 1 + 0.01 * torch.randn((200, 1280), generator=draw)
    q = torch.tensor([0.6, -0.4, -0.2]) + 1e-3 * torch.randn((200, 3), generator=draw)
    gradients = formed([(q, h)])
    exact = (gradients - gradients[7]).square().sum(1)
    torch.testing.assert_close(OuterProducts([(q, h)]).squared_distances(7), exact, rtol=1e-2, atol=0)


def test_nothing_is_changed() -> None:
    pairs = random_pairs("plain", 20, 5, 2, 0)
    before = [(q.clone(), h.clone()) for q, h in pairs]
    OuterProducts(pairs).squared_distances(3)
    assert all(
        torch.equal(a, b)
        for pair, kept in zip(pairs, before, strict=True)
        for a, b in zip(pair, kept, strict=True)
    )
