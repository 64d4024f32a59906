"""Greedy coverage by balls, and their radius, against brute force."""

import numpy as np
import pytest
import torch

from feal.selection import balls
from feal.selection.balls import ITERATIONS, cover_by_balls, pure_square
from feal.selection.kmeans import k_means
from tests.selection.test_coverage import KINDS, all_squares, draw_points


def reference(pool: torch.Tensor, labelled: torch.Tensor, budget: int, square: float) -> list[int]:
    holds = all_squares(pool, pool) <= square
    covered = (all_squares(pool, labelled) <= square).any(1)
    rows: list[int] = []
    for _ in range(min(budget, len(pool))):
        gains = (holds & ~covered).sum(1)
        gains[rows] = -1
        rows.append(int(gains.argmax()))
        covered |= holds[rows[-1]]
    return rows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("known", [0, 7])
@pytest.mark.parametrize("quantile", [0.01, 0.2])
def test_the_choice_is_that_of_brute_force(kind: str, known: int, quantile: float) -> None:
    points = draw_points(kind, 130)
    pool, labelled = points[known:], points[:known]
    square = float(np.quantile(all_squares(pool, pool), quantile)) * 1.001
    rows, shares = cover_by_balls(pool, labelled, 50, square, generator=torch.Generator())
    assert rows.tolist() == reference(pool, labelled, 50, square)
    assert bool((shares[1:] <= shares[:-1]).all())


def test_a_ball_of_any_size_covers_all_at_once() -> None:
    pool = draw_points("random", 20)
    rows, shares = cover_by_balls(pool, pool[:0], 3, float("inf"), generator=torch.Generator())
    assert rows.tolist() == [0, 1, 2]
    assert shares.tolist() == [1, 0, 0]


def test_more_balls_than_samples() -> None:
    pool = draw_points("random", 20)
    rows, _ = cover_by_balls(pool, pool[:0], 100, 1.0, generator=torch.Generator())
    assert sorted(rows.tolist()) == list(range(20))


@pytest.mark.parametrize("purity", [0.5, 0.95, 1.0])
def test_the_radius_is_the_largest_that_is_pure(purity: float) -> None:
    points = draw_points("random", 200)
    square = pure_square(points, 3, purity, generator=torch.Generator().manual_seed(5))
    labels = k_means(points, 3, generator=torch.Generator().manual_seed(5), iterations=ITERATIONS).numpy()
    is_other = labels[:, None] != labels

    def share(radius: float) -> float:
        return float(1 - ((all_squares(points, points) <= radius**2) & is_other).any(1).mean())

    assert share(square**0.5) >= purity - 1e-12
    assert share(square**0.5 * (1 + 1e-6)) < purity


def test_one_cluster_has_no_bound() -> None:
    assert pure_square(torch.ones(8, 2), 3, 0.95, generator=torch.Generator()) == float("inf")


def test_drawn_references_and_balls_do_almost_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = draw_points("random", 3000, 2)
    exact = pure_square(pool, 4, 0.9, generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr(balls, "QUERIED", 1000)
    assert pure_square(pool, 4, 0.9, generator=torch.Generator().manual_seed(1)) == pytest.approx(exact, rel=0.4)
    best = cover_by_balls(pool, pool[:0], 10, 0.3, generator=torch.Generator())[0]
    monkeypatch.setattr(balls, "REFERENCES", 800)
    near = cover_by_balls(pool, pool[:0], 10, 0.3, generator=torch.Generator().manual_seed(1))[0]
    holds = all_squares(pool, pool) <= 0.3
    assert holds[near].any(0).mean() > 0.95 * holds[best].any(0).mean()
