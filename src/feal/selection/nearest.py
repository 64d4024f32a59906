"""The n nearest samples at cosine >= tau, exactly: quick cosines first, float64 where these leave a doubt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from feal.selection.cosines import Cosines, Rows

NOTHING = -2.0  # below every cosine
FIRST_CHUNK, LAST_CHUNK = 1024, 4096  # pool rows in one product: few at first, as much is settled by them

Lists = dict[int, list[int]]


@dataclass(frozen=True)
class Nearest:
    """Finds lists of the n nearest samples at cosine >= tau; an empty list says that fewer than n exist."""

    cosines: Cosines
    n: int
    tau: float

    def lists(self, rows: Tensor, where: Tensor | None, bars: Tensor | None = None, kept: int = 0) -> Lists:
        """The lists of the rows [R] among the pool samples `where` (ascending; None: all).

        A row with n samples clearly nearer than its bar [R] is left out, and the search for it ends there.
        `kept` is how many contenders a row holds on to: enough but for crowds at nearly the same distance.
        """
        kept = kept or self.n + 3
        race = Race(rows, self.cosines.units(rows), bars)
        for chunk in chunks(where, len(self.cosines), FIRST_CHUNK):
            race.enter(self.cosines.by_row(race.units, chunk), chunk, kept)
            if race.bars is not None and race.values.shape[1] >= self.n:
                race.select(race.values[:, self.n - 1] <= race.bars + 2 * self.cosines.margin)
        return self._clear(race) | self._doubtful(race, where)

    def _clear(self, race: Race) -> Lists:
        """The lists that quick cosines decide; the rows left in the race are those they do not."""
        margin = self.cosines.margin
        last, following = race.ranked(self.n), race.ranked(self.n + 1)
        few = last < self.tau - margin
        full = (last > self.tau + margin) & (following < last - 2 * margin)
        lists: Lists = dict.fromkeys(race.rows[few].tolist(), [])
        lists |= zip(race.rows[full].tolist(), race.names[full, : self.n].tolist(), strict=True)
        race.select(~few & ~full)
        return lists

    def _doubtful(self, race: Race, where: Tensor | None) -> Lists:
        """The lists of rows whose n-th nearest is too close to tau or to the next one for quick cosines."""
        if not race.rows.numel():
            return {}
        cut = race.ranked(self.n).clamp_min(self.tau) - 2 * self.cosines.margin
        short = race.dropped >= cut
        lists = self.lists(race.rows[short], where, None, 4 * race.values.shape[1]) if short.any() else {}
        race.select(~short)
        cosines, names = self._refined(race, cut[~short])
        full = cosines[:, self.n - 1] >= self.tau
        lists |= dict.fromkeys(race.rows[~full].tolist(), [])
        return lists | dict(zip(race.rows[full].tolist(), names[full, : self.n].tolist(), strict=True))

    def _refined(self, race: Race, cut: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and names of the contenders in their true order, ties by index.

        Float64 is spent only on those around the n-th place: a cosine clearly above it has its place among
        the n nearest in any case, one clearly below never.
        """
        margin, values = self.cosines.margin, race.values
        near_last = (values - race.ranked(self.n)[:, None]).abs() <= 3 * margin
        near_tau = (values - self.tau).abs() <= 2 * margin
        row, place = ((near_last | near_tau) & (values >= cut[:, None])).nonzero(as_tuple=True)
        refined = values.double()
        refined[row, place] = self.cosines.exact(race.rows[row], race.names[row, place])
        names, by_name = race.names.sort(dim=1)
        cosines, order = refined.gather(1, by_name).sort(dim=1, descending=True, stable=True)
        return cosines, names.gather(1, order)


class Race:
    """Rows and the best contenders found for them so far, best first."""

    def __init__(self, rows: Tensor, units: Tensor, bars: Tensor | None) -> None:
        self.rows, self.units, self.bars = rows, units, bars
        self.values = torch.empty((len(rows), 0))
        self.names = torch.empty((len(rows), 0), dtype=torch.int64)
        self.dropped = torch.full((len(rows),), NOTHING)  # nothing that was let go was better than this

    def enter(self, cosines: Tensor, chunk: Rows, kept: int) -> None:
        """Lets the samples of a chunk, given their cosines [R, len(chunk)], into the race."""
        _hide_self(cosines, self.rows, chunk)
        best = cosines.topk(min(kept, cosines.shape[1]), dim=1)
        names = best.indices + chunk.start if isinstance(chunk, slice) else chunk[best.indices]
        values, seen = best.values, self.values.shape[1] + cosines.shape[1]
        if self.values.shape[1]:
            names = torch.cat((self.names, names), 1)
            values, order = torch.cat((self.values, values), 1).topk(min(kept, names.shape[1]), dim=1)
            names = names.gather(1, order)
        if values.shape[1] < seen:
            self.dropped = values[:, -1]
        self.values, self.names = values, names

    def select(self, these: Tensor) -> None:
        """Goes on with some of the rows."""
        if these.all():
            return
        self.rows, self.units, self.dropped = self.rows[these], self.units[these], self.dropped[these]
        self.values, self.names = self.values[these], self.names[these]
        self.bars = None if self.bars is None else self.bars[these]

    def ranked(self, place: int) -> Tensor:
        """The cosine at a place, counted from 1; NOTHING where there are fewer contenders."""
        if place > self.values.shape[1]:
            return self.values.new_full((self.rows.numel(),), NOTHING)
        return self.values[:, place - 1]


def chunks(where: Tensor | None, size: int, first: int) -> Iterator[Rows]:
    """The pool samples `where` (None: all `size` of them) in ever larger pieces."""
    start, step, stop = 0, first, size if where is None else len(where)
    while start < stop:
        end = min(start + step, stop)
        yield slice(start, end) if where is None else where[start:end]
        start, step = end, min(2 * step, LAST_CHUNK)


def _hide_self(cosines: Tensor, rows: Tensor, chunk: Rows) -> None:
    """Nobody is their own neighbour: removed by index, as a copy may be just as near."""
    if isinstance(chunk, slice):
        place = rows - chunk.start
        inside = (place >= 0) & (place < cosines.shape[1])
    else:
        place = torch.searchsorted(chunk, rows).clamp_max_(len(chunk) - 1)
        inside = chunk[place] == rows
    cosines[inside, place[inside]] = NOTHING
