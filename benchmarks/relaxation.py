"""Relaxation against the straightforward way, and against its own matrix products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from feal.selection import relaxation
from feal.selection.relaxation import relax
from timing import Measurement, format_seconds, measure, median_seconds, print_table, run_in_fresh_process

BUDGET, NEIGHBOURS, TAU = 500, 5, 0.85
GROUP = 20  # samples in a cluster: one is taken, 19 are passed over
KINDS = {"few rejected": 0.05, "clustered": 1.0}  # pools, by the share of their samples that are in clusters
BLOCK = 512  # candidates in one product with the whole pool
TRIED = 40  # candidates on which the straightforward forms are timed

Shapes = list[tuple[torch.Size, torch.Size, torch.dtype]]
Cosine = Callable[[Tensor, int], Tensor]


class Pool(NamedTuple):
    """Scores [N] and features [N, D]."""

    scores: Tensor
    features: Tensor


# Pools


def draw_pool(share: float, size: int, width: int) -> Pool:
    """Draw clusters of similar samples with similar scores, and samples like no other for the rest of the pool.

    The walk meets cluster after cluster, takes the centre of each and passes over the others; so it looks at
    the same number of candidates whatever the size of the pool. Filled part by part, without a second copy.
    """
    draw = torch.Generator().manual_seed(0)
    features, place = torch.empty((size, width)), torch.randperm(size, generator=draw)
    group, radius = place // GROUP, 0.1 + 0.2 * torch.rand(size, generator=draw)
    radius[place % GROUP == 0] = 0
    centres = normalize(torch.randn((size // GROUP + 1, width), generator=draw))
    clustered = torch.rand(len(centres), generator=draw) < share
    for part in torch.arange(size).split(10_000):
        alone = normalize(torch.randn((len(part), width), generator=draw))
        similar = centres[group[part]] + radius[part, None] * alone
        features[part] = torch.where(clustered[group[part], None], similar, alone)
    return Pool(-group.double() - radius.double(), features)


# The forms that are compared


def choose(pool: Pool) -> tuple[Tensor, int]:
    return relax(pool.scores, pool.features, BUDGET, n=NEIGHBOURS, tau=TAU)


def count_candidates(pool: Pool) -> int:
    """Count the candidates that the walk looks at."""
    chosen, filled = choose(pool)
    if filled:
        return len(pool.scores)
    return int(pool.scores.argsort(descending=True, stable=True).argsort()[chosen[-1]]) + 1


def walk_plainly(pool: Pool, candidates: int, cosine: Cosine) -> None:
    """Compute for each candidate in turn its cosines to the whole pool and a full sort."""
    accepted: set[int] = set()
    for i in pool.scores.argsort(descending=True, stable=True)[:candidates].tolist():
        similarity = cosine(pool.features, i)
        similarity[i] = -2
        order = similarity.argsort(descending=True, stable=True)[:NEIGHBOURS]
        if similarity[order[-1]] < TAU or accepted.isdisjoint(order.tolist()):
            accepted.add(i)


def plain_cosine(features: Tensor, i: int) -> Tensor:
    return cosine_similarity(features[i : i + 1], features)


def product_of_units(units: Tensor, i: int) -> Tensor:
    return units @ units[i]


def record_products(pool: Pool) -> Shapes:
    """Record the shapes of the matrix products of one call."""
    shapes: Shapes = []
    multiply = relaxation._product

    def note(left: Tensor, right: Tensor) -> Tensor:
        shapes.append((left.shape, right.shape, left.dtype))
        return multiply(left, right)

    with patch.object(relaxation, "_product", note):
        choose(pool)
    return shapes


def repeat_products(shapes: Shapes) -> Callable[[], None]:
    """Return a function that computes the same products on numbers that lie ready."""
    sides = {(shape, dtype) for *pair, dtype in shapes for shape in pair}
    numbers = {side: torch.rand(side[0], dtype=side[1]) for side in sides}

    def run() -> None:
        for left, right, dtype in shapes:
            relaxation._product(numbers[left, dtype], numbers[right, dtype])

    return run


# Measuring


def _measure_pool(share: float, size: int, width: int, repeats: int) -> Measurement:
    choose(draw_pool(share, 2000, width))  # whatever torch allocates once
    pool = draw_pool(share, size, width)
    return measure(lambda: choose(pool), repeats)


def measure_alone(share: float, size: int, width: int, repeats: int) -> Measurement:
    """Measure time and memory of a pool in a fresh process."""
    return run_in_fresh_process(_measure_pool, share, size, width, repeats)


# Tables


def speed_rows(size: int, width: int, repeats: int) -> Iterator[list[str]]:
    """Yield relaxation against other forms, a row for each quantity and a column for each pool."""
    columns = [_speed_column(share, size, width, repeats) for share in KINDS.values()]
    yield ["", *KINDS]
    for row in columns[0]:
        yield [row, *(column[row] for column in columns)]


def _speed_column(share: float, size: int, width: int, repeats: int) -> dict[str, str]:
    pool = draw_pool(share, size, width)
    candidates, units = count_candidates(pool), Pool(pool.scores, normalize(pool.features))
    tried = min(TRIED, candidates)
    fast = {
        "relax": lambda: choose(pool),
        "products": repeat_products(record_products(pool)),
        "reading": lambda: torch.linalg.vector_norm(pool.features, dim=1),
        "block": lambda: relaxation._product(pool.features[:BLOCK], pool.features),
    }
    slow = {
        "cosine": lambda: walk_plainly(pool, tried, plain_cosine),
        "units": lambda: walk_plainly(units, tried, product_of_units),
    }
    seconds = median_seconds(fast, repeats)
    slow_seconds = {name: each / tried * candidates for name, each in median_seconds(slow, 3).items()}
    bound = seconds["products"] + seconds["reading"]
    memory = measure_alone(share, size, width, 1).extra
    return {
        "candidates looked at": f"{candidates:,}",
        "  of these rejected": f"{candidates - min(BUDGET, candidates):,}",
        "relax": format_seconds(seconds["relax"]),
        "straightforward: cosine_similarity and a sort *": format_seconds(slow_seconds["cosine"]),
        "  over relax": f"{slow_seconds['cosine'] / seconds['relax']:,.0f}",
        "straightforward, rows at length 1 beforehand *": format_seconds(slow_seconds["units"]),
        "  over relax ": f"{slow_seconds['units'] / seconds['relax']:,.0f}",
        "its matrix products alone": format_seconds(seconds["products"]),
        "  relax over these": f"{seconds['relax'] / seconds['products']:.2f}",
        "these and one reading of the features": format_seconds(bound),
        "  relax over both": f"{seconds['relax'] / bound:.2f}",
        "all candidates against the pool, in blocks": format_seconds(seconds["block"] * candidates / BLOCK),
        "  relax over these ": f"{seconds['relax'] / (seconds['block'] * candidates / BLOCK):.2f}",
        "memory beyond the features": f"{memory / 1e6:,.0f} MB",
        "  of one copy of them": f"{memory / (4 * size * width):.0%}",
    }


def scaling_rows(small: int, large: int, width: int, repeats: int) -> Iterator[list[str]]:
    """Yield the same pools small and large, each in its own process."""
    yield ["", "samples", "relax", "per sample", "over small", "whole process"]
    for name, share in KINDS.items():
        first = measure_alone(share, small, width, repeats)
        for size, figures in ((small, first), (large, measure_alone(share, large, width, repeats))):
            each, reference = figures.seconds / size, first.seconds / small
            peak = f"{figures.peak / 2**30:.2f} GiB"
            yield [
                name,
                f"{size:,}",
                format_seconds(figures.seconds),
                f"{each * 1e6:.2f} us",
                f"{each / reference:.2f}",
                peak,
            ]


def show(*, quick: bool) -> None:
    """Print the tables of relaxation."""
    repeats, size, large = (3, 4000, 50_000) if quick else (9, 10_000, 1_000_000)
    print(f"Relaxation: budget {BUDGET}, n {NEIGHBOURS}, tau {TAU}, median of {repeats}\n")
    print(f"{size:,} samples of 1,008 features")
    print_table(speed_rows(size, 1008, repeats))
    print(f"* timed on {TRIED} candidates, median of 3, and scaled to all that are looked at\n")
    print("From small to large, 128 features")
    print_table(scaling_rows(10_000, large, 128, repeats))
