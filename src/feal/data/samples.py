"""Read and write the sample table of a site: one memory-mapped `.npy` file per column, sorted by sample id."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feal.data.arrays import REPAIR, StoredArray, write_array
from feal.errors import FealError

SPLITS = ("train", "test")
SAMPLE_FOLDER = "samples"
SAMPLE_COLUMNS = {"id": "S", "patient": "S", "split": "S", "given": "bool", "source": "S", "row": "int64"}
"""Columns by name, with their type; text is fixed-width UTF-8: a quarter of numpy's own, and it sorts the same."""

Texts = NDArray[np.str_]
Rows = NDArray[np.int64]

_UNUSED = b"rest"
"""The split of samples that a run with a validation split does not use."""


class SampleTable:
    """The samples of one site.

    Columns: `id`, `patient`, `split`, `given` (labelled from the start), `source` (original file) and `row` (index
    into the arrays).
    """

    def __init__(self, name: str, columns: Mapping[str, NDArray[Any]]) -> None:
        self.name = name
        self.columns = columns

    def ids(self, split: str | None = None) -> Texts:
        """Return the sample ids of a split ("train", "test", or None for all), sorted."""
        return self._texts("id", split)

    def patients(self, split: str | None = None) -> Texts:
        """Return the patient of each of `ids(split)`."""
        return self._texts("patient", split)

    def sources(self, split: str | None = None) -> Texts:
        """Return the original file of each of `ids(split)`."""
        return self._texts("source", split)

    def is_initial(self, split: str | None = None) -> NDArray[np.bool_]:
        """Return whether each of `ids(split)` is labelled from the start."""
        initial: NDArray[np.bool_] = self.columns["given"][self._is_in(split)]
        return initial

    def rows(self, ids: Sequence[str] | Texts) -> Rows:
        """Return the array rows of these samples, in this order; an unknown id is a `FealError`."""
        known = self.columns["id"]
        wanted = np.strings.encode(np.asarray(ids, dtype=np.str_), "utf-8")
        # A wider key would make numpy copy the whole column, so it is truncated here and compared in full below.
        places = np.minimum(np.searchsorted(known, wanted.astype(known.dtype)), len(known) - 1)
        missing = np.flatnonzero(known[places] != wanted)
        if len(missing):
            raise FealError(
                f"Site '{self.name}' has no sample '{np.asarray(ids)[missing[0]]}': "
                "check that the ids belong to this prepared data set."
            )
        rows: Rows = self.columns["row"][places]
        return rows

    def id_at(self, row: int) -> str:
        """Return the id of the sample at an array row."""
        line = int(np.flatnonzero(self.columns["row"] == row)[0])
        return str(self.columns["id"][line].decode())

    def hold_out_validation(self, share: float, *, labelled_only: bool = False) -> SampleTable:
        """Return the table with a share of the training split as its test split; the test split is not used.

        All samples of a patient (case, lesion, group of similar frames) stay together. Patients are taken in the
        order of a hash of their names until at least `share` of the samples is held out, so every run holds out
        the same ones. With `labelled_only`, unlabelled samples among them are not used, since nothing can be
        measured on them.

        Raises:
            FealError: the site would be left without a training sample.
        """
        return self._hold_out(share, self._is_in("train"), key=b"", labelled_only=labelled_only)

    def redraw_test(self, share: float, seed: int, *, labelled_only: bool = False) -> SampleTable:
        """Return the table with another test split: a share of all samples, whole patients, drawn by the seed.

        As of `hold_out_validation` otherwise. A study that draws it by seed does not depend on one test split.

        Raises:
            FealError: the site would be left without a training sample.
        """
        return self._hold_out(share, self._is_in(None), key=str(seed).encode(), labelled_only=labelled_only)

    def _hold_out(self, share: float, among: NDArray[np.bool_], *, key: bytes, labelled_only: bool) -> SampleTable:
        patients = self.columns["patient"][among]
        names, members, counts = np.unique(patients, return_inverse=True, return_counts=True)
        hashes = [
            hashlib.blake2b(name, digest_size=8, person=b"validation", key=key).digest() for name in names.tolist()
        ]
        order = np.argsort(hashes, kind="stable")
        before = np.cumsum(counts[order]) - counts[order]
        chosen = np.zeros(len(names), dtype=np.bool_)
        chosen[order[before < share * len(patients)]] = True
        if chosen.all():
            raise FealError(
                f"A test split of {share:g} leaves site '{self.name}' no patient to train on: "
                "use a smaller share, or leave the site out."
            )
        split: NDArray[np.bytes_] = np.where(among, b"train", _UNUSED)
        split[np.flatnonzero(among)[chosen[members]]] = b"test"
        if labelled_only:
            split[(split == b"test") & ~self.columns["given"]] = _UNUSED
        return SampleTable(self.name, {**self.columns, "split": split})

    def _is_in(self, split: str | None) -> NDArray[np.bool_]:
        if split is None:
            return np.ones(len(self.columns["id"]), dtype=np.bool_)
        if split not in SPLITS:
            raise FealError(f"There is no split '{split}': use {' or '.join(SPLITS)}.")
        chosen: NDArray[np.bool_] = self.columns["split"] == split.encode()
        return chosen

    def _texts(self, column: str, split: str | None) -> Texts:
        stored = self.columns[column][self._is_in(split)]
        try:
            # This cast handles ASCII only, but is eight times as fast.
            texts: Texts = stored.astype(np.str_)
        except UnicodeDecodeError:
            texts = np.strings.decode(stored, "utf-8")
        return texts


def open_samples(folder: Path, *, site: str, samples: int) -> SampleTable:
    """Open and check the sample table in `folder`; a site without a training sample is a `FealError`."""
    columns = {
        name: StoredArray(folder / f"{name}.npy", shape=(samples,), kinds=(kind,)).array
        for name, kind in SAMPLE_COLUMNS.items()
    }
    _check_order(columns, folder, site)
    if not (columns["split"] == b"train").any():
        raise no_training_sample_error(site)
    return SampleTable(site, columns)


def write_samples(folder: Path, *, site: str, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write a table sorted by id from columns in the order of the array rows.

    Raises:
        FealError: an id occurs twice, or an id or split is invalid.
    """
    for name in ("id", "patient", "source"):
        for text in columns[name]:
            if not text.isprintable() or len(text) > 500 or (name == "id" and not text):
                raise FealError(
                    f"The {name} {text!r} of site '{site}' is invalid: use 1 to 500 printable characters."
                )
    for split in set(columns["split"]) - set(SPLITS):
        raise FealError(f"Site '{site}' has a sample of split '{split}': use {' or '.join(SPLITS)}.")
    stored: dict[str, NDArray[Any]] = {
        name: np.array([text.encode() for text in columns[name]], dtype=np.bytes_)
        for name, kind in SAMPLE_COLUMNS.items()
        if kind == "S"
    }
    order = np.argsort(stored["id"], kind="stable")
    stored |= {"given": np.asarray(columns["given"], dtype=np.bool_), "row": np.arange(len(order))}
    stored = {name: column[order] for name, column in stored.items()}
    _check_order(stored, folder, site)
    folder.mkdir()
    for name, column in stored.items():
        write_array(folder / f"{name}.npy", column)


def no_training_sample_error(site: str) -> FealError:
    """Return the error for a site without a training sample."""
    return FealError(f"Site '{site}' has no training sample: add some or leave the site out.")


def _check_order(columns: Mapping[str, NDArray[Any]], folder: Path, site: str) -> None:
    """Raise a `FealError` unless ids are unique and sorted and rows a permutation."""
    ids, rows = columns["id"], columns["row"]
    same = np.flatnonzero(ids[1:] == ids[:-1])
    if len(same):
        raise FealError(
            f"Site '{site}' has the sample id '{ids[same[0]].decode()}' twice: give every sample a unique id."
        )
    if np.any(ids[1:] < ids[:-1]) or not np.array_equal(np.sort(rows), np.arange(len(rows))):
        raise FealError(f"The sample table {folder} is not in order: {REPAIR}.")
