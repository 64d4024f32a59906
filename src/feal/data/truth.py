"""The hidden truth of a site: only the oracle, the evaluation and the site's own contact sheet open it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from feal.data.arrays import AGAIN, StoredArray
from feal.data.prepared import TRUTH, PreparedSite
from feal.data.samples import Rows, Texts
from feal.errors import FealError

UNKNOWN = {"classification": -1, "segmentation": 255}
"""What stands where nobody gave a label: as the class, or at every pixel of the mask."""

_KINDS = ("uint8", "int16", "int64")
_CHUNK = 16 * 2**20


class Truth:
    """Labels [n] or masks [n, H, W] of one site, read a few at a time."""

    def __init__(self, site: PreparedSite, stored: StoredArray) -> None:
        self.site = site
        self._stored = stored

    def of(self, ids: Sequence[str] | Texts) -> torch.Tensor:
        """Labels int64 [b], or masks uint8 [b, H, W], of these samples in this order."""
        return self.read(self.site.rows(ids))

    def read(self, rows: Rows) -> torch.Tensor:
        """The same by place in the arrays (`PreparedSite.rows`)."""
        values = self._stored.read(rows)
        if values.ndim == 1 or values.dtype != np.uint8:
            values = values.astype(np.int64)
        return torch.from_numpy(values)

    def known(self, ids: Sequence[str] | Texts) -> NDArray[np.bool_]:
        """Whether somebody has labelled each of these samples."""
        rows = self.site.rows(ids)
        if not self.site.unlabelled:
            return np.ones(len(rows), dtype=np.bool_)
        # One pixel tells: no class has this number.
        first = self._stored.array.reshape(len(self.site), -1)[:, 0][rows]
        known: NDArray[np.bool_] = first != UNKNOWN[self.site.task]
        return known

    def check(self) -> None:
        """Raise a `FealError` naming the first sample with a value outside 0..C-1; masks never pile up.

        Training samples that the manifest calls unlabelled may hold `UNKNOWN`, and only they.
        """
        known = np.ones(len(self.site), dtype=np.bool_)
        if self.site.unlabelled:
            train = self.site.ids("train")
            known[self.site.rows(train)] = self.known(train)
        if int((~known).sum()) != self.site.unlabelled:
            raise FealError(
                f"Site '{self.site.name}' has {int((~known).sum())} training samples without a label where the "
                f"manifest says {self.site.unlabelled}: {AGAIN}."
            )
        for rows, values in self.parts():
            self._check_part(rows, values, known[rows])

    def parts(self) -> Iterator[tuple[Rows, NDArray[np.integer]]]:
        """All rows and their values [b, ...], a few megabytes at a time."""
        size = int(np.prod(self._stored.array.shape[1:])) * self._stored.array.itemsize
        step = max(1, _CHUNK // size)
        for start in range(0, len(self.site), step):
            rows = np.arange(start, min(start + step, len(self.site)), dtype=np.int64)
            yield rows, self._stored.read(rows)

    def _check_part(self, rows: Rows, values: NDArray[np.integer], known: NDArray[np.bool_]) -> None:
        values = values.reshape(len(rows), -1)
        # A value that is the same unknown everywhere is no class, but right.
        strange = ~known & (values != UNKNOWN[self.site.task]).any(axis=1)
        checked = known | strange
        bad = outside(values[checked], len(self.site.classes))
        if bad is not None:
            sample, value = bad
            name = self.site.id_at(int(rows[checked][sample]))
            raise out_of_range(value, sample=name, site=self.site.name, classes=self.site.classes)


def open_truth(site: PreparedSite) -> Truth:
    """Open the truth of a site; a missing or cut file is a `FealError`."""
    shape = (len(site),) if site.task == "classification" else (len(site), *site.shape[1:])
    return Truth(site, StoredArray(site.folder / TRUTH, shape=shape, kinds=_KINDS))


def outside(values: NDArray[np.integer], classes: int) -> tuple[int, int] | None:
    """The first sample of values [b, ...] with a value outside 0..C-1, and that value.

    >>> outside(np.array([[0, 1], [2, -1]]), 3)
    (1, -1)
    """
    places = np.argwhere((values < 0) | (values >= classes))
    return (int(places[0][0]), int(values[tuple(places[0])])) if len(places) else None


def out_of_range(value: int, *, sample: str, site: str, classes: Sequence[str]) -> FealError:
    """The error for a label or mask value that is no class."""
    return FealError(
        f"Sample '{sample}' of site '{site}' has the class value {value}, but the {len(classes)} classes are "
        f"0 to {len(classes) - 1}: correct its label or mask and prepare the data set again."
    )
