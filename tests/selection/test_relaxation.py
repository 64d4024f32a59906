import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize

from feal.selection import relaxation
from feal.selection.relaxation import relax
from tests.paths import PROJECT

RULES = ("nearest", "all", "none")


class Pool(NamedTuple):
    scores: Tensor
    features: Tensor


# The method in float64, written straight from its description


def similarity(features: Tensor) -> Tensor:
    units = normalize(features.double(), dim=1, eps=5e-324)
    return torch.stack([(units * unit).sum(1) for unit in units]) if len(units) else torch.empty(0, 0)


def accepts(i: int, cosines: list[float], accepted: set[int], n: int, tau: float, rule: str) -> bool:
    neighbourhood = [j for j, cosine in enumerate(cosines) if j != i and cosine >= tau]
    if rule == "none" or len(neighbourhood) < n:
        return True
    if rule == "nearest":
        neighbourhood = sorted(neighbourhood, key=lambda j: (-cosines[j], j))[:n]
    return accepted.isdisjoint(neighbourhood)


def reference(pool: Pool, budget: int, n: int, tau: float, rule: str) -> tuple[list[int], int]:
    scores, cosines = pool.scores.tolist(), similarity(pool.features).tolist()
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    accepted: list[int] = []
    for i in order:
        if len(accepted) < budget and accepts(i, cosines[i], set(accepted), n, tau, rule):
            accepted.append(i)
    filled = [i for i in order if i not in set(accepted)][: budget - len(accepted)]
    return accepted + filled, len(filled)


def agree(pool: Pool, budget: int, n: int, tau: float, rule: str) -> None:
    chosen, filled = relax(pool.scores, pool.features, budget, n=n, tau=tau, rule=rule)
    assert (chosen.tolist(), filled) == reference(pool, budget, n, tau, rule)
    assert chosen.dtype == torch.int64


# Pools


def clustered(draw: torch.Generator, size: int, width: int, clusters: int, spread: float) -> Tensor:
    label = torch.randint(clusters, (size,), generator=draw)
    centre = torch.randn((clusters, width), generator=draw)
    return centre[label] + spread * torch.rand((size, 1), generator=draw) * torch.randn(
        (size, width), generator=draw
    )


def random_features(kind: str, size: int, width: int, draw: torch.Generator) -> Tensor:
    noise = torch.randn((size, width), generator=draw)
    if kind == "cone":
        return noise.abs() + 1
    if kind == "whole numbers":
        return noise.round().clamp(-1, 1)
    if kind == "zeros":
        return noise * (torch.rand((size, 1), generator=draw) < 0.5)
    if kind == "wild":
        return noise * 10.0 ** torch.randint(-30, 30, (size, 1), generator=draw)
    if kind == "copies":
        return noise[torch.randint(max(1, size // 12), (size,), generator=draw)] if size else noise
    spread = {"clusters": 0.4, "tight": 1e-3, "near copies": 1e-7, "plain": None}[kind]
    return noise if spread is None else clustered(draw, size, width, max(1, size // 12), spread)


KINDS = ["plain", "clusters", "tight", "near copies", "copies", "cone", "whole numbers", "zeros", "wild"]


def random_pool(kind: str, size: int, width: int, seed: int, levels: int) -> Pool:
    """Scores are all different (levels 0), or take that many values."""
    draw = torch.Generator().manual_seed(seed)
    scores = torch.rand(size, generator=draw, dtype=torch.float64)
    return Pool((scores * levels).floor() if levels else scores, random_features(kind, size, width, draw))


@contextmanager
def in_pieces(block: int, chunk: int) -> Iterator[None]:
    """As if the pool were large: small blocks and chunks, and balls where they would not pay."""
    constants = {"SMALLEST_BLOCK": min(2, block), "LARGEST_BLOCK": block, "SPARE": 1}
    constants |= {"FIRST_CHUNK": chunk, "LAST_CHUNK": 2 * chunk, "CROWDED": 0.5, "MERGED": 40}
    with patch.multiple(relaxation, **constants):
        yield


# Against the reference


@pytest.mark.slow
@settings(deadline=None, max_examples=120)
@given(
    kind=st.sampled_from(KINDS),
    size=st.integers(0, 70),
    width=st.sampled_from([1, 2, 3, 8, 17]),
    seed=st.integers(0, 10**6),
    levels=st.sampled_from([0, 1, 3]),
    budget=st.integers(0, 80),
    n=st.sampled_from([1, 2, 5, 10, 100]),
    tau=st.sampled_from([-1.0, -0.3, 0.0, 0.5, 0.7, 0.85, 0.99, 1.0]),
    pieces=st.sampled_from([None, (1, 2), (5, 3), (16, 8)]),
)
@example("copies", 70, 3, 0, 1, 60, 5, 0.85, None)
def test_agrees_with_float64_brute_force(
    kind: str,
    size: int,
    width: int,
    seed: int,
    levels: int,
    budget: int,
    n: int,
    tau: float,
    pieces: tuple[int, int] | None,
) -> None:
    pool = random_pool(kind, size, width, seed, levels)
    with in_pieces(*pieces) if pieces else ExitStack():
        for rule in RULES:
            agree(pool, budget, n, tau, rule)


@pytest.mark.parametrize("rule", ["nearest", "all"])
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_over_several_blocks(kind: str, rule: str) -> None:
    agree(random_pool(kind, 1200, 24, 3, 0), 300, 3, 0.85, rule)


@pytest.mark.parametrize("rule", ["nearest", "all"])
def test_agrees_where_each_cluster_is_walked_through_in_turn(rule: str) -> None:
    draw = torch.Generator().manual_seed(5)
    label = torch.arange(900).div(15, rounding_mode="floor")
    features = torch.randn((60, 32), generator=draw)[label] + 0.1 * torch.randn((900, 32), generator=draw)
    shuffled = torch.randperm(900, generator=draw)
    pool = Pool(-shuffled.double(), features[shuffled])
    agree(pool, 200, 5, 0.85, rule)
    agree(pool, 900, 2, 0.85, rule)


@pytest.mark.parametrize("rule", ["nearest", "all"])
def test_agrees_where_neighbourhoods_overlap_all_along(rule: str) -> None:
    draw = torch.Generator().manual_seed(6)
    angle = 2 * torch.pi * torch.rand(400, generator=draw)
    pool = Pool(torch.rand(400, generator=draw), torch.stack((angle.cos(), angle.sin()), dim=1))
    for tau in (0.9, 0.99, 0.999):
        with in_pieces(16, 50):
            agree(pool, 200, 3, tau, rule)
        agree(pool, 200, 3, tau, rule)


@pytest.mark.parametrize("rule", ["nearest", "all"])
def test_cosines_at_the_threshold_to_the_last_bit(rule: str) -> None:
    draw = torch.Generator().manual_seed(2)
    pool = Pool(torch.rand(60, generator=draw), torch.randn((60, 6), generator=draw))
    largest = similarity(pool.features).triu(1).flatten().topk(20).values
    for tau in largest.tolist():
        for threshold in (np.nextafter(tau, -2), tau, np.nextafter(tau, 2)):
            agree(pool, 60, 1, float(threshold), rule)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", ["clusters", "cone", "tight"])
def test_does_not_depend_on_the_order_of_the_pool(kind: str, rule: str) -> None:
    scores, features = random_pool(kind, 700, 40, 11, 0)
    expected, filled = relax(scores, features, 250, n=4, tau=0.85, rule=rule)
    for seed in range(3):
        order = torch.randperm(700, generator=torch.Generator().manual_seed(seed))
        chosen, also_filled = relax(scores[order], features[order], 250, n=4, tau=0.85, rule=rule)
        assert torch.equal(order[chosen], expected)
        assert also_filled == filled


def test_float32_and_float64_features_and_any_score_type_agree() -> None:
    scores, features = random_pool("clusters", 200, 16, 4, 0)
    expected = relax(scores.half(), features, 60, n=3)
    for kind in (torch.float32, torch.float64):
        chosen, filled = relax(scores.half().to(kind), features.to(kind), 60, n=3)
        assert torch.equal(chosen, expected[0])
        assert filled == expected[1]
    assert len(relax(scores.bfloat16(), features, 60)[0]) == 60


# Against the authors' code


def golden(name: str) -> Any:
    return json.loads((PROJECT / "tests" / "golden" / f"{name}.json").read_text())


def ranked(order: list[int]) -> Tensor:
    """Scores that put the samples in this order."""
    return -torch.tensor(order).argsort().double()


STRONG = golden("d3_relaxation_strong")


@pytest.mark.parametrize("case", STRONG["sel"], ids=lambda case: f"n{case['n']}-tau{case['tau']}")
def test_golden_choices(case: dict[str, Any]) -> None:
    features, scores = torch.tensor(STRONG["features_f32"]), torch.tensor(STRONG["ref_uncertainty"])
    budget, n, tau = case["budget"], case["n"], case["tau"]
    for rule, expected in (("nearest", case["ref_chosen"]), ("all", case["paper_alg1_chosen"])):
        chosen, filled = relax(scores, features, budget, n=n, tau=tau, rule=rule)
        assert chosen[: budget - filled].tolist() == expected
        assert len(chosen) == budget
    assert relax(scores, features, budget, rule="none")[0].tolist() == STRONG["ref_rank_desc"][:budget]


@pytest.mark.parametrize(("rule", "key"), [("nearest", "ref_chosen"), ("all", "paper_alg1")])
def test_golden_shortfall_is_filled_by_score(rule: str, key: str) -> None:
    case = golden("d2_relaxation_edge")["shortfall"]
    features = torch.tensor(case["features_f32"])
    chosen, filled = relax(
        ranked(case["order"]), features, case["budget"], n=case["n"], tau=case["tau"], rule=rule
    )
    left = [i for i in case["order"] if i not in case[key]]
    assert filled == case["budget"] - len(case[key])
    assert chosen.tolist() == case[key] + left[:filled]


@pytest.mark.parametrize("case", range(3))
def test_golden_duplicates(case: int) -> None:
    pool = golden("d2_relaxation_edge")["duplicates"]
    n, tau = pool["cases"][case]["n"], pool["cases"][case]["tau"]
    for rule, key in (("nearest", "clean_topn"), ("all", "paper_alg1")):
        chosen, filled = relax(
            ranked(pool["order"]), torch.tensor(pool["features_f32"]), 20, n=n, tau=tau, rule=rule
        )
        assert chosen[: 20 - filled].tolist() == pool["cases"][case][key]


# Edges


def test_ties_in_score_go_by_index() -> None:
    features = torch.eye(6)
    assert relax(torch.zeros(6), features, 4)[0].tolist() == [0, 1, 2, 3]
    assert relax(torch.tensor([0.0, 1, 0, 1, 0, 1]), features, 5)[0].tolist() == [1, 3, 5, 0, 2]


def test_a_walk_that_ends_short_is_filled_with_the_highest_scores_left() -> None:
    scores, features = torch.tensor([0.1, 0.9, 0.5, 0.7, 0.3]), torch.ones(5, 3)
    chosen, filled = relax(scores, features, 4, n=1, rule="all")
    assert (chosen.tolist(), filled) == ([1, 3, 2, 4], 3)


def test_among_copies_the_nearest_are_those_of_lowest_index() -> None:
    scores, features = torch.tensor([0.0, 1, 2, 3, 4, 5, 6, 7]), torch.ones(8, 2)
    # 7 to 3 have 0 and 1 as their two nearest; 2 is taken likewise, then 1 has 0 and 2.
    assert relax(scores, features, 8, n=2)[0].tolist() == [7, 6, 5, 4, 3, 2, 1, 0]
    assert relax(scores, features, 8, n=2)[1] == 2


def test_a_row_of_zeros_is_like_nothing() -> None:
    features = torch.tensor([[0.0, 0], [0, 0], [0, 0], [1, 0], [1, 0]])
    chosen, filled = relax(torch.arange(5.0), features, 5, n=1, tau=0.5)
    assert (chosen.tolist(), filled) == ([4, 2, 1, 0, 3], 1)
    # At a threshold of 0 it is everyone's neighbour: 0 >= 0.
    assert relax(torch.arange(5.0), features, 5, n=1, tau=0.0, rule="all")[1] == 4


@pytest.mark.parametrize("rule", RULES)
def test_nothing_to_choose(rule: str) -> None:
    for scores, features, budget in (
        (torch.empty(0), torch.empty(0, 3), 4),
        (torch.rand(5), torch.rand(5, 3), 0),
    ):
        chosen, filled = relax(scores, features, budget, rule=rule)
        assert (chosen.shape, chosen.dtype, filled) == ((0,), torch.int64, 0)


@pytest.mark.parametrize("rule", RULES)
def test_more_budget_than_pool_and_features_without_columns(rule: str) -> None:
    assert relax(torch.rand(3), torch.rand(3, 2), 10, rule=rule)[0].sort().values.tolist() == [0, 1, 2]
    assert relax(torch.arange(30.0), torch.empty(30, 0), 2, n=1, rule=rule)[0].tolist() == [29, 28]


def test_mapped_features_are_only_read(tmp_path: Path) -> None:
    scores, features = random_pool("clusters", 150, 8, 1, 0)
    path = tmp_path / "features.npy"
    np.save(path, features.numpy())
    mapped = torch.from_numpy(np.load(path, mmap_mode="c"))
    assert torch.equal(relax(scores, mapped, 50)[0], relax(scores, features, 50)[0])
    assert torch.equal(mapped, features)


def test_features_in_any_layout_and_with_gradients() -> None:
    scores, features = random_pool("copies", 150, 9, 1, 0)
    expected = relax(scores, features, 50)[0]
    assert torch.equal(relax(scores, features.T.contiguous().T, 50)[0], expected)
    assert torch.equal(relax(scores.requires_grad_(), features.requires_grad_(), 50)[0], expected)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rule": "most"}, r"rule is one of nearest, all, none, not 'most'"),
        ({"n": 0}, "at least 1, not 0"),
        ({"tau": 1.5}, r"from -1 to 1, not 1\.5"),
        ({"tau": float("nan")}, "from -1 to 1, not nan"),
        ({"budget": -1}, "must not be negative"),
        ({"scores": torch.zeros(3)}, "3 scores but 4 rows"),
        ({"scores": torch.zeros(4, 1)}, "one float a sample"),
        ({"scores": torch.arange(4)}, "one float a sample"),
        ({"scores": torch.tensor([0, 1, float("nan"), float("nan")])}, "score of sample 2 is NaN"),
        ({"scores": torch.tensor([0, float("-inf"), 0, 0])}, "score of sample 1 is NaN or infinite"),
        ({"features": torch.zeros(4)}, "one row a sample"),
        ({"features": torch.zeros(4, 2, dtype=torch.float16)}, "float32 or float64"),
        ({"features": torch.tensor([[0.0], [1], [2], [float("inf")]])}, "features of sample 3"),
        ({"features": torch.tensor([[0.0], [float("nan")], [2], [float("inf")]])}, "features of sample 1"),
    ],
)
def test_refuses(wrong: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"scores": torch.rand(4), "features": torch.rand(4, 2), "budget": 2} | wrong
    with pytest.raises(ValueError, match=message):
        relax(**arguments)


# The parts it stands on


@pytest.mark.parametrize("width", [1, 7, 128, 1008, 20_000])
@pytest.mark.parametrize("kind", ["constant", "positive", "signed"])
def test_quick_cosines_keep_within_their_margin(kind: str, width: int) -> None:
    draw = torch.Generator().manual_seed(0)
    rows = 0.1 + 1e-3 * torch.randn((30, 1), generator=draw)
    features = {
        "constant": rows.expand(30, width),
        "positive": torch.rand((30, width), generator=draw) + 0.5,
        "signed": torch.randn((30, width), generator=draw),
    }[kind].contiguous()
    cosines, everyone = relaxation._Cosines(features), torch.arange(30)
    left, right = torch.cartesian_prod(everyone, everyone).unbind(1)
    exact = cosines.exact(left, right).view(30, 30)
    for dtype, margin in cosines.margins.items():
        quick = cosines.quick(cosines.units(everyone, dtype), slice(0, 30))
        assert quick.dtype == dtype
        assert (quick.double() - exact).abs().max() <= margin


def test_an_exact_cosine_does_not_depend_on_the_others_asked_for() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        cosines = relaxation._Cosines(torch.randn((6, 40_000), generator=torch.Generator().manual_seed(0)))
        left, right = torch.tensor([0, 1, 2, 3]), torch.tensor([5, 4, 3, 1])
        together = cosines.exact(left, right)
        alone = torch.cat([cosines.exact(left[k : k + 1], right[k : k + 1]) for k in range(4)])
        assert torch.equal(together, alone)
        assert torch.equal(together, cosines.exact(right, left))
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("width", [3, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_first_copies(width: int, dtype: torch.dtype) -> None:
    one, other = torch.eye(width, dtype=dtype)[:2]  # the same norm
    features = torch.stack([one, other, one, one, other, one, 2 * one])
    norms = torch.linalg.vector_norm(features, dim=1)
    assert relaxation._first_copies(features, norms, 4) is None
    left = relaxation._first_copies(features, norms, 2)
    assert left is not None
    assert left.tolist() == [0, 1, 2, 4, 6]


def test_rows_that_share_a_key_are_compared() -> None:
    first = torch.zeros(9)
    first[1] = 1  # not one of the columns that are looked at
    other = torch.zeros(9)
    other[3] = 1
    features = torch.stack([first, other, first, other, first, first, other])
    left = relaxation._first_copies(features, torch.linalg.vector_norm(features, dim=1), 2)
    assert left is not None
    assert left.tolist() == [0, 1, 2, 3, 6]  # copies of what has the key first are dropped, others stay
