"""Diversity relaxation: take the highest scores, but pass over samples similar to one already chosen.

Cosines are computed in float32 with a bound on their error, and again in float64 where that leaves a doubt.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

RULES = ("nearest", "all", "none")
NOTHING, TINY = -2.0, 5e-324  # below every cosine; above zero
SAFE_NORMS = (1e-15, 1e15)  # of rows that float32 can square, sum and invert without overflow or loss of digits
SMALLEST_BLOCK, LARGEST_BLOCK = 64, 512  # candidates decided together
FIRST_CHUNK, LAST_CHUNK = 1024, 4096  # pool samples in one product: few at first, as much is settled by them
PAIR_NUMBERS = 2**18  # in a batch of float64 pairs: 2 MB stay in the cache
SPARE = 3  # nearest samples kept beyond n: enough but for crowds at nearly the same distance
SAMPLE, CROWDED = 512, 1 / 8  # pool samples to judge a ball by, and the share of the pool in it that is too much
MERGED = 2**15  # pairs up to which one product for several balls is cheaper than one for each
GLANCE = 4  # columns that, with the norm, tell most rows apart

_Rows = Tensor | slice
_Where = Tensor | None  # ascending pool samples, or all of them
_Lists = dict[int, list[int]]  # samples by sample


def relax(
    scores: Tensor, features: Tensor, budget: int, *, n: int = 5, tau: float = 0.85, rule: str = "nearest"
) -> tuple[Tensor, int]:
    """Choose `budget` samples by descending score, passing over those too similar to earlier choices.

    With N(i) = {j != i : cos(i, j) >= tau} over the whole pool (the paper's Algorithm 1), sample i is passed
    over if it has at least n neighbours and an earlier choice is one of its n nearest (rule "nearest", as in
    the authors' code) or one of all of N(i) (rule "all", as in the paper). Rule "none" takes the highest
    scores. If the walk ends short, the highest scores left fill the budget. All ties go by index; a row of
    zeros has cosine 0 to every other. The answer is that of float64 arithmetic.

    Shapes: scores [N] of any float type; features [N, D] float32 or float64, never changed. Returns the
    chosen indices in order of choice, int64 [min(budget, N)], and how many at their end were filled in.

    Raises ValueError for NaN or infinity in scores or features (naming the sample), lengths that differ,
    n < 1, tau outside [-1, 1], a negative budget or an unknown rule.

    >>> scores = torch.tensor([0.9, 0.8, 0.7])
    >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    >>> relax(scores, features, budget=2, n=1)
    (tensor([0, 2]), 0)
    """
    _check(scores, features, budget, n, tau, rule)
    order = scores.detach().argsort(descending=True, stable=True)
    budget = min(budget, len(order))
    if rule == "none" or budget == 0:
        return order[:budget], 0
    chosen = torch.tensor(_walk(_Cosines(features.detach()), order, budget, n, tau, rule), dtype=torch.int64)
    is_left = torch.ones(len(order), dtype=torch.bool).index_fill_(0, chosen, 0)
    missing = budget - len(chosen)
    return torch.cat((chosen, order[is_left[order]][:missing])), missing


def _check(scores: Tensor, features: Tensor, budget: int, n: int, tau: float, rule: str) -> None:
    if rule not in RULES:
        raise ValueError(f"The rule is one of {', '.join(RULES)}, not {rule!r}.")
    if n < 1:
        raise ValueError(f"The number of neighbours n must be at least 1, not {n}.")
    if not -1 <= tau <= 1:
        raise ValueError(f"The threshold tau is a cosine, from -1 to 1, not {tau}.")
    if budget < 0:
        raise ValueError(f"The budget must not be negative, and it is {budget}.")
    if scores.ndim != 1 or not scores.is_floating_point():
        raise ValueError(f"The scores are one float a sample, not {scores.dtype} of shape {list(scores.shape)}.")
    if features.ndim != 2 or features.dtype not in (torch.float32, torch.float64):
        given = f"{features.dtype} of shape {list(features.shape)}"
        raise ValueError(f"The features are one row a sample in float32 or float64, not {given}.")
    if len(scores) != len(features):
        raise ValueError(f"There are {len(scores)} scores but {len(features)} rows of features.")
    if not (finite := scores.isfinite()).all():
        raise ValueError(f"The score of sample {int((~finite).nonzero()[0])} is NaN or infinite.")


def _walk(cosines: _Cosines, order: Tensor, budget: int, n: int, tau: float, rule: str) -> list[int]:
    """Accept samples in order, unless one that rules them out has been accepted."""
    neighbours, chosen, start = _Neighbours(cosines, n, tau), dict[int, None](), 0
    while start < len(order) and len(chosen) < budget:
        needed = (budget - len(chosen)) * (start + 1) // (len(chosen) + 1)  # at the rate of acceptance so far
        block = order[start : start + min(LARGEST_BLOCK, max(SMALLEST_BLOCK, needed))]
        blockers = _find_blockers(neighbours, list(chosen), block, rule)
        for name in block.tolist():
            if len(chosen) < budget and chosen.keys().isdisjoint(blockers.get(name, ())):
                chosen[name] = None
        start += len(block)
    return list(chosen)


def _find_blockers(neighbours: _Neighbours, chosen: list[int], block: Tensor, rule: str) -> _Lists:
    """Return for candidates the samples that rule them out if they are accepted; nothing for most."""
    cosines, tau, first = neighbours.cosines, neighbours.tau, len(chosen)
    names = torch.cat((torch.tensor(chosen, dtype=torch.int64), block))
    units, margin = cosines.units(names), cosines.margins[torch.float32]
    quick = _product(units[first:], units)
    quick.masked_fill_(torch.ones_like(quick, dtype=torch.bool).triu_(first), NOTHING)  # only what comes earlier
    touched = (quick.amax(1) >= tau - margin).nonzero()[:, 0]
    if not len(touched):
        return {}
    candidates, quick = block[touched], quick[touched]
    anchors = names[torch.from_numpy((quick.numpy() >= tau - margin).argmax(1))]
    if rule == "nearest":
        return neighbours.find(candidates, anchors, quick.amax(1))
    lists = neighbours.find(candidates, anchors, torch.full((len(candidates),), tau))
    linked = (quick >= tau).numpy()
    row, column = np.nonzero(((quick - tau).abs_() <= 2 * margin).numpy())
    linked[row, column] = cosines.exact(candidates[row], names[column]) >= tau
    rows = zip(candidates.tolist(), linked, strict=True)
    # A sample that is not listed has n neighbours well above tau.
    return {name: names.numpy()[links].tolist() for name, links in rows if lists.get(name, [name])}


class _Neighbours:
    """Finds the n nearest samples at cosine >= tau, mostly without looking at the whole pool.

    If i is within an angle t of an anchor, then all that is within t of i is within 2 t of the anchor. One pass
    over the pool finds that ball, and the ball answers for every candidate near the anchor.
    """

    def __init__(self, cosines: _Cosines, n: int, tau: float) -> None:
        self.cosines, self.n, self.tau = cosines, n, tau
        self._size = len(cosines.features)
        slack = 4 * cosines.margins[torch.float32]
        self._edge = math.cos(min(2 * math.acos(min(1.0, max(-1.0, tau - slack))), math.pi)) - slack
        self._where = _first_copies(cosines.features, cosines.norms, n + 1)
        # By chance, as every k-th sample may be of one kind.
        self._sample = torch.randint(self._size, (SAMPLE,), generator=torch.Generator().manual_seed(0))
        self._balls: dict[int, Tensor] = {}  # by anchor, but for crowded ones: there the whole pool is looked at
        self._surveyed: set[int] = set()
        self._room = cosines.features.numel() // 8  # all balls together stay within half a copy of the pool

    def find(self, rows: Tensor, anchors: Tensor, bars: Tensor) -> _Lists:
        """Return the n nearest of each row [R], nothing if fewer than n are at cosine >= tau.

        A row's anchor [R] is a sample at cosine >= tau to it, give or take the margin. A row with n samples
        clearly nearer than its bar [R] is left out.
        """
        if new := sorted(set(anchors.tolist()) - self._surveyed):
            self._survey(torch.tensor(new))
        lists: _Lists = {}
        for places, where in self._group(anchors.tolist()):
            lists |= self._search(rows[places], where, bars[places])
        return lists

    def _group(self, anchors: list[int]) -> Iterator[tuple[list[int], _Where]]:
        """Group rows by the samples to look at for them: their anchors' balls, small ones together."""
        crowded, by_anchor = list[int](), defaultdict[int, list[int]](list)
        for place, anchor in enumerate(anchors):
            (by_anchor[anchor] if anchor in self._balls else crowded).append(place)
        if crowded:
            yield crowded, self._where
        places, balls, size = list[int](), list[Tensor](), 0
        for anchor, more in by_anchor.items():
            ball = self._balls[anchor]
            if balls and (len(places) + len(more)) * (size + len(ball)) > MERGED:
                yield places, torch.cat(balls).unique()
                places, balls, size = [], [], 0
            places, balls, size = places + more, [*balls, ball], size + len(ball)
        if balls:
            yield places, torch.cat(balls).unique()

    def _survey(self, anchors: Tensor) -> None:
        """Find the balls of new anchors in one pass over the pool, but for those that a sample shows crowded."""
        self._surveyed |= set(anchors.tolist())
        units = self.cosines.units(anchors)
        is_sparse = (self.cosines.quick(units, self._sample) >= self._edge).float().mean(1) <= CROWDED
        if not is_sparse.any():
            return
        units, groups, members = units[is_sparse], [], []
        for chunk, names in _chunks(self._where, self._size, LAST_CHUNK, LAST_CHUNK):
            quick = self.cosines.quick(units, chunk).numpy()
            flat = np.flatnonzero(quick >= self._edge)  # numpy is ten times faster at this than torch
            groups.append(torch.from_numpy(flat // quick.shape[1]))
            members.append(names[torch.from_numpy(flat % quick.shape[1])])
        group = torch.cat(groups)
        balls = torch.cat(members)[group.argsort(stable=True)].split(group.bincount(minlength=len(units)).tolist())
        for anchor, ball in zip(anchors[is_sparse].tolist(), balls, strict=True):
            if len(ball) <= min(self._room, 2 * CROWDED * self._size):
                self._balls[anchor] = ball
                self._room -= len(ball)

    def _search(
        self, rows: Tensor, where: _Where, bars: Tensor | None, dtype: torch.dtype = torch.float32, kept: int = 0
    ) -> _Lists:
        """Return the lists of rows, looking at the pool samples `where`."""
        n, tau, margin, kept = self.n, self.tau, self.cosines.margins[dtype], kept or self.n + SPARE
        units = self.cosines.units(rows, dtype)
        values, names = units.new_full((len(rows), kept), NOTHING), rows.new_full((len(rows), kept), -1)
        last_chunk = LAST_CHUNK if dtype == torch.float32 else FIRST_CHUNK  # in float64 it is a copy
        for chunk, entering in _chunks(where, self._size, FIRST_CHUNK, last_chunk):
            quick = self.cosines.quick(units, chunk)
            best = quick.topk(min(kept + 1, quick.shape[1]), dim=1)  # one of them may be the row itself
            found = entering[best.indices]
            cosines = best.values.masked_fill_(found == rows[:, None], NOTHING)
            values, places = torch.cat((values, cosines), 1).topk(kept, dim=1)
            names = torch.cat((names, found), 1).gather(1, places)
            if bars is not None and not (is_open := values[:, n - 1] <= bars + 2 * margin).all():
                rows, units, bars, values, names = (each[is_open] for each in (rows, units, bars, values, names))
        last = values[:, n - 1]
        is_clear = (last < tau - margin) | ((last > tau + margin) & (values[:, n] < last - 2 * margin))
        bound = last.clamp_min(tau) - 2 * margin  # what is below is not one of the n nearest at cosine >= tau
        is_short = ~is_clear & (values[:, -1] >= bound)
        cosines, doubtful = values.double(), (~is_clear & ~is_short).nonzero()[:, 0]
        if len(doubtful):
            is_possible = values[doubtful] >= bound[doubtful, None]
            cosines[doubtful], names[doubtful] = self._sort(rows[doubtful], names[doubtful], is_possible)
        nearest = zip(rows.tolist(), names[:, :n].tolist(), (cosines[:, n - 1] >= tau).tolist(), strict=True)
        lists = {name: each if is_full else [] for name, each, is_full in nearest}
        if is_short.any():
            # Float64 tells apart what float32 cannot. What it cannot are copies but for length: keep all of them.
            more = kept if dtype == torch.float32 else 4 * kept
            lists |= self._search(rows[is_short], where, None, torch.float64, more)
        return lists

    def _sort(self, rows: Tensor, names: Tensor, is_possible: Tensor) -> tuple[Tensor, Tensor]:
        """Return exact cosines of rows [R] to the possible ones among the names [R, K], nearest first."""
        names, by_name = names.sort(dim=1)  # for ties
        row, place = is_possible.gather(1, by_name).nonzero(as_tuple=True)
        exact = torch.full(names.shape, NOTHING, dtype=torch.float64)
        exact[row, place] = self.cosines.exact(rows[row], names[row, place])
        exact, order = exact.sort(dim=1, descending=True, stable=True)
        return exact, names.gather(1, order)


class _Cosines:
    """The cosines of a pool's features [N, D]: quick ones within a margin of the exact ones."""

    def __init__(self, features: Tensor) -> None:
        self.norms: Tensor = torch.linalg.vector_norm(features, dim=1)
        if _has_extreme_rows(features, self.norms):
            features = features.double() / features.abs().amax(1, keepdim=True).double().clamp_min_(TINY)
            self.norms = torch.linalg.vector_norm(features, dim=1)
        self.features = features
        self._inverse = self.norms.reciprocal().masked_fill_(self.norms == 0, 0).float()
        # D roundings in a product, D / 16 in the norms, a few more; twice in float64, as exact ones are rounded.
        roundings = 1.1 * features.shape[1] + 16
        self.margins = {torch.float32: roundings * 2.0**-24, torch.float64: roundings * 2.0**-52}

    def units(self, rows: _Rows, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return rows at length 1; zeros stay zeros."""
        if dtype == torch.float32:
            return self._take(rows).float() * self._inverse[rows, None]
        units: Tensor = normalize(self._take(rows).double(), dim=1, eps=TINY)
        return units

    def quick(self, units: Tensor, rows: _Rows) -> Tensor:
        """Return the cosines [len(units), len(rows)] in the type of the units."""
        if units.dtype == torch.float64:
            return _product(units, self.units(rows, torch.float64))
        return _product(units, self._take(rows).float()).mul_(self._inverse[rows])

    def exact(self, left: Tensor, right: Tensor) -> Tensor:
        """Return float64 cosines of the pairs (left[k], right[k]); equal rows give equal bits."""
        size, parts = max(1, PAIR_NUMBERS // max(1, self.features.shape[1])), [left[:0].double()]
        for pairs in torch.stack((left, right)).split(size, dim=1):
            # Two threads would sum the halves of a very long row if it were alone.
            rows, (a, b) = pairs.repeat(1, 2 if pairs.shape[1] == 1 else 1).unique(return_inverse=True)
            units = self.units(rows, torch.float64)
            parts.append((units[a] * units[b]).sum(1)[: pairs.shape[1]])
        return torch.cat(parts)

    def _take(self, rows: _Rows) -> Tensor:
        # Twice as fast as an index in brackets; a slice stays a view.
        return self.features[rows] if isinstance(rows, slice) else self.features.index_select(0, rows)


def _product(left: Tensor, right: Tensor) -> Tensor:
    return left @ right.T  # every large matrix product of the relaxation


def _chunks(where: _Where, size: int, first: int, last: int) -> Iterator[tuple[_Rows, Tensor]]:
    """Yield the samples of a pool of `size` in pieces that grow from `first` to `last`, as rows and by name."""
    start, step, stop = 0, first, size if where is None else len(where)
    while start < stop:
        rows = slice(start, min(start + step, stop))
        yield (rows, torch.arange(rows.start, rows.stop)) if where is None else (where[rows], where[rows])
        start, step = rows.stop, min(2 * step, last)


def _has_extreme_rows(features: Tensor, norms: Tensor) -> bool:
    """Tell whether a row other than zeros has a norm outside the safe range; refuse NaN and infinity."""
    is_extreme = False
    for rows in (~((norms > SAFE_NORMS[0]) & (norms < SAFE_NORMS[1]))).nonzero()[:, 0].split(FIRST_CHUNK):
        if not (finite := features[rows].isfinite().all(1)).all():
            raise ValueError(f"The features of sample {int(rows[~finite][0])} contain NaN or infinity.")
        is_extreme = is_extreme or bool(features[rows].any())
    return is_extreme


def _first_copies(features: Tensor, norms: Tensor, most: int) -> _Where:
    """Return the rows [K] that are left when each row keeps its first `most` copies.

    Of many equal rows only the first n + 1 can be among the n nearest of any, as ties go by index.
    """
    glance = torch.cat((norms[:, None], features[:, :: max(1, features.shape[1] // GLANCE)]), 1)
    weights = torch.randint(2**62, (glance.shape[1],), generator=torch.Generator().manual_seed(0))
    keys = (glance.double().view(torch.int64) * (2 * weights + 1)).sum(1)
    ascending = np.sort(keys.numpy())  # several times as fast as torch's, and mostly all that is needed
    if not (ascending[most:] == ascending[:-most]).any():
        return None
    keys, order = keys.sort(stable=True)
    size = keys.unique_consecutive(return_counts=True)[1]
    leader = (size.cumsum(0) - size).repeat_interleave(size)  # the first with the same key
    is_copy = (size > most).repeat_interleave(size)
    for part in is_copy.nonzero()[:, 0].split(FIRST_CHUNK):  # two different rows may share a key
        is_copy[part] = (features[order[part]] == features[order[leader[part]]]).all(1)
    copies = is_copy.cumsum(0)
    return order[~(is_copy & (copies - copies[leader] >= most))].sort().values
