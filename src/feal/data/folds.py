"""A validation fold: a part of the training samples that settings are tuned on, so that the test part rests."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from feal.data.samples import SampleTable
from feal.errors import FealError

RESTING = b"rest"
"""The split of samples that take no part: asked for by no one, found by no name."""


def held_out(table: SampleTable, share: float, *, labelled_only: bool = False) -> SampleTable:
    """The table with a share of the training part as its test part; the test part itself rests.

    All samples of a patient (case, lesion, group of like frames) stay together. Patients are taken in the order of
    a hash of their names until the fold holds at least `share` of the samples: the same fold in every run. With
    `labelled_only` a sample of theirs that nobody has labelled rests, as nothing can be judged by it.

    Raises:
        FealError: the site would be left without a training sample.
    """
    train = table.of_split("train")
    patients = table.columns["patient"][train]
    names, members, counts = np.unique(patients, return_inverse=True, return_counts=True)
    order = np.argsort([_draw(name) for name in names.tolist()], kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    chosen = np.zeros(len(names), dtype=np.bool_)
    chosen[order[before < share * len(patients)]] = True
    if chosen.all():
        raise FealError(
            f"A validation fold of {share:g} leaves site '{table.site}' no patient to train on: "
            "take a smaller share, or leave the site out."
        )
    split: NDArray[np.bytes_] = np.where(train, b"train", RESTING)
    split[np.flatnonzero(train)[chosen[members]]] = b"test"
    if labelled_only:
        split[(split == b"test") & ~table.columns["given"]] = RESTING
    return replace(table, columns={**table.columns, "split": split})


def _draw(patient: bytes) -> bytes:
    return hashlib.blake2b(patient, digest_size=8, person=b"validation").digest()
