"""Read the hidden labels of a site; only the oracle, the evaluation and the contact sheet open them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from feal.data.arrays import REPAIR, StoredArray
from feal.data.prepared import LABELS, PreparedSite
from feal.data.samples import Rows, Texts
from feal.errors import FealError

NO_LABEL = {"classification": -1, "segmentation": 255}
"""The value of an unlabelled sample: its class, or every pixel of its mask."""

_KINDS = ("uint8", "int16", "int64")
_CHUNK = 16 * 2**20


class SiteLabels:
    """The labels [n] or masks [n, H, W] of one site, read a few at a time."""

    def __init__(self, site: PreparedSite, stored: StoredArray) -> None:
        self.site = site
        self._stored = stored

    def of(self, ids: Sequence[str] | Texts) -> torch.Tensor:
        """Return labels int64 [b], or masks uint8 [b, H, W], of these samples in this order."""
        return self.read(self.site.rows(ids))

    def read(self, rows: Rows) -> torch.Tensor:
        """Return the same by array row (`PreparedSite.rows`)."""
        values = self._stored.read(rows)
        if values.ndim == 1 or values.dtype != np.uint8:
            values = values.astype(np.int64)
        return torch.from_numpy(values)

    def is_known(self, ids: Sequence[str] | Texts) -> NDArray[np.bool_]:
        """Return whether each of these samples has a label."""
        rows = self.site.rows(ids)
        if not self.site.unlabelled:
            return np.ones(len(rows), dtype=np.bool_)
        # One pixel is enough: no class has this number.
        first = self._stored.array.reshape(len(self.site), -1)[:, 0][rows]
        known: NDArray[np.bool_] = first != NO_LABEL[self.site.task]
        return known

    def check(self) -> None:
        """Raise a `FealError` that names the first sample with a value outside 0..C-1.

        Only training samples that the manifest counts as unlabelled may hold `NO_LABEL`. Masks are read in chunks.
        """
        known = np.ones(len(self.site), dtype=np.bool_)
        if self.site.unlabelled:
            train = self.site.ids("train")
            known[self.site.rows(train)] = self.is_known(train)
        if int((~known).sum()) != self.site.unlabelled:
            raise FealError(
                f"Site '{self.site.name}' has {int((~known).sum())} training samples without a label, but the "
                f"manifest counts {self.site.unlabelled}: {REPAIR}."
            )
        for rows, values in self.read_chunks():
            self._check_chunk(rows, values, known[rows])

    def read_chunks(self) -> Iterator[tuple[Rows, NDArray[np.integer]]]:
        """Yield all rows and their values [b, ...], a few megabytes at a time."""
        size = int(np.prod(self._stored.array.shape[1:])) * self._stored.array.itemsize
        step = max(1, _CHUNK // size)
        for start in range(0, len(self.site), step):
            rows = np.arange(start, min(start + step, len(self.site)), dtype=np.int64)
            yield rows, self._stored.read(rows)

    def _check_chunk(self, rows: Rows, values: NDArray[np.integer], known: NDArray[np.bool_]) -> None:
        values = values.reshape(len(rows), -1)
        # NO_LABEL throughout is no class, but valid for an unlabelled sample.
        strange = ~known & (values != NO_LABEL[self.site.task]).any(axis=1)
        checked = known | strange
        bad = find_invalid_class(values[checked], len(self.site.classes))
        if bad is not None:
            sample, value = bad
            name = self.site.id_at(int(rows[checked][sample]))
            raise class_range_error(value, sample=name, site=self.site.name, classes=self.site.classes)


def open_labels(site: PreparedSite) -> SiteLabels:
    """Open the labels of a site; a missing or truncated file is a `FealError`."""
    shape = (len(site),) if site.task == "classification" else (len(site), *site.shape[1:])
    return SiteLabels(site, StoredArray(site.folder / LABELS, shape=shape, kinds=_KINDS))


def find_invalid_class(values: NDArray[np.integer], classes: int) -> tuple[int, int] | None:
    """Find the first sample of values [b, ...] with a value outside 0..C-1, and that value.

    >>> find_invalid_class(np.array([[0, 1], [2, -1]]), 3)
    (1, -1)
    """
    places = np.argwhere((values < 0) | (values >= classes))
    return (int(places[0][0]), int(values[tuple(places[0])])) if len(places) else None


def class_range_error(value: int, *, sample: str, site: str, classes: Sequence[str]) -> FealError:
    """Return the error for a label or mask value that is no class."""
    return FealError(
        f"Sample '{sample}' of site '{site}' has the class value {value}, but the {len(classes)} classes are "
        f"0 to {len(classes) - 1}: correct its label or mask and prepare the data set again."
    )
