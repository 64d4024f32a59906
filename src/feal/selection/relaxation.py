"""Diversity relaxation: the most uncertain samples, without those that look like one already chosen."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from feal.selection.cosines import Cosines, product
from feal.selection.nearest import NOTHING, Lists
from feal.selection.neighbours import Neighbours

RULES = ("nearest", "all", "none")
SMALLEST_BLOCK, LARGEST_BLOCK = 64, 512  # candidates looked at together


def relax(
    scores: Tensor, features: Tensor, budget: int, n: int = 5, tau: float = 0.85, rule: str = "nearest"
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
    chosen = _Walk(features.detach(), order, budget, n, tau, rule).chosen()
    return _filled(chosen, order, budget)


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
        raise ValueError(
            "The features are one row a sample in float32 or float64, "
            f"not {features.dtype} of shape {list(features.shape)}."
        )
    if len(scores) != len(features):
        raise ValueError(f"There are {len(scores)} scores but {len(features)} rows of features.")
    if not (finite := scores.isfinite()).all():
        raise ValueError(f"The score of sample {int((~finite).nonzero()[0])} is NaN or infinite.")


def _filled(chosen: Tensor, order: Tensor, budget: int) -> tuple[Tensor, int]:
    missing = budget - len(chosen)
    if not missing:
        return chosen, 0
    left = torch.ones(len(order), dtype=torch.bool)
    left[chosen] = False
    return torch.cat((chosen, order[left[order]][:missing])), missing


class _Walk:
    """One walk down the ranking, block by block."""

    def __init__(self, features: Tensor, order: Tensor, budget: int, n: int, tau: float, rule: str) -> None:
        self._cosines, self._order = Cosines(features), order
        self._margin = self._cosines.margins[torch.float32]
        self._budget, self._n, self._tau, self._rule = budget, n, tau, rule
        self._chosen: list[int] = []
        self._taken: set[int] = set()
        # The rows of the chosen samples, followed by those of the block at hand.
        self._units = torch.empty((budget + LARGEST_BLOCK, features.shape[1]))
        self._later = torch.ones((LARGEST_BLOCK, LARGEST_BLOCK), dtype=torch.bool).triu_()

    def chosen(self) -> Tensor:
        """The samples accepted, in order of choice."""
        start = 0
        while start < self._order.numel() and len(self._chosen) < self._budget:
            block = self._order[start : start + self._block_size(start)]
            self._decide(block, self._blockers(block))
            start += block.numel()
        return torch.tensor(self._chosen, dtype=torch.int64)

    def _block_size(self, seen: int) -> int:
        """About as many candidates as are needed at the rate of acceptance so far."""
        missing = self._budget - len(self._chosen)
        needed = missing * (seen + 1) // (len(self._chosen) + 1)
        return min(LARGEST_BLOCK, max(SMALLEST_BLOCK, needed))

    def _decide(self, block: Tensor, blockers: Lists) -> None:
        """Accepts each candidate in turn unless one of its blockers has been accepted."""
        first, missing = len(self._chosen), self._budget - len(self._chosen)
        places = []
        for place, name in enumerate(block.tolist()):
            if self._taken.isdisjoint(blockers.get(name, ())):
                self._chosen.append(name)
                self._taken.add(name)
                places.append(first + place)
                if len(places) == missing:
                    return
        kept = torch.tensor(places, dtype=torch.int64)
        self._units[first : first + len(places)] = self._units.index_select(0, kept)

    def _blockers(self, block: Tensor) -> Lists:
        """For each candidate the samples that rule it out if they are accepted; nothing for most."""
        cosines = self._to_earlier(block)
        bars = cosines.amax(1)
        edge = self._tau - self._margin
        touched = (bars >= edge).nonzero()[:, 0]
        if not touched.numel():
            return {}
        candidates, cosines = block[touched], cosines[touched]
        names = torch.cat((torch.tensor(self._chosen, dtype=torch.int64), block))
        earliest = (cosines.numpy() >= edge).argmax(1)  # more likely than the nearest to be a known anchor
        if self._rule == "all":
            return self._among_all(candidates, names[earliest], cosines, names)
        return self._lists.find(candidates, names[earliest], bars[touched])

    def _to_earlier(self, block: Tensor) -> Tensor:
        """Quick cosines of the block's samples to all that is chosen or comes earlier in the block."""
        first, size = len(self._chosen), block.numel()
        self._units[first : first + size] = self._cosines.units(block)
        cosines = product(self._units[first : first + size], self._units[: first + size])
        cosines[:, first:].masked_fill_(self._later[:size, :size], NOTHING)
        return cosines

    @cached_property
    def _lists(self) -> Neighbours:
        """Made at the first need, as many walks never look beyond the chosen samples."""
        return Neighbours(self._cosines, self._n, self._tau, self._order)

    def _among_all(self, candidates: Tensor, anchors: Tensor, cosines: Tensor, names: Tensor) -> Lists:
        """Rule "all": every earlier neighbour, for the candidates with n neighbours in the pool."""
        lists = self._lists.find(candidates, anchors, bars=torch.full((candidates.numel(),), self._tau))
        linked, count = self._linked(candidates, cosines, names), len(self._chosen)
        ruled_out, block = linked[:, :count].any(1).tolist(), names[count:]
        blockers: Lists = {}
        for row, name in enumerate(candidates.tolist()):
            if lists.get(name, [name]):  # not listed: it has n neighbours well above tau
                blockers[name] = self._chosen[:1] if ruled_out[row] else block[linked[row, count:]].tolist()
        return blockers

    def _linked(self, candidates: Tensor, cosines: Tensor, names: Tensor) -> Tensor:
        """Whether the cosine is >= tau, for certain."""
        quick, slack = cosines.numpy(), 2 * self._margin
        linked = torch.from_numpy(quick >= self._tau)
        row, column = np.nonzero((quick >= self._tau - slack) & (quick <= self._tau + slack))
        linked[row, column] = self._cosines.exact(candidates[row], names[column]) >= self._tau
        return linked
