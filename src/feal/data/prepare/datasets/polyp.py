"""Fed-Polyp: polyps in endoscopic frames of four centres, in the paper's layout or in PraNet's."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from feal.data.prepare import ScanResult, SourceRecord, UnusableFileError
from feal.data.prepare.base import DATASET_SOURCES, Split, make_finding
from feal.data.prepare.datasets.layout import PairedFolders, Pairing, find_entry, find_home, merge, pair_folder
from feal.data.resize import Fitting

_PRANET = ("TrainDataset", "TestDataset")
_THRESHOLD = 128
"""The smallest mask value that is polyp; masks saved as JPEG hold values in between."""


@DATASET_SOURCES.register("fed-polyp", summary="segmentation: polyps in endoscopic frames of four centres")
class FedPolyp(PairedFolders):
    """Letterboxed frames and masks; the download names no patients, so similar frames are grouped instead."""

    name = "fed-polyp"
    classes = ("background", "polyp")
    size = 384
    split = "8:2"
    fitting: ClassVar[Fitting] = Fitting(shape="letterbox")
    site_folders: ClassVar = {
        "kvasir": ("Kvasir", "Kvasir-SEG"),
        "etis": ("ETIS", "ETIS-LaribPolypDB"),
        "cvc-colondb": ("CVC-ColonDB",),
        "cvc-clinicdb": ("CVC-ClinicDB",),
    }
    should_hold = (
        "Kvasir, ETIS, CVC-ColonDB and CVC-ClinicDB, each with the folders image and mask, "
        "or PraNet's TrainDataset and TestDataset"
    )

    def scan(self, folder: Path) -> ScanResult:
        """Find the frames in either layout."""
        names = [name for names in self.site_folders.values() for name in names]
        home = find_home(folder, [*_PRANET, *names], should_hold=self.should_hold)
        if find_entry(home, *_PRANET) is None:
            return super().scan(folder)
        train, test = (find_entry(home, name) for name in _PRANET)
        tested = {} if test is None else self.find_sites(test)
        parts = [pair_folder(at, site=site, root=folder, split="test") for site, at in tested.items()]
        if train is not None:
            mixed, problems = pair_folder(train, site="", root=folder, split="train")
            parts = [([], problems), _sort_by_centre(mixed, folder), *parts]
        records, findings = merge(parts)
        present = {record.site for record in records}
        absent = [site for site in self.site_folders if site not in present]
        records, remarks = _drop_partial_splits(records)
        if find_entry(test, "CVC-300") is not None:
            remarks.append(
                "CVC-300 is left out: its frames are from the sequences of CVC-ColonDB, which is a site."
            )
        return ScanResult(records=records, findings=findings, absent=absent, remarks=remarks)

    def to_classes(self, values: NDArray[Any], record: SourceRecord) -> NDArray[np.uint8]:
        """Threshold the values of a mask."""
        polyp = (values >= _THRESHOLD).astype(np.uint8)
        # A mask of zeros and ones would silently become empty.
        if values.any() and not polyp.any():
            problem = f"has no value of {_THRESHOLD} or more (the largest is {values.max()}), so it shows no polyp"
            raise UnusableFileError(problem, file=record.mask)
        return polyp


def _sort_by_centre(mixed: Sequence[SourceRecord], root: Path) -> Pairing:
    """Sort PraNet's training frames by centre: names of Kvasir begin with c, those of CVC-ClinicDB are numbers."""
    records, strangers = [], []
    for record in mixed:
        if record.id.lower().startswith("c"):
            records.append(replace(record, site="kvasir"))
        elif record.id.isdecimal():
            records.append(replace(record, site="cvc-clinicdb"))
        else:
            problem = "is of an unknown centre: names of Kvasir begin with c, those of CVC-ClinicDB are numbers"
            strangers.append(make_finding(record.image, root, problem))
    return records, strangers


def _drop_partial_splits(records: Sequence[SourceRecord]) -> tuple[list[SourceRecord], list[str]]:
    """Drop the split of sites that PraNet keeps for testing as a whole, since a site needs both splits."""
    splits: dict[str, set[Split | None]] = defaultdict(set)
    for record in records:
        splits[record.site].add(record.split)
    remarks = [
        f"Site '{site}' is shipped with one split only ({split}), so it is split again."
        for site, (split, *others) in splits.items()
        if not others
    ]
    kept = [record if len(splits[record.site]) > 1 else replace(record, split=None) for record in records]
    return kept, remarks
