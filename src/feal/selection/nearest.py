"""The n nearest samples at cosine >= tau, exactly: quick cosines first, float64 where these leave a doubt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from feal.selection.cosines import Cosines, Rows

NOTHING = -2.0  # below every cosine
FIRST_CHUNK, LAST_CHUNK = 512, 4096  # pool rows in one product: few at first, as much is settled by them

Lists = dict[int, list[int]]


@dataclass(frozen=True)
class Nearest:
    """Finds lists of the n nearest samples at cosine >= tau; an empty list says that fewer than n exist."""

    cosines: Cosines
    n: int
    tau: float

    def lists(self, rows: Tensor, where: Tensor | None, bars: Tensor | None, kept: int = 0) -> Lists:
        """The lists of the rows [R] among the pool samples `where` (ascending; None: all).

        Left out are the rows with n samples clearly nearer than their bar [R]: the search ends there, and
        such a bar is not among their n nearest. `kept` is how many contenders a row holds on to, enough for
        all but large crowds of samples at nearly the same distance.
        """
        kept = kept or 2 * self.n + 2
        stop = len(self.cosines) if where is None else len(where)
        race = _Race(rows, self.cosines.units(rows), bars)
        for chunk in chunks(where, stop, FIRST_CHUNK):
            race.enter(self.cosines.by_row(race.units, chunk), chunk, kept)
            race.settle(self.n, 2 * self.cosines.margin)
        return self._decided(race, where, complete=kept >= stop)

    def _decided(self, race: _Race, where: Tensor | None, complete: bool) -> Lists:
        values, n, margin = race.values, self.n, self.cosines.margin
        if values.shape[1] < n:
            return {row: [] for row in race.rows.tolist()}
        last = values[:, n - 1]
        next_best = values[:, n] if values.shape[1] > n else torch.full_like(last, NOTHING)
        few = last < self.tau - margin
        clear = ~few & (last > self.tau + margin) & (next_best < last - 2 * margin)
        lists: Lists = {row: [] for row in race.rows[few].tolist()}
        lists |= zip(race.rows[clear].tolist(), race.names[clear, :n].tolist(), strict=True)
        doubtful = ~few & ~clear
        if doubtful.any():
            race.select(doubtful)
            lists |= self._settled(race, where, complete)
        return lists

    def _settled(self, race: _Race, where: Tensor | None, complete: bool) -> Lists:
        """The lists of rows whose n-th nearest is too close to tau or to the next one for quick cosines."""
        cut = race.values[:, self.n - 1].clamp_min(self.tau) - 2 * self.cosines.margin
        crowded = race.values[:, -1] >= cut if not complete else torch.zeros(len(cut), dtype=torch.bool)
        lists: Lists = {}
        if crowded.any():
            lists |= self.lists(race.rows[crowded], where, None, 4 * race.values.shape[1])
            race.select(~crowded)
        exact, names = self._refined(race).values(), race.names
        return lists

    ...


class _Race:
    """Rows in search of their nearest samples, with the best found so far, best first."""

    def __init__(self, rows: Tensor, units: Tensor, bars: Tensor | None) -> None:
        self.rows, self.units, self.bars = rows, units, bars
        self.values = torch.empty((len(rows), 0))
        self.names = torch.empty((len(rows), 0), dtype=torch.int64)

    def enter(self, cosines: Tensor, chunk: Rows, kept: int) -> None:
        """Merges the best of a chunk, given its cosines [R, len(chunk)], into the best so far."""
        ...
