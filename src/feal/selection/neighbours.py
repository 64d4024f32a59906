"""The n nearest neighbours of pool samples, found exactly and mostly without looking at the whole pool."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from feal.selection.copies import first_copies
from feal.selection.cosines import Cosines, Rows

NOTHING = -2.0  # below every cosine
FIRST_CHUNK, LAST_CHUNK = 512, 4096  # pool rows in one product: few at first, as much is settled by them
SURVEYED = 64  # anchors in one pass over the pool: a matrix product is at full speed there
SAMPLE = 512  # pool rows that tell a crowded ball from a sparse one
CROWDED = 1 / 16  # share of the pool from which on a ball is no saving
WIDE = 0.5  # below this threshold (60 degrees) a ball holds most of any pool

Lists = dict[int, list[int]]


class Neighbours:
    """Lists of the n nearest samples at cosine >= tau; an empty list says that fewer than n exist.

    Two ideas save work. A candidate is settled, and not looked at any longer, once n samples are found nearer
    than its bar. And if i is within an angle t of an anchor, then all that is within t of i is within 2 t of
    the anchor: one pass over the pool finds this ball, which then answers for everything near the anchor.
    """

    def __init__(self, cosines: Cosines, n: int, tau: float) -> None:
        self._cosines, self._n, self._tau, self._margin = cosines, n, tau, cosines.margin
        self._pool = first_copies(cosines.features, cosines.norms, n + 1)
        self._known: Lists = {}
        self._answered = torch.zeros(len(cosines), dtype=torch.bool)
        self._balls: dict[int, Tensor | None] = {}
        self._room = cosines.features.numel() // 8  # all balls together stay within half a copy of the pool
        widest = 2 * math.acos(max(-1.0, tau - 4 * self._margin))
        self._edge = math.cos(min(widest, math.pi)) - 4 * self._margin

    def find(self, candidates: Tensor, anchors: Tensor, bars: Tensor) -> Lists:
        """The lists of the candidates [K], without those that have n samples clearly nearer than their bar.

        Each candidate's anchor is a sample at cosine >= tau to it, give or take the margin.
        """
        names = candidates.tolist()
        asked = {a for i, a in zip(names, anchors.tolist(), strict=True) if i not in self._known}
        self._survey(sorted(asked - self._balls.keys()))
        for anchor, places in self._open(names, anchors.tolist()).items():
            members = torch.tensor(places)
            where = self._pool if anchor is None else self._balls[anchor]
            self._known |= self._lists(candidates[members], where, bars[members])
        return {i: self._known.pop(i) for i in names if i in self._known}

    def _open(self, names: list[int], anchors: list[int]) -> dict[int | None, list[int]]:
        """The places of the candidates without a list, by the ball to look into; None is the whole pool."""
        groups: dict[int | None, list[int]] = defaultdict(list)
        for place, (name, anchor) in enumerate(zip(names, anchors, strict=True)):
            if name not in self._known:
                groups[None if self._balls[anchor] is None else anchor].append(place)
        return groups

    # Balls around anchors

    def _survey(self, anchors: list[int]) -> None:
        self._balls |= dict.fromkeys(anchors)
        for part in self._sparse(torch.tensor(anchors, dtype=torch.int64)).split(SURVEYED):
            for anchor, ball, cosines in self._drawn(part):
                self._keep(anchor, ball, cosines)

    def _sparse(self, anchors: Tensor) -> Tensor:
        """The anchors whose ball is a small part of the pool, judged by a sample of it."""
        if self._tau < WIDE or not anchors.numel():
            return anchors[:0]
        sample = slice(0, None, -(-len(self._cosines) // SAMPLE))
        inside = self._cosines.by_column(sample, self._cosines.units(anchors)) >= self._edge
        return anchors[inside.float().mean(0) <= CROWDED]

    def _drawn(self, anchors: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Each anchor with its ball, ascending, and the members' cosines to the anchor."""
        units = self._cosines.units(anchors)
        found = [self._inside(chunk, units) for chunk in self._chunks(self._pool, LAST_CHUNK)]
        column, member, cosine = (torch.cat(parts) for parts in zip(*found, strict=True))
        order = column.argsort(stable=True)
        sizes = column.bincount(minlength=len(anchors)).tolist()
        yield from zip(anchors.tolist(), member[order].split(sizes), cosine[order].split(sizes), strict=True)

    def _inside(self, chunk: Rows, units: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        cosines = self._cosines.by_column(chunk, units).numpy()
        flat = np.flatnonzero(cosines >= self._edge)  # numpy is ten times faster at this than torch
        row, column = np.divmod(flat, len(units))
        member = torch.from_numpy(row) + chunk.start if isinstance(chunk, slice) else chunk[row]
        return torch.from_numpy(column), member, torch.from_numpy(cosines.ravel()[flat])

    def _keep(self, anchor: int, ball: Tensor, cosines: Tensor) -> None:
        if len(ball) > min(self._room, 2 * CROWDED * len(self._cosines)):
            return
        self._balls[anchor] = ball
        self._room -= len(ball)
        near = ball[cosines >= self._tau - 4 * self._margin]
        if len(near) * len(ball) <= len(self._cosines):  # costs no more than the pass over the pool just made
            near = near[~self._answered[near]]
            self._known |= self._lists(near, ball, torch.full((len(near),), torch.inf))

    # Lists

    def _lists(self, rows: Tensor, where: Tensor | None, bars: Tensor, keep: int | None = None) -> Lists:
        """The lists of the rows that are not settled by their bars, looking at the pool rows `where`."""
        self._answered[rows] = True
        contenders = Contenders(rows, bars, self._cosines.units(rows), keep or 2 * self._n + 2)
        for chunk in self._chunks(where, FIRST_CHUNK):
            contenders.see(self._cosines.by_row(contenders.units, chunk), chunk)
            contenders.drop(contenders.nearer >= self._n)
        ...

    def _chunks(self, where: Tensor | None, size: int) -> Iterator[Rows]:
        """The pool rows in ever larger pieces."""
        start, stop = 0, len(self._cosines) if where is None else len(where)
        while start < stop:
            end = min(start + size, stop)
            yield slice(start, end) if where is None else where[start:end]
            start, size = end, min(2 * size, LAST_CHUNK)
