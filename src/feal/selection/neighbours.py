"""The nearest neighbours of pool samples, mostly found without looking at the whole pool for each."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from feal.selection.copies import first_copies
from feal.selection.cosines import Cosines, Rows, product
from feal.selection.nearest import Lists, Nearest, chunks

SURVEYED = 64  # anchors in one pass over the pool: a matrix product is at full speed there
SAMPLE = 512  # pool samples that tell a crowded ball from a sparse one
CHUNK = 4096  # pool samples in one product of such a pass
CROWDED = 1 / 8  # share of the pool from which on a ball is no saving
WIDE = 0.5  # below this threshold (60 degrees) a ball holds most of any pool
MERGED = 2**15  # pairs up to which one product for several balls is cheaper than one for each

Search = tuple[Tensor, Tensor]  # rows, and the samples to look at for their neighbours


class Ball(NamedTuple):
    """What lies around an anchor."""

    members: Tensor  # within twice the angle of tau, ascending
    near: Tensor  # within the angle of tau, in the order of the walk


class Neighbours:
    """Answers `Nearest` lists for a walk over the pool in a given order, from balls around anchors.

    If i is within an angle t of an anchor, then all that is within t of i is within 2 t of the anchor. One
    pass over the pool finds that ball, and the ball answers for every candidate near the anchor.
    """

    def __init__(self, cosines: Cosines, n: int, tau: float, order: Tensor) -> None:
        self._cosines, self._size, self._tau = cosines, len(cosines), tau
        self._nearest = Nearest(cosines, n, tau)
        self._pool = first_copies(cosines.features, cosines.norms, n + 1)
        self._rank = torch.empty_like(order).scatter_(0, order, torch.arange(self._size))
        # By chance, as every k-th sample may be of one kind.
        sample = torch.randint(self._size, (SAMPLE,), generator=torch.Generator().manual_seed(0))
        self._sample = cosines.units(sample)
        self._known: Lists = {}
        self._answered = torch.zeros(self._size, dtype=torch.bool)
        self._balls: dict[int, Ball | None] = {}  # None: crowded, look at the whole pool
        self._room = cosines.features.numel() // 8  # all balls together stay within half a copy of the pool
        slack = 4 * cosines.margins[torch.float32]
        widest = 2 * math.acos(min(1.0, max(-1.0, tau - slack)))
        self._near, self._edge = tau - slack, math.cos(min(widest, math.pi)) - slack

    def find(self, candidates: Tensor, anchors: Tensor, bars: Tensor) -> Lists:
        """The lists of the candidates [K], without those that have n samples clearly nearer than their bar.

        Each candidate's anchor is a sample at cosine >= tau to it, give or take the margin.
        """
        asked = list(zip(candidates.tolist(), anchors.tolist(), strict=True))
        self._survey(sorted({anchor for name, anchor in asked if name not in self._known} - self._balls.keys()))
        by_anchor, rest = self._unanswered(asked)
        searches = [self._search(ball, candidates[places]) for ball, places in by_anchor]
        for rows, where in merged(searches):
            self._known |= self._nearest.lists(rows, where)
        if rest:
            self._known |= self._nearest.lists(candidates[rest], self._pool, bars[rest])
        return {name: self._known.pop(name) for name, _ in asked if name in self._known}

    def _unanswered(self, asked: list[tuple[int, int]]) -> tuple[list[tuple[Ball, list[int]]], list[int]]:
        """The places of the candidates without a list: by the ball to look into, and those without a ball."""
        by_anchor: dict[int, list[int]] = defaultdict(list)
        rest: list[int] = []
        for place, (name, anchor) in enumerate(asked):
            if name not in self._known:
                (rest if self._balls[anchor] is None else by_anchor[anchor]).append(place)
        return [(ball, places) for a, places in by_anchor.items() if (ball := self._balls[a])], rest

    def _search(self, ball: Ball, rows: Tensor) -> Search:
        """A search for these rows and for the next ones near the anchor, at most at the cost of a pass."""
        self._answered[rows] = True
        ahead = ball.near[~self._answered[ball.near]][: self._size // ball.members.numel()]
        self._answered[ahead] = True
        return torch.cat((rows, ahead)), ball.members

    def _survey(self, anchors: list[int]) -> None:
        """Finds the balls of new anchors."""
        self._balls |= dict.fromkeys(anchors)
        for part in self._sparse(torch.tensor(anchors, dtype=torch.int64)).split(SURVEYED):
            for anchor, ball in zip(part.tolist(), self._drawn(part), strict=True):
                if ball.members.numel() <= min(self._room, 2 * CROWDED * self._size):
                    self._balls[anchor] = ball
                    self._room -= ball.members.numel() + ball.near.numel()

    def _sparse(self, anchors: Tensor) -> Tensor:
        """The anchors whose ball is a small part of the pool, judged by a sample of it."""
        if self._tau < WIDE or not anchors.numel():
            return anchors[:0]
        inside = product(self._sample, self._cosines.units(anchors)) >= self._edge
        return anchors[inside.float().mean(0) <= CROWDED]

    def _drawn(self, anchors: Tensor) -> Iterator[Ball]:
        """The balls of the anchors, in one pass over the pool."""
        units = self._cosines.units(anchors)
        found = [self._inside(chunk, units) for chunk in chunks(self._pool, self._size, CHUNK, CHUNK)]
        column, member, cosine = (torch.cat(parts) for parts in zip(*found, strict=True))
        near = (cosine >= self._near).nonzero()[:, 0]
        near = near[self._rank[member[near]].argsort()]
        members = _apart(member, column, anchors.numel())
        return map(Ball, members, _apart(member[near], column[near], anchors.numel()))

    def _inside(self, chunk: Rows, units: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The pairs inside a ball as three vectors: number of the anchor, member, cosine."""
        cosines = self._cosines.by_column(chunk, units).numpy().ravel()
        flat = np.flatnonzero(cosines >= self._edge)  # numpy is ten times faster at this than torch
        row, column = (torch.from_numpy(part) for part in np.divmod(flat, units.shape[0]))
        member = row + chunk.start if isinstance(chunk, slice) else chunk[row]
        return column, member, torch.from_numpy(cosines[flat])


def _apart(members: Tensor, group: Tensor, groups: int) -> tuple[Tensor, ...]:
    """The members of each group, in the order given."""
    sizes: list[int] = group.bincount(minlength=groups).tolist()
    return torch.split(members[group.argsort(stable=True)], sizes)


def merged(searches: list[Search]) -> Iterator[Search]:
    """The same searches in fewer pieces: to look at more samples than needed does no harm."""
    batch: list[Search] = []
    rows = columns = 0
    for search in searches:
        rows, columns = rows + search[0].numel(), columns + search[1].numel()
        if batch and rows * columns > MERGED:
            yield _union(batch)
            batch, rows, columns = [], search[0].numel(), search[1].numel()
        batch.append(search)
    if batch:
        yield _union(batch)


def _union(batch: list[Search]) -> Search:
    if len(batch) == 1:
        return batch[0]
    return torch.cat([rows for rows, _ in batch]), torch.cat([where for _, where in batch]).unique()
