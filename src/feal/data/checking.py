"""Everything that is wrong with a prepared data set, and what it holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from feal.data.prepared import PreparedSet, PreparedSite, altered_files
from feal.data.samples import SPLITS
from feal.data.truth import UNKNOWN, open_truth
from feal.errors import FealError


def problems(prepared: PreparedSet) -> Iterator[tuple[Path, str]]:
    """All files that are not as they were prepared, and what the data themselves have wrong; reads everything."""
    for name in prepared.sites:
        for path in altered_files(prepared, name):
            yield path, wrong_with(path)
        try:
            site = prepared.site(name)
            open_truth(site).check()
        except FealError as error:
            yield prepared.root / name, str(error)


def wrong_with(path: Path) -> str:
    """What is wrong with a file that is not as it was prepared."""
    return "differs from its checksum in the manifest" if path.is_file() else "is missing"


def class_counts(site: PreparedSite) -> Mapping[str, NDArray[np.int64]]:
    """By split, the samples of each class, or whose mask shows it, and last the unlabelled ones: int64 [C + 1].

    The truth is read a few megabytes at a time.
    """
    truth, classes = open_truth(site), len(site.classes)
    sides = np.zeros(len(site), dtype=np.int64)
    sides[site.rows(site.ids("test"))] = SPLITS.index("test")
    counts = np.zeros((len(SPLITS), classes + 1), dtype=np.int64)
    numbers = np.array([*range(classes), UNKNOWN[site.task]])
    for rows, values in truth.parts():
        flat = values.reshape(len(rows), -1)
        shown = np.stack([(flat == number).any(axis=1) for number in numbers], axis=1)
        for side in range(len(SPLITS)):
            counts[side] += shown[sides[rows] == side].sum(axis=0)
    return dict(zip(SPLITS, counts, strict=True))
