from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from feal.selection import kcenter
from feal.selection.kcenter import TINY, build_frame, k_center


@pytest.mark.parametrize("width", [1, 7, 1280, 20_000])
@pytest.mark.parametrize("kind", ["constant", "positive", "signed", "huge", "minute", "zero", "mixed"])
def test_distances_keep_within_their_bounds(kind: str, width: int) -> None:
    noise = torch.randn((30, width), generator=torch.Generator().manual_seed(0))
    features = {
        "constant": (0.1 + 1e-3 * noise[:, :1]).expand(30, width).contiguous(),
        "positive": noise.abs() + 5,
        "signed": noise,
        "huge": 1e37 * noise,
        "minute": 1e-41 * noise,
        "zero": 0 * noise,
        "mixed": noise * 10.0 ** torch.arange(-40, 20, 2)[:, None],
    }[kind]
    cover = kcenter._Cover(features, features[:1])
    unit, points = cover._frame.unit, cover._locate(features)
    exact = (features.double()[:, None] / unit - features.double() / unit).square().sum(2)
    lower, upper = (cover._bound_squares(points, points, side).double() for side in (-1, 1))
    assert (lower <= exact).all()
    assert (upper > exact).all()
    sizes = points[1].double()[:, None] + points[1].double()
    assert (upper - lower <= 3 * cover._error * sizes + 3 * TINY).all()


@pytest.mark.parametrize(("common", "spread"), [(1e3, 1e-2), (0, 1e30), (1e-38, 1e-39), (3e38, 1e30)])
def test_a_frame_holds_numbers_of_about_one_and_nothing_in_common(common: float, spread: float) -> None:
    features = common + spread * torch.randn((50, 64), generator=torch.Generator().manual_seed(0))
    frame = build_frame(features)
    offsets = frame.offsets(features)
    assert offsets.dtype == torch.float32
    assert float(offsets.abs().max()) <= 4
    exact = (features.double() - frame.mean()) / frame.unit
    torch.testing.assert_close(offsets.double(), exact, rtol=2.0**-23, atol=TINY)
    assert float(exact.mean(0).abs().max()) <= 1e-6


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_a_row_that_is_not_finite_is_named(number: float) -> None:
    features = torch.zeros(9, 2)
    features[4, 1] = number
    with pytest.raises(ValueError, match="of sample 4 contain NaN or infinity"):
        build_frame(features)
    with pytest.raises(ValueError, match="of labelled sample 4 contain NaN or infinity"):
        build_frame(torch.zeros(3, 2), features)


NO_ROWS = torch.empty(0, 3)


def reference(features: Tensor, labelled: Tensor, budget: int) -> tuple[list[int], list[float]]:
    """The greedy choice by the full matrix of float64 distances."""
    every = torch.cat((features, labelled)).double()
    squares = [(every - row).square().sum(1) for row in features.double()]
    centres = list(range(len(features), len(every)))
    rows: list[int] = []
    distances: list[float] = []
    for _ in range(min(budget, len(features))):
        nearest = [float(line[centres].min()) if centres else float("inf") for line in squares]
        row = max((row for row in range(len(features)) if row not in rows), key=lambda row: (nearest[row], -row))
        rows.append(row)
        distances.append(nearest[row] ** 0.5)
        centres.append(row)
    return rows, distances


def random_features(kind: str, size: int, width: int, draw: torch.Generator) -> Tensor:
    noise = torch.randn((size, width), generator=draw)
    centre = torch.randn((3, width), generator=draw)[torch.randint(3, (size,), generator=draw)]
    if kind == "copies":
        return noise[torch.randint(max(1, size // 4), (size,), generator=draw)] if size else noise
    if kind == "wild":
        return noise * 10.0 ** torch.randint(-30, 30, (size, 1), generator=draw)
    if kind == "one loud column":
        return noise * torch.tensor([1e10] + [1e-3] * (width - 1))
    return {
        "plain": noise,
        "clusters": centre + 0.1 * noise,
        "near copies": centre + 1e-6 * noise,
        "far from zero": 1e3 + noise,
        "whole numbers": noise.round(),
        "zeros": noise * (torch.rand((size, 1), generator=draw) < 0.5),
        "all equal": torch.full((size, width), 0.1),
        "huge": 1e30 * noise,
        "minute": 1e-35 * noise,
    }[kind]


KINDS = [
    "plain",
    "clusters",
    "near copies",
    "copies",
    "far from zero",
    "whole numbers",
    "zeros",
    "all equal",
    "wild",
    "one loud column",
    "huge",
    "minute",
]


def agree(features: Tensor, labelled: Tensor, budget: int) -> None:
    rows, distances = k_center(features, labelled, budget)
    expected_rows, expected_distances = reference(features, labelled, budget)
    assert rows.tolist() == expected_rows
    assert rows.dtype == torch.int64
    torch.testing.assert_close(distances, torch.tensor(expected_distances, dtype=torch.float64))


@settings(deadline=None, max_examples=200)
@given(
    kind=st.sampled_from(KINDS),
    size=st.integers(0, 40),
    known=st.integers(0, 12),
    width=st.sampled_from([1, 2, 8, 33]),
    seed=st.integers(0, 10**6),
    budget=st.integers(0, 45),
    pieces=st.booleans(),
)
@example("all equal", 12, 0, 8, 0, 12, False)
@example("copies", 40, 5, 8, 0, 40, True)
def test_agrees_with_float64_brute_force(
    kind: str, size: int, known: int, width: int, seed: int, budget: int, pieces: bool
) -> None:
    every = random_features(kind, size + known, width, torch.Generator().manual_seed(seed))
    few = 50 if pieces else kcenter.BLOCK_NUMBERS
    with (
        patch.object(kcenter, "BLOCK_NUMBERS", few),
        patch.object(kcenter, "CENTRES", 5 if pieces else 1024),
        patch.object(kcenter, "FRONT", 4 if pieces else 256),
    ):
        agree(every[:size], every[size:], budget)


@pytest.mark.parametrize("kind", KINDS)
def test_agrees_on_wide_features(kind: str) -> None:
    every = random_features(kind, 240, 1280, torch.Generator().manual_seed(3))
    agree(every[:200], every[200:], 60)


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(KINDS), known=st.integers(1, 5))
def test_distances_never_grow_and_cover_what_is_left(seed: int, kind: str, known: int) -> None:
    every = random_features(kind, 40, 6, torch.Generator().manual_seed(seed))
    features, labelled = every[known:], every[:known]
    rows, distances = k_center(features, labelled, 12)
    assert torch.equal(distances, distances.sort(descending=True).values)
    centres = torch.cat((features[rows], labelled)).double()
    covered = torch.stack([(centres - row).square().sum(1).min().sqrt() for row in features.double()])
    assert covered.max() <= distances[-1] * (1 + 1e-12)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), budget=st.integers(0, 20))
def test_a_smaller_budget_is_the_beginning_of_a_larger(seed: int, budget: int) -> None:
    features = torch.randn((20, 4), generator=torch.Generator().manual_seed(seed))
    assert torch.equal(
        k_center(features, features[:0], budget)[0], k_center(features, features[:0], 20)[0][:budget]
    )


def test_does_not_depend_on_the_order_of_the_pool() -> None:
    every = random_features("clusters", 320, 24, torch.Generator().manual_seed(2))
    features, labelled = every[:300], every[300:]
    expected = k_center(features, labelled, 80)[0]
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    assert torch.equal(order[k_center(features[order], labelled.flip(0), 80)[0]], expected)


def test_without_a_centre_the_first_row_comes_first() -> None:
    rows, distances = k_center(torch.tensor([[1.0, 0, 0], [0, 0, 0], [5, 0, 0]]), NO_ROWS, 3)
    assert rows.tolist() == [0, 2, 1]
    assert distances.tolist() == [float("inf"), 4, 1]


def test_copies_of_centres_follow_by_row() -> None:
    features = torch.tensor([[0.1], [0.7], [0.1], [0.7], [0.1]])
    rows, distances = k_center(features, torch.tensor([[0.1]]), 5)
    assert rows.tolist() == [1, 0, 2, 3, 4]
    assert distances[1:].tolist() == [0, 0, 0, 0]


def test_copies_of_centres_cost_no_product() -> None:
    features = torch.full((50, 3), 0.1)
    bound = kcenter._Cover._bound_squares
    with patch.object(kcenter._Cover, "_bound_squares", autospec=True, side_effect=bound) as products:
        assert k_center(features, features[:1], 50)[0].tolist() == list(range(50))
    assert products.call_count == 2  # with the labelled sample only: a bound, then exactly


def test_most_rows_never_see_the_chosen() -> None:
    draw = torch.Generator().manual_seed(0)
    features = torch.randn((1500, 64), generator=draw)
    pairs, bound = list[int](), kcenter._Cover._bound_squares

    def counting(cover: kcenter._Cover, left: Any, right: Any, side: int) -> Tensor:
        pairs.append(len(left[0]) * len(right[0]) * (side < 0))
        return bound(cover, left, right, side)

    with patch.object(kcenter._Cover, "_bound_squares", counting), patch.object(kcenter, "FRONT", 32):
        agree(features, torch.randn((50, 64), generator=draw), 40)
    assert 0 < sum(pairs) < 1500 * 40


def test_mapped_features_are_only_read(tmp_path: Path) -> None:
    features = torch.randn((90, 8), generator=torch.Generator().manual_seed(1))
    np.save(tmp_path / "features.npy", features.numpy())
    mapped = torch.from_numpy(np.load(tmp_path / "features.npy", mmap_mode="c"))
    assert torch.equal(k_center(mapped, mapped[:9], 30)[0], k_center(features, features[:9], 30)[0])
    assert torch.equal(mapped, features)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"budget": -1}, "must not be negative"),
        ({"features": torch.zeros(4, 3, dtype=torch.float64)}, "features are one row a sample in float32"),
        ({"features": torch.zeros(4)}, "one row a sample"),
        ({"labelled": torch.zeros(3)}, "labelled features are one row"),
        ({"labelled": torch.zeros(2, 5)}, "3 numbers a sample and the labelled ones 5"),
        ({"features": torch.tensor([[0.0, 0, 0], [0, torch.nan, 0]])}, "sample 1 contain NaN"),
        ({"features": torch.tensor([[0.0, 0, torch.inf], [0, 0, 0]])}, "sample 0 contain NaN"),
        ({"labelled": torch.tensor([[0.0, 0, 0], [0, 0, -torch.inf]])}, "labelled sample 1 contain NaN"),
    ],
)
def test_refuses(wrong: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"features": torch.rand(4, 3), "labelled": NO_ROWS, "budget": 2} | wrong
    with pytest.raises(ValueError, match=message):
        k_center(**arguments)
