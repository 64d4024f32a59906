"""Read and write the sample table of a site: one memory-mapped `.npy` file per column, sorted by sample id."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feal.data.arrays import REPAIR, StoredArray, write_array
from feal.errors import FealError

SPLITS = ("train", "test")
FOLDER = "samples"
COLUMNS = ("id", "patient", "split", "given", "source", "row")

Texts = NDArray[np.str_]
Rows = NDArray[np.int64]

# Text is stored as fixed-width UTF-8, which takes a quarter of numpy's own text and sorts the same.
_KINDS = {"id": "S", "patient": "S", "split": "S", "source": "S", "given": "bool", "row": "int64"}


@dataclass(frozen=True)
class SampleTable:
    """The samples of one site.

    Columns: `id`, `patient`, `split`, `given` (labelled from the start), `source` (original file) and `row` (index
    into the arrays).
    """

    site: str
    columns: dict[str, NDArray[Any]]

    def is_in(self, split: str | None) -> NDArray[np.bool_]:
        """Return which samples belong to a split; `None` means all."""
        if split is None:
            return np.ones(len(self.columns["id"]), dtype=np.bool_)
        if split not in SPLITS:
            raise FealError(f"There is no split '{split}': use {' or '.join(SPLITS)}.")
        chosen: NDArray[np.bool_] = self.columns["split"] == split.encode()
        return chosen

    def texts(self, column: str, split: str | None) -> Texts:
        """Return a text column of a split, in the order of the ids."""
        return _decode(self.columns[column][self.is_in(split)])

    def rows(self, ids: Sequence[str] | Texts) -> Rows:
        """Return the array rows of these samples, in this order; an unknown id is a `FealError`."""
        known = self.columns["id"]
        wanted = np.strings.encode(np.asarray(ids, dtype=np.str_), "utf-8")
        # A wider key would make numpy copy the whole column, so it is truncated here and compared in full below.
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
        """Return the id of the sample at an array row."""
        line = int(np.flatnonzero(self.columns["row"] == row)[0])
        return str(self.columns["id"][line].decode())

    def check(self, folder: Path) -> None:
        """Raise a `FealError` unless ids are unique and sorted and rows a permutation."""
        ids, rows = self.columns["id"], self.columns["row"]
        same = np.flatnonzero(ids[1:] == ids[:-1])
        if len(same):
            raise duplicate_id_error(ids[same[0]].decode(), self.site)
        if np.any(ids[1:] < ids[:-1]) or not _is_permutation(rows):
            raise FealError(f"The sample table {folder} is not in order: {REPAIR}.")


def open_samples(folder: Path, *, site: str, samples: int) -> SampleTable:
    """Open and check the sample table in `folder`; a site without a training sample is a `FealError`."""
    table = SampleTable(
        site,
        {
            name: StoredArray(folder / f"{name}.npy", shape=(samples,), kinds=(_KINDS[name],)).array
            for name in COLUMNS
        },
    )
    table.check(folder)
    if not table.is_in("train").any():
        raise no_training_sample_error(site)
    return table


def write_samples(folder: Path, *, site: str, columns: dict[str, list[Any]]) -> None:
    """Write a table sorted by id from columns in the order of the array rows.

    Raises:
        FealError: an id occurs twice, or an id or split is invalid.
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


def duplicate_id_error(sample: str, site: str) -> FealError:
    """Return the error for an id that a site has twice."""
    return FealError(f"Site '{site}' has the sample id '{sample}' twice: give every sample a unique id.")


def no_training_sample_error(site: str) -> FealError:
    """Return the error for a site without a training sample."""
    return FealError(f"Site '{site}' has no training sample: add some or leave the site out.")


def _encode(texts: list[str]) -> NDArray[np.bytes_]:
    return np.array([text.encode() for text in texts], dtype=np.bytes_)


def _decode(column: NDArray[np.bytes_]) -> Texts:
    try:
        decoded: Texts = column.astype(np.str_)
    except UnicodeDecodeError:
        # The cast above handles ASCII only, but is eight times as fast.
        decoded = np.strings.decode(column, "utf-8")
    return decoded


def _check_texts(texts: list[str], column: str, site: str) -> None:
    for text in texts:
        if not text.isprintable() or len(text) > 500 or (column == "id" and not text):
            raise FealError(
                f"The {column} {text!r} of site '{site}' is invalid: use 1 to 500 printable characters."
            )


def _is_permutation(rows: Rows) -> bool:
    if rows.min() < 0 or rows.max() >= len(rows):
        return False
    seen = np.zeros(len(rows), dtype=np.bool_)
    seen[rows] = True
    return bool(seen.all())


UNUSED = b"rest"
"""The split of samples that a run with a validation split does not use."""


def hold_out_validation(table: SampleTable, share: float, *, labelled_only: bool = False) -> SampleTable:
    """Return the table with a share of the training split as its test split; the test split itself is not used.

    All samples of a patient (case, lesion, group of similar frames) stay together. Patients are taken in the order
    of a hash of their names until at least `share` of the samples is held out, so every run holds out the same
    ones. With `labelled_only`, unlabelled samples among them are not used, since nothing can be measured on them.

    Raises:
        FealError: the site would be left without a training sample.
    """
    train = table.is_in("train")
    patients = table.columns["patient"][train]
    names, members, counts = np.unique(patients, return_inverse=True, return_counts=True)
    order = np.argsort([_hash(name) for name in names.tolist()], kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    chosen = np.zeros(len(names), dtype=np.bool_)
    chosen[order[before < share * len(patients)]] = True
    if chosen.all():
        raise FealError(
            f"A validation split of {share:g} leaves site '{table.site}' no patient to train on: "
            "use a smaller share, or leave the site out."
        )
    split: NDArray[np.bytes_] = np.where(train, b"train", UNUSED)
    split[np.flatnonzero(train)[chosen[members]]] = b"test"
    if labelled_only:
        split[(split == b"test") & ~table.columns["given"]] = UNUSED
    return replace(table, columns={**table.columns, "split": split})


def _hash(patient: bytes) -> bytes:
    return hashlib.blake2b(patient, digest_size=8, person=b"validation").digest()
