"""Greedy coverage by a kernel, radii and typicality against brute force."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from feal.selection import coverage
from feal.selection.coverage import cover_greedily, quantile_square, smallest_square, typicality


def draw_points(kind: str, count: int = 120, width: int = 6, seed: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    noise = torch.randn((count, width), generator=draw)
    centres = 5 * torch.randn((4, width), generator=draw)
    return {
        "random": noise,
        "clusters": centres[torch.randint(4, (count,), generator=draw)] + 0.1 * noise,
        "copies": noise[torch.randint(min(9, count), (count,), generator=draw)],
        "far from zero": noise + 1000,
        "all equal": torch.full((count, width), 0.3),
        "tiny": noise * 1e-20,
        "huge": noise * 1e18,
        "lattice": torch.randint(3, (count, width), generator=draw).float(),
    }[kind]


def all_squares(one: torch.Tensor, other: torch.Tensor) -> NDArray[np.float64]:
    squares: NDArray[np.float64] = ((one.double()[:, None] - other.double()) ** 2).sum(2).numpy()
    return squares


def reference(
    pool: torch.Tensor, labelled: torch.Tensor, budget: int, square: float, weights: NDArray[np.float64]
) -> list[int]:
    """The greedy choice by the matrix of all pairs, with the same ties."""
    kernel = np.exp(-all_squares(pool, pool) / square)
    covered = np.exp(-all_squares(pool, labelled) / square).max(1) if len(labelled) else np.zeros(len(pool))
    rows: list[int] = []
    for _ in range(min(budget, len(pool))):
        gains = np.maximum(kernel - covered, 0) @ weights / weights.sum()
        gains[gains < 1e-12] = 0
        gains[rows] = -1
        rows.append(int(np.flatnonzero(gains >= gains.max() * (1 - 1e-9))[0]))
        covered = np.maximum(covered, kernel[rows[-1]])
    return rows


KINDS = ["random", "clusters", "copies", "far from zero", "all equal", "tiny", "huge", "lattice"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("known", [0, 7])
@pytest.mark.parametrize("quantile", [0.02, 0.3])
def test_the_choice_is_that_of_brute_force(kind: str, known: int, quantile: float) -> None:
    points = draw_points(kind)
    pool, labelled = points[known:], points[:known]
    square = quantile_square(pool, quantile, generator=torch.Generator())
    weights = np.random.default_rng(1).random(len(pool))
    for given in (np.ones(len(pool)), weights):
        rows, gains = cover_greedily(
            pool, labelled, 40, square, weights=torch.from_numpy(given), generator=torch.Generator()
        )
        assert rows.tolist() == reference(pool, labelled, 40, square, given)
        assert bool((gains[1:] <= gains[:-1] * (1 + 1e-8) + 1e-12).all())


def test_few_kept_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = draw_points("random", 400)
    plain = cover_greedily(pool, pool[:0], 60, 3.0, generator=torch.Generator())
    monkeypatch.setattr(coverage, "KEPT_NUMBERS", 1)
    monkeypatch.setattr(coverage, "BATCH", 3)
    rows, gains = cover_greedily(pool, pool[:0], 60, 3.0, generator=torch.Generator())
    assert torch.equal(rows, plain[0])
    torch.testing.assert_close(gains, plain[1], rtol=1e-9, atol=0)


def test_a_large_pool_is_covered_almost_as_well_by_drawn_references(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = draw_points("clusters", 2000, 8)
    square = quantile_square(pool, 0.1, generator=torch.Generator())
    exact = cover_greedily(pool, pool[:0], 20, square, generator=torch.Generator())[0]
    monkeypatch.setattr(coverage, "REFERENCES", 500)
    drawn = cover_greedily(pool, pool[:0], 20, square, generator=torch.Generator().manual_seed(3))[0]
    kernel = np.exp(-all_squares(pool, pool) / square)
    best, near = (kernel[rows].max(0).mean() for rows in (exact, drawn))
    assert len(set(drawn.tolist())) == 20
    assert best * 0.97 < near <= best * 1.0001


def test_no_weight_above_zero_counts_all_alike() -> None:
    pool = draw_points("random", 50)
    given = torch.zeros(50)
    rows = cover_greedily(pool, pool[:0], 9, 2.0, weights=given, generator=torch.Generator())[0]
    assert torch.equal(rows, cover_greedily(pool, pool[:0], 9, 2.0, generator=torch.Generator())[0])


@pytest.mark.parametrize("kind", ["random", "clusters", "far from zero"])
def test_quantiles_and_smallest_distances(kind: str) -> None:
    points = draw_points(kind)
    apart = all_squares(points, points)[np.triu_indices(len(points), 1)]
    for quantile in (0.0, 0.1, 1.0):
        found = quantile_square(points, quantile, generator=torch.Generator())
        assert found == pytest.approx(np.quantile(apart, quantile), rel=1e-6)
    assert smallest_square(points) == pytest.approx(apart.min(), rel=1e-6)


def test_a_quantile_of_drawn_pairs_is_near_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    points = draw_points("random", 3000)
    whole = quantile_square(points, 0.1, generator=torch.Generator())
    monkeypatch.setattr(coverage, "PAIRED", 600)
    drawn = quantile_square(points, 0.1, generator=torch.Generator().manual_seed(0))
    assert drawn == pytest.approx(whole, rel=0.05)


def test_copies_alone_have_no_distance() -> None:
    assert quantile_square(torch.ones(5, 3), 0.1, generator=torch.Generator()) == 1
    assert quantile_square(torch.ones(0, 3), 0.1, generator=torch.Generator()) == 1
    assert smallest_square(torch.ones(5, 3)) is None
    assert smallest_square(torch.ones(0, 3)) is None
    two = torch.tensor([[1.0], [1.0], [4.0]])
    assert smallest_square(two) == quantile_square(two, 0.0, generator=torch.Generator()) == 9


@pytest.mark.parametrize("count", [1, 2, 3, 30, 700])
def test_typicality_is_the_formula(count: int) -> None:
    points = draw_points("random", count)
    squares = all_squares(points, points)
    np.fill_diagonal(squares, np.inf)
    nearest = np.sort(np.sqrt(squares), axis=1)[:, : min(20, count // 2)]
    expected = 1 / (nearest.mean(1) + 1e-5) if count > 1 else np.zeros(1)
    np.testing.assert_allclose(typicality(points, 20).numpy(), expected, rtol=1e-9)


def test_features_that_are_not_finite_are_named() -> None:
    pool = draw_points("random", 9)
    pool[4, 1] = torch.nan
    with pytest.raises(ValueError, match="sample 4"):
        cover_greedily(pool, pool[:0], 3, 1.0, generator=torch.Generator())
