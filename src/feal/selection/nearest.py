"""The n nearest samples at cosine >= tau, exactly: quick cosines first, float64 where these leave a doubt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from feal.selection.cosines import Cosines, Rows

NOTHING = -2.0  # below every cosine
# Pool rows in one product: few at first, as much is settled by them; in float64 they have to be copied.
FIRST_CHUNK, LAST_CHUNK = 1024, {torch.float32: 4096, torch.float64: 1024}
SPARE = 3  # contenders kept beyond n: enough but for crowds at nearly the same distance

Lists = dict[int, list[int]]


@dataclass(frozen=True)
class Nearest:
    """Finds lists of the n nearest samples at cosine >= tau; an empty list says that fewer than n exist."""

    cosines: Cosines
    n: int
    tau: float

    def lists(self, rows: Tensor, where: Tensor | None, bars: Tensor | None = None) -> Lists:
        """The lists of the rows [R] among the pool samples `where` (ascending; None: all).

        A row with n samples clearly nearer than its bar [R] is left out, and the search for it ends there.
        """
        return self._lists(rows, where, bars, torch.float32, self.n + SPARE)

    def _lists(
        self, rows: Tensor, where: Tensor | None, bars: Tensor | None, dtype: torch.dtype, kept: int
    ) -> Lists:
        race = Race(rows, self.cosines.units(rows, dtype), bars, self.cosines.margins[dtype])
        for chunk in chunks(where, len(self.cosines), FIRST_CHUNK, LAST_CHUNK[dtype]):
            race.enter(self.cosines.by_row(race.units, chunk), chunk, kept)
            race.drop_settled(self.n)
        lists = self._clear(race)
        if race.rows.numel():
            short = self._short(race)
            # Float64 tells apart what float32 cannot; what it cannot are copies, so then all of them are kept.
            kept = kept if dtype == torch.float32 else 4 * kept
            lists |= self._lists(short, where, None, torch.float64, kept) if short.numel() else {}
            lists |= self._doubtful(race)
        return lists

    def _clear(self, race: Race) -> Lists:
        """The lists that quick cosines decide; the rows left in the race are those they do not."""
        last, following = race.ranked(self.n), race.ranked(self.n + 1)
        few = last < self.tau - race.margin
        full = (last > self.tau + race.margin) & (following < last - 2 * race.margin)
        lists = _listed(race.rows[full], race.names[full, : self.n]) | _empty(race.rows[few])
        race.select(~few & ~full)
        return lists

    def _short(self, race: Race) -> Tensor:
        """Takes the rows out of the race that have let go of samples around the n-th place."""
        short = race.dropped >= race.ranked(self.n).clamp_min(self.tau) - 2 * race.margin
        rows = race.rows[short]
        race.select(~short)
        return rows

    def _doubtful(self, race: Race) -> Lists:
        """The lists of rows whose n-th nearest is too close to tau or to the next one for quick cosines."""
        cosines, names = self._refined(race)
        full = cosines[:, self.n - 1] >= self.tau
        return _listed(race.rows[full], names[full, : self.n]) | _empty(race.rows[~full])

    def _refined(self, race: Race) -> tuple[Tensor, Tensor]:
        """Cosines and names of the contenders in their true order, ties by index.

        Exact cosines are spent only on those around the n-th place: what is clearly above has its place among
        the n nearest in any case, what is clearly below never.
        """
        values, last = race.values, race.ranked(self.n)[:, None]
        near_last, near_tau = (
            (values - last).abs() <= 3 * race.margin,
            (values - self.tau).abs() <= 2 * race.margin,
        )
        possible = values >= last.clamp_min(self.tau) - 2 * race.margin
        row, place = (possible & (near_last | near_tau)).nonzero(as_tuple=True)
        refined = values.double()
        refined[row, place] = self.cosines.exact(race.rows[row], race.names[row, place])
        names, by_name = race.names.sort(dim=1)
        cosines, order = refined.gather(1, by_name).sort(dim=1, descending=True, stable=True)
        return cosines, names.gather(1, order)


def _listed(rows: Tensor, names: Tensor) -> Lists:
    return dict(zip(rows.tolist(), names.tolist(), strict=True))


def _empty(rows: Tensor) -> Lists:
    return {row: [] for row in rows.tolist()}


class Race:
    """Rows and the best contenders found for them so far, best first."""

    def __init__(self, rows: Tensor, units: Tensor, bars: Tensor | None, margin: float) -> None:
        self.rows, self.units, self.bars, self.margin = rows, units, bars, margin
        self.values = units.new_empty((rows.numel(), 0))
        self.names = rows.new_empty((rows.numel(), 0))
        self.dropped = units.new_full((rows.numel(),), NOTHING)  # nothing that was let go was better

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

    def drop_settled(self, n: int) -> None:
        """Lets go of the rows with n contenders clearly above their bar."""
        if self.bars is not None and self.values.shape[1] >= n:
            self.select(self.values[:, n - 1] <= self.bars + 2 * self.margin)

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


def chunks(where: Tensor | None, size: int, first: int, last: int) -> Iterator[Rows]:
    """The pool samples `where` (None: all `size` of them) in pieces that grow from `first` to `last`."""
    start, step, stop = 0, first, size if where is None else where.numel()
    while start < stop:
        end = min(start + step, stop)
        yield slice(start, end) if where is None else where[start:end]
        start, step = end, min(2 * step, last)


def _hide_self(cosines: Tensor, rows: Tensor, chunk: Rows) -> None:
    """Nobody is their own neighbour: removed by index, as a copy may be just as near."""
    if isinstance(chunk, slice):
        place = rows - chunk.start
        inside = (place >= 0) & (place < cosines.shape[1])
    else:
        place = torch.searchsorted(chunk, rows).clamp_max_(len(chunk) - 1)
        inside = chunk[place] == rows
    cosines[inside, place[inside]] = NOTHING
