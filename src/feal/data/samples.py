"""The sample table of a site: one `.npy` file a column, sorted by sample id and mapped into memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feal.data.arrays import AGAIN, StoredArray, write_array
from feal.errors import FealError

SPLITS = ("train", "test")
FOLDER = "samples"
COLUMNS = ("id", "patient", "split", "given", "source", "row")

Texts = NDArray[np.str_]
Rows = NDArray[np.int64]

# Text is stored as UTF-8 of fixed width: a quarter of numpy's own text, and in the same order.
_KINDS = {"id": "S", "patient": "S", "split": "S", "source": "S", "given": "bool", "row": "int64"}


@dataclass(frozen=True)
class SampleTable:
    """Columns of one site: `id`, `patient`, `split`, `given`, `source`, and `row`, place in the arrays."""

    site: str
    columns: dict[str, NDArray[Any]]

    def of_split(self, split: str | None) -> NDArray[np.bool_]:
        """Which lines of the table belong to a split; `None` means all."""
        if split is None:
            return np.ones(len(self.columns["id"]), dtype=np.bool_)
        if split not in SPLITS:
            raise FealError(f"There is no split '{split}': use {' or '.join(SPLITS)}.")
        chosen: NDArray[np.bool_] = self.columns["split"] == split.encode()
        return chosen

    def texts(self, column: str, split: str | None) -> Texts:
        """A text column of a split, in the order of the ids."""
        return _decode(self.columns[column][self.of_split(split)])

    def rows(self, ids: Sequence[str] | Texts) -> Rows:
        """Where the arrays hold these samples, in this order; an unknown id is a `FealError`."""
        known = self.columns["id"]
        wanted = np.strings.encode(np.asarray(ids, dtype=np.str_), "utf-8")
        # A wider key would make numpy copy the whole column, so it is cut, and found to differ below.
        places = np.minimum(np.searchsorted(known, wanted.astype(known.dtype)), len(known) - 1)
        missing = np.flatnonzero(known[places] != wanted)
        if len(missing):
            raise FealError(
                f"Site '{self.site}' has no sample '{np.asarray(ids)[missing[0]]}': "
                "check that the ids belong to this prepared data set."
            )
        rows: Rows = self.columns["row"][places]
        return rows

    def id_at(self, row: int) -> str:
        """The id of the sample at a place in the arrays."""
        line = int(np.flatnonzero(self.columns["row"] == row)[0])
        return str(self.columns["id"][line].decode())

    def check(self, folder: Path) -> None:
        """Raise a `FealError` unless ids are unique and sorted and rows a permutation."""
        ids, rows = self.columns["id"], self.columns["row"]
        same = np.flatnonzero(ids[1:] == ids[:-1])
        if len(same):
            raise duplicate(ids[same[0]].decode(), self.site)
        if np.any(ids[1:] < ids[:-1]) or not _is_permutation(rows):
            raise FealError(f"The sample table {folder} is not in order: {AGAIN}.")


def open_samples(folder: Path, *, site: str, samples: int) -> SampleTable:
    """Open and check the sample table in `folder`; a site that cannot train is a `FealError`."""
    table = SampleTable(
        site,
        {
            name: StoredArray(folder / f"{name}.npy", shape=(samples,), kinds=(_KINDS[name],)).array
            for name in COLUMNS
        },
    )
    table.check(folder)
    if not table.of_split("train").any():
        raise no_training_sample(site)
    return table


def write_samples(folder: Path, *, site: str, columns: dict[str, list[Any]]) -> None:
    """Write columns given in the order of the arrays' rows as a table sorted by id.

    Raises:
        FealError: an id twice, or an impossible id or split.
    """
    for name in ("id", "patient", "source"):
        _check_texts(columns[name], name, site)
    for split in set(columns["split"]) - set(SPLITS):
        raise FealError(f"Site '{site}' has a sample of split '{split}': use {' or '.join(SPLITS)}.")
    texts = ("id", "patient", "split", "source")
    stored: dict[str, NDArray[Any]] = {name: _encode(columns[name]) for name in texts}
    order = np.argsort(stored["id"], kind="stable")
    stored |= {"given": np.asarray(columns["given"], dtype=np.bool_), "row": np.arange(len(order))}
    stored = {name: column[order] for name, column in stored.items()}
    SampleTable(site, stored).check(folder)
    folder.mkdir()
    for name in COLUMNS:
        write_array(folder / f"{name}.npy", stored[name])


def duplicate(sample: str, site: str) -> FealError:
    """The error for an id that a site has twice."""
    return FealError(f"Site '{site}' has the sample id '{sample}' twice: give every sample an id of its own.")


def no_training_sample(site: str) -> FealError:
    """The error for a site that cannot train."""
    return FealError(f"Site '{site}' has no training sample: give it some or leave the site out.")


def _encode(texts: list[str]) -> NDArray[np.bytes_]:
    return np.array([text.encode() for text in texts], dtype=np.bytes_)


def _decode(column: NDArray[np.bytes_]) -> Texts:
    try:
        decoded: Texts = column.astype(np.str_)
    except UnicodeDecodeError:
        # The cast knows ASCII only, but is eight times as fast.
        decoded = np.strings.decode(column, "utf-8")
    return decoded


def _check_texts(texts: list[str], column: str, site: str) -> None:
    for text in texts:
        if not text.isprintable() or len(text) > 500 or (column == "id" and not text):
            raise FealError(
                f"The {column} {text!r} of site '{site}' is not possible: use 1 to 500 printable characters."
            )


def _is_permutation(rows: Rows) -> bool:
    if rows.min() < 0 or rows.max() >= len(rows):
        return False
    seen = np.zeros(len(rows), dtype=np.bool_)
    seen[rows] = True
    return bool(seen.all())
