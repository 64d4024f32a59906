import warnings
from collections import Counter
from itertools import permutations
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2
from torch import Tensor

from feal.selection import kmeans
from feal.selection.kmeans import OuterProducts, k_means, k_means_plus_plus, pick_best_of_each


class Points:
    """Points [N, D] in float64, and the centres they were all compared with."""

    def __init__(self, points: Tensor) -> None:
        self.points, self.squares = points, points.square().sum(1)
        self.compared: list[int] = []

    def squared_distances(self, rows: Tensor | slice, centres: Tensor) -> Tensor:
        return (self.points[rows][:, None] - self.points[centres]).square().sum(2)

    def nearest(self, centres: Tensor) -> Tensor:
        self.compared += centres.tolist()
        return self.squared_distances(slice(None), centres).amin(1)


def choose(points: Tensor, budget: int, seed: int = 0) -> tuple[list[int], Tensor]:
    rows, squares = k_means_plus_plus(Points(points), budget, torch.Generator().manual_seed(seed))
    return rows.tolist(), squares


def weights(points: Tensor, rows: list[int]) -> list[float]:
    """D^2 to the nearest of the rows, or 1 for each row that is free where all are 0."""
    squares = [min(float((point - points[row]).square().sum()) for row in rows) for point in points]
    return squares if any(squares) else [float(row not in rows) for row in range(len(points))]


def probability(points: Tensor, rows: tuple[int, ...]) -> float:
    """That the process chooses exactly these rows in this order."""
    if rows[0] != max(range(len(points)), key=lambda row: (float(points[row].square().sum()), -row)):
        return 0.0
    chance = 1.0
    for pick in range(1, len(rows)):
        weight = weights(points, list(rows[:pick]))
        chance *= weight[rows[pick]] / sum(weight)
    return chance


POOLS = {
    "scattered": torch.tensor([[0.0, 1], [2, 0], [1, 3], [0, 0], [2.5, 2]], dtype=torch.float64),
    "copies": torch.tensor([[1.0], [3], [3], [1], [0]], dtype=torch.float64),
    "all equal": torch.ones(5, 2, dtype=torch.float64),
    "nothing": torch.zeros(5, 2, dtype=torch.float64),
}


@pytest.mark.parametrize("small", [0, 2048])
@pytest.mark.parametrize("points", POOLS.values(), ids=POOLS)
def test_choices_are_distributed_as_they_should_be(points: Tensor, small: int) -> None:
    trials, budget = 3000, 4
    with patch.multiple(kmeans, SMALL=small, MISSES=3):
        seen = Counter(tuple(choose(points, budget, seed)[0]) for seed in range(trials))
    expected = {rows: trials * probability(points, rows) for rows in permutations(range(len(points)), budget)}
    assert sum(expected.values()) == pytest.approx(trials)
    assert all(expected[rows] > 0 for rows in seen)
    # Rare outcomes together, so that each cell has enough for the test.
    common = {rows: number for rows, number in expected.items() if number >= 8}
    cells = [(seen[rows], number) for rows, number in common.items()]
    rest = trials - sum(common.values())
    cells += [(trials - sum(seen[rows] for rows in common), rest)] if rest >= 1e-6 else []
    statistic = sum((number - mean) ** 2 / mean for number, mean in cells)
    assert len(cells) > 5
    assert statistic < chi2.ppf(0.999, len(cells) - 1)


@settings(deadline=None, max_examples=80)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 25), distinct=st.integers(1, 25), budget=st.integers(0, 30))
def test_follows_the_uniform_numbers_it_draws(seed: int, size: int, distinct: int, budget: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    points = torch.randn((distinct, 3), generator=draw, dtype=torch.float64)
    points = points[torch.randint(distinct, (size,), generator=draw)]
    rows, squares = choose(points, budget, seed)
    numbers = torch.Generator().manual_seed(seed)
    expected = [int(points.square().sum(1).argmax())][:budget]
    while len(expected) < min(budget, size):
        weight = torch.tensor(weights(points, expected), dtype=torch.float64)
        number = torch.rand(1, dtype=torch.float64, generator=numbers)
        expected.append(int((weight.cumsum(0) > number * weight.sum()).nonzero()[0]))
    assert rows == expected
    for pick in range(1, len(rows)):
        nearest = min(float((points[rows[pick]] - points[row]).square().sum()) for row in rows[:pick])
        assert float(squares[pick]) == pytest.approx(nearest, abs=1e-12)


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 25), budget=st.integers(0, 30))
def test_a_smaller_budget_is_the_beginning_of_a_larger(seed: int, size: int, budget: int) -> None:
    points = torch.randn((size, 2), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    rows, _ = choose(points, 30, seed)
    assert sorted(rows) == list(range(size))
    assert choose(points, budget, seed)[0] == rows[:budget]


def test_the_first_is_the_longest_ties_by_row_and_takes_no_number() -> None:
    points = torch.tensor([[1.0, 0], [0, 2], [2, 0]], dtype=torch.float64)
    generator = torch.Generator().manual_seed(5)
    before = generator.get_state()
    rows, squares = k_means_plus_plus(Points(points), 1, generator)
    assert (rows.tolist(), squares.tolist()) == ([1], [4.0])
    assert torch.equal(generator.get_state(), before)


def test_copies_of_chosen_rows_come_last() -> None:
    points = torch.tensor([[0.1], [0.7], [0.1], [0.7], [0.4]], dtype=torch.float64)
    for seed in range(50):
        rows, squares = choose(points, 5, seed)
        assert len({float(points[row]) for row in rows[:3]}) == 3
        assert squares[3:].tolist() == [0, 0]


@pytest.mark.parametrize(("number", "row"), [(0.0, 1), (1.0, 3)])
def test_the_ends_of_the_unit_interval_give_rows_with_weight(number: float, row: int) -> None:
    # Copies of the first pick stand at both ends, with weight 0.
    points = torch.tensor([[3.0], [2], [3], [1], [3]], dtype=torch.float64)
    with patch.object(torch, "rand", return_value=torch.tensor([number], dtype=torch.float64)):
        assert choose(points, 2)[0] == [0, row]


def test_asks_for_as_many_distances_as_it_needs() -> None:
    points = Points(torch.arange(6, dtype=torch.float64)[:, None])
    rows, _ = k_means_plus_plus(points, 4, torch.Generator().manual_seed(0))
    assert points.compared == rows[:3].tolist()


def one_at_a_time(points: Tensor, budget: int, generator: torch.Generator, growth: int, most: int) -> list[int]:
    """The draws from a large pool by a plain loop, with all distances every time."""

    def squares() -> Tensor:
        return torch.stack([(points - points[row]).square().sum(1) for row in rows]).amin(0)

    rows = [int(points.square().sum(1).argmax())]
    lengths, due, missed = squares(), growth, 0
    while len(rows) < budget:
        if len(rows) == due or missed == most:
            lengths, due, missed = squares(), due * growth if len(rows) == due else due, 0
        if not lengths.any():
            lengths = torch.ones(len(points), dtype=torch.float64).index_fill_(0, torch.tensor(rows), 0)
            rows.append(_fall(lengths, generator)[0])
            lengths = torch.zeros_like(lengths)
            continue
        row, depth = _fall(lengths, generator)
        now = float(squares()[row])
        if depth < now or now == float(lengths[row]):
            rows.append(row)
            missed = 0
        else:
            missed += 1
    return rows


def _fall(lengths: Tensor, generator: torch.Generator) -> tuple[int, float]:
    level = float(torch.rand(1, dtype=torch.float64, generator=generator) * lengths.sum())
    row = int((lengths.cumsum(0) > level).nonzero()[0])
    return row, level - float(lengths[:row].sum())


LARGE = {"SMALL": 0, "GROWTH": 3, "MISSES": 4, "DRAWS": 5}


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(2, 60),
    distinct=st.integers(1, 60),
    width=st.sampled_from([1, 4]),
    budget=st.integers(1, 70),
)
def test_large_pools_are_drawn_from_as_one_at_a_time(
    seed: int, size: int, distinct: int, width: int, budget: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    points = torch.randn((distinct, width), generator=draw, dtype=torch.float64)
    points = points[torch.randint(distinct, (size,), generator=draw)]
    plain, ours = (torch.Generator().manual_seed(seed) for _ in range(2))
    with patch.multiple(kmeans, **LARGE):
        rows, squares = k_means_plus_plus(Points(points), budget, ours)
    expected = one_at_a_time(points, min(budget, size), plain, LARGE["GROWTH"], LARGE["MISSES"])
    assert rows.tolist() == expected
    assert torch.equal(plain.get_state(), ours.get_state())
    for pick in range(1, len(rows)):
        exact = (points[rows[:pick]] - points[rows[pick]]).square().sum(1).min()
        assert float(squares[pick]) == pytest.approx(float(exact), abs=1e-12)


def test_large_pools_are_seldom_compared_with_the_chosen() -> None:
    draw = torch.Generator().manual_seed(0)
    points = Points(torch.randn((3000, 16), generator=draw, dtype=torch.float64))
    rows, _ = k_means_plus_plus(points, 100, draw)
    assert points.compared == rows[: len(points.compared)].tolist()
    assert len(points.compared) == kmeans.GROWTH**2


def test_large_pools_of_few_clusters_are_compared_when_draws_miss() -> None:
    draw = torch.Generator().manual_seed(0)
    centres = 1e3 * torch.randn((30, 4), generator=draw, dtype=torch.float64)
    points = Points(centres[torch.randint(30, (3000,), generator=draw)])
    points.points += torch.randn((3000, 4), generator=draw)
    with patch.object(torch, "rand", side_effect=torch.rand) as numbers:
        rows, _ = k_means_plus_plus(points, 60, draw)
    clusters = torch.cdist(points.points[rows], centres).argmin(1)
    assert len(clusters[:30].unique()) == 30
    assert sum(call.args[0] for call in numbers.call_args_list) < 10 * 60


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"budget": -1}, "must not be negative"),
        ({"squares": torch.tensor([0.0, torch.nan])}, "row 1 is NaN"),
        ({"squares": torch.tensor([torch.inf, 0.0])}, "row 0 is NaN or infinite"),
    ],
)
def test_refuses(wrong: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"squares": torch.ones(2), "budget": 1} | wrong
    points = Points(torch.ones(2, 1))
    points.squares = arguments["squares"]
    with pytest.raises(ValueError, match=message):
        k_means_plus_plus(points, arguments["budget"], torch.Generator())


def test_an_empty_pool() -> None:
    rows, squares = k_means_plus_plus(Points(torch.empty(0, 2)), 3, torch.Generator())
    assert (rows.tolist(), squares.tolist()) == ([], [])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def plain_picking(labels: list[int], score: list[float], budget: int) -> list[int]:
    """Clusters in turn, by a loop: in each turn the best row left of each cluster, best first."""
    left = {label: [row for row, own in enumerate(labels) if own == label] for label in set(labels)}
    picked: list[int] = []
    while any(left.values()):
        turn = []
        for rows in left.values():
            if rows:
                row = min(rows, key=lambda row: (-score[row], row))
                rows.remove(row)
                turn.append(row)
        picked += sorted(turn, key=lambda row: (-score[row], row))
    return picked[:budget]


# Few labels and scores make ties and clusters of several samples; labels may leave numbers out.
rows = st.lists(
    st.tuples(st.sampled_from([0, 1, 2, 3, 7]), st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1e-300, 3.0])), max_size=40
)


@given(rows=rows, budget=st.integers(0, 50))
def test_picking_is_what_a_plain_loop_picks(rows: list[tuple[int, float]], budget: int) -> None:
    labels, score = [label for label, _ in rows], [value for _, value in rows]
    picked = pick_best_of_each(
        torch.tensor(labels, dtype=torch.int64), torch.tensor(score, dtype=torch.float64), budget
    )
    assert picked.tolist() == plain_picking(labels, score, budget)


def test_picking_changes_nothing_it_is_given() -> None:
    labels, score = torch.tensor([1, 0, 1]), torch.tensor([0.1, 0.2, 0.3])
    pick_best_of_each(labels, score, 2)
    assert labels.tolist() == [1, 0, 1]
    assert torch.equal(score, torch.tensor([0.1, 0.2, 0.3]))


def blobs(clusters: int, each: int, *, dims: int = 6, apart: float = 100.0, seed: int = 0) -> torch.Tensor:
    draw = seeded(seed)
    centres = apart * torch.randn(clusters, dims, generator=draw)
    points = centres.repeat_interleave(each, 0) + torch.randn(clusters * each, dims, generator=draw)
    return points[torch.randperm(len(points), generator=draw)]


@pytest.mark.parametrize("points", [torch.randn(300, 6, generator=seeded(3)), blobs(9, 30, apart=2.0)])
def test_every_point_is_nearest_to_the_mean_of_its_cluster(points: torch.Tensor) -> None:
    labels = k_means(points, 12, generator=seeded(1))
    exact = points.double()
    means = torch.stack([exact[labels == label].mean(0) for label in range(12)])
    distances = torch.cdist(exact, means)
    own = distances.gather(1, labels[:, None]).squeeze(1)
    assert bool((own <= distances.min(1).values + 1e-5).all())


@pytest.mark.parametrize("seed", range(5))
def test_clusters_far_apart_are_found(seed: int) -> None:
    points = blobs(12, 15, seed=seed)
    labels = k_means(points, 12, generator=seeded(seed))
    near = torch.cdist(points, points) < 50
    assert torch.equal(near, labels[:, None] == labels)
    picked = pick_best_of_each(labels, torch.rand(len(points), generator=seeded(seed)), 12)
    assert int(near[picked][:, picked].sum()) == 12


def test_iterations_are_limited() -> None:
    points = torch.randn(400, 6, generator=seeded(5))

    def spread(iterations: int) -> float:
        labels = k_means(points, 20, generator=seeded(2), iterations=iterations)
        return sum(float((part - part.mean(0)).square().sum()) for part in map(points.__getitem__, _rows(labels)))

    assert spread(1) > spread(10) >= spread(300)


def _rows(labels: torch.Tensor) -> list[torch.Tensor]:
    return [(labels == label).nonzero().squeeze(1) for label in labels.unique()]


def test_equal_points_share_a_cluster() -> None:
    points = torch.randn(4, 3, generator=seeded()).repeat(6, 1)
    labels = k_means(points, 10, generator=seeded())
    assert torch.equal(labels[:, None] == labels, torch.cdist(points, points) < 1e-6)


@pytest.mark.parametrize("value", [0.0, 3.5, -1e-30])
def test_a_pool_of_equal_points_is_one_cluster(value: float) -> None:
    labels = k_means(torch.full((20, 5), value), 4, generator=seeded())
    assert len(labels.unique()) == 1


@pytest.mark.parametrize("clusters", [1, 5, 6, 100])
def test_few_points(clusters: int) -> None:
    labels = k_means(torch.randn(6, 3, generator=seeded()), clusters, generator=seeded())
    assert len(labels.unique()) == min(clusters, 6)


def test_only_the_warning_about_equal_points_is_silenced(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    fit = KMeans.fit

    def grumbling(self: KMeans, points: object) -> KMeans:
        warnings.warn("something else", ConvergenceWarning, stacklevel=2)
        return fit(self, points)

    monkeypatch.setattr(KMeans, "fit", grumbling)
    with pytest.raises(ConvergenceWarning, match="something else"):
        k_means(torch.randn(20, 3, generator=seeded()), 3, generator=seeded())


def test_the_same_seed_gives_the_same_clusters_and_the_points_stay_as_they_are() -> None:
    points = torch.randn(500, 20, generator=seeded(8)) + 1000
    before = points.clone()
    first = k_means(points, 40, generator=seeded(1))
    assert torch.equal(points, before)
    assert torch.equal(first, k_means(points, 40, generator=seeded(1)))
    assert not torch.equal(first, k_means(points, 40, generator=seeded(2)))


def test_the_number_of_threads_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_info

    seen: list[int] = []
    fit = KMeans.fit

    def watched(self: KMeans, points: object) -> KMeans:
        seen.extend(pool["num_threads"] for pool in threadpool_info())
        return fit(self, points)

    monkeypatch.setattr(KMeans, "fit", watched)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    k_means(torch.randn(20, 3, generator=seeded()), 3, generator=seeded())
    assert set(seen) == {1}


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
        error = (products.nearest(torch.tensor([row])) - exact).abs()
        scale = torch.stack([(q.double().norm(dim=1) * h.double().norm(dim=1)) for q, h in pairs]).mean(0)
        assert (error <= 1e-4 * (scale + scale[row]).square()).all()


@pytest.mark.parametrize("models", [1, 2])
@pytest.mark.parametrize("width", [3, 128, 1280])
def test_copies_are_at_distance_zero_and_neighbours_are_not(width: int, models: int) -> None:
    pairs = random_pairs("far from zero", 60, width, models, 0)
    copied = [(torch.cat((q, q)), torch.cat((h, h))) for q, h in pairs]
    products = OuterProducts(copied)
    for row in (0, 31, 59, 60, 119):
        zero = (products.nearest(torch.tensor([row])) == 0).nonzero()[:, 0].tolist()
        assert zero == [row % 60, row % 60 + 60]


def test_distances_of_collapsed_features_are_told_apart() -> None:
    draw = torch.Generator().manual_seed(0)
    h = 1 + 0.01 * torch.randn((200, 1280), generator=draw)
    q = torch.tensor([0.6, -0.4, -0.2]) + 1e-3 * torch.randn((200, 3), generator=draw)
    gradients = formed([(q, h)])
    exact = (gradients - gradients[7]).square().sum(1)
    torch.testing.assert_close(OuterProducts([(q, h)]).nearest(torch.tensor([7])), exact, rtol=1e-2, atol=0)


def test_nothing_is_changed() -> None:
    pairs = random_pairs("plain", 20, 5, 2, 0)
    before = [(q.clone(), h.clone()) for q, h in pairs]
    OuterProducts(pairs).nearest(torch.tensor([3]))
    assert all(
        torch.equal(a, b)
        for pair, kept in zip(pairs, before, strict=True)
        for a, b in zip(pair, kept, strict=True)
    )


@pytest.mark.parametrize("models", [1, 2])
def test_pieces_and_pairs_of_rows_give_what_the_whole_does(models: int) -> None:
    products = OuterProducts(random_pairs("far from zero", 60, 32, models, 1))
    centres, rows = torch.tensor([3, 17, 59]), torch.tensor([17, 0, 40])
    whole = products.squared_distances(slice(None), centres)
    torch.testing.assert_close(products.nearest(centres), whole.amin(1))
    torch.testing.assert_close(products.squared_distances(rows, centres), whole[rows])
    with patch.object(kmeans, "CACHED", 0), patch.object(kmeans.kcenter, "BLOCK_NUMBERS", 200):
        parts = OuterProducts(random_pairs("far from zero", 60, 32, models, 1))
        torch.testing.assert_close(parts.nearest(centres), whole.amin(1))
    assert float(whole[17, 1]) == 0


@settings(deadline=None, max_examples=40)
@given(
    kind=st.sampled_from(["plain", "far from zero", "zeros", "huge", "minute"]),
    models=st.sampled_from([1, 2]),
    seed=st.integers(0, 10**6),
    copies=st.booleans(),
)
def test_large_pools_of_gradients_are_drawn_from_as_if_formed(
    kind: str, models: int, seed: int, copies: bool
) -> None:
    pairs = random_pairs(kind, 40, 24, models, seed)
    if copies:
        pairs = [(q[:12].repeat(4, 1), h[:12].repeat(4, 1)) for q, h in pairs]
    with patch.multiple(kmeans, **LARGE):
        rows, _ = k_means_plus_plus(OuterProducts(pairs), 35, seeded(seed))
    assert rows.tolist() == one_at_a_time(formed(pairs), 35, seeded(seed), LARGE["GROWTH"], LARGE["MISSES"])
