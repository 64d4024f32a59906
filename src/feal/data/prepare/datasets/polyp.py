"""Fed-Polyp: polyps in endoscopic frames of four centres, in the paper's layout or in PraNet's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from feal.data.prepare.base import (
    DATASET_SOURCES,
    DatasetSource,
    DecodedSample,
    Finding,
    ScanResult,
    SourceRecord,
    Split,
    UnusableFileError,
)
from feal.data.prepare.datasets.layout import (
    channels_first,
    decode_pair,
    find_entry,
    find_home,
    find_site_folders,
    merge_parts,
    pair_folder,
    relative_path,
)
from feal.data.prepare.decode import to_rgb
from feal.data.resize import Fitting

SITES = {
    "kvasir": ("Kvasir", "Kvasir-SEG"),
    "etis": ("ETIS", "ETIS-LaribPolypDB"),
    "cvc-colondb": ("CVC-ColonDB",),
    "cvc-clinicdb": ("CVC-ClinicDB",),
}
PRANET = ("TrainDataset", "TestDataset")
THRESHOLD = 128
"""The smallest mask value that is polyp; masks saved as JPEG hold values in between."""


@DATASET_SOURCES.register("fed-polyp", summary="segmentation: polyps in endoscopic frames of four centres")
class FedPolyp(DatasetSource):
    """Letterboxed frames and masks; the download names no patients, so similar frames are grouped instead."""

    name = "fed-polyp"
    task = "segmentation"
    classes = ("background", "polyp")
    size = 384
    fitting: ClassVar[Fitting] = Fitting(shape="letterbox")

    def scan(self, folder: Path) -> ScanResult:
        should_hold = (
            "Kvasir, ETIS, CVC-ColonDB and CVC-ClinicDB, each with the folders image and mask, "
            "or PraNet's TrainDataset and TestDataset"
        )
        ours = [name for names in SITES.values() for name in names]
        place = find_home(folder, (*PRANET, *ours), should_hold=should_hold)
        if find_entry(place, *PRANET) is not None:
            return _scan_pranet(place, folder)
        folders, absent = find_site_folders(place, SITES)
        records, findings = merge_parts(pair_folder(at, site=site, root=folder) for site, at in folders.items())
        return ScanResult(records=records, findings=findings, absent=absent)

    def read(self, record: SourceRecord, *, size: int) -> Sequence[DecodedSample]:
        image, values = decode_pair(record)
        polyp = (values >= THRESHOLD).astype(np.uint8)
        # A mask of zeros and ones would silently become empty.
        if values.any() and not polyp.any():
            problem = f"has no value of {THRESHOLD} or more (the largest is {values.max()}), so it shows no polyp"
            raise UnusableFileError(problem, file=record.mask)
        boxed = self.fitting.fit_image(to_rgb(image), size, size)
        return [
            DecodedSample(
                id=record.id, image=channels_first(boxed), label=self.fitting.fit_mask(polyp, size, size)
            )
        ]


def _scan_pranet(place: Path, root: Path) -> ScanResult:
    train, test = (find_entry(place, name) for name in PRANET)
    tested, _ = ({}, ()) if test is None else find_site_folders(test, SITES)
    parts = [pair_folder(at, site=site, root=root, split="test") for site, at in tested.items()]
    if train is not None:
        mixed, problems = pair_folder(train, site="", root=root, split="train")
        parts = [([], problems), _sort_by_centre(mixed, root), *parts]
    records, findings = merge_parts(parts)
    kept, remarks = _drop_partial_splits(records)
    if test is not None and find_entry(test, "CVC-300") is not None:
        remarks.append("CVC-300 is left out: its frames are from the sequences of CVC-ColonDB, which is a site.")
    present = {record.site for record in records}
    return ScanResult(
        records=kept,
        findings=findings,
        absent=[site for site in SITES if site not in present],
        remarks=remarks,
    )


def _sort_by_centre(mixed: Sequence[SourceRecord], root: Path) -> tuple[list[SourceRecord], list[Finding]]:
    """Sort PraNet's training frames by centre: names of Kvasir begin with c, those of CVC-ClinicDB are numbers."""
    records, strangers = [], []
    for record in mixed:
        if record.id.lower().startswith("c"):
            records.append(replace(record, site="kvasir"))
        elif record.id.isdecimal():
            records.append(replace(record, site="cvc-clinicdb"))
        else:
            problem = "is of an unknown centre: names of Kvasir begin with c, those of CVC-ClinicDB are numbers"
            strangers.append(Finding(file=relative_path(record.image, root), problem=problem))
    return records, strangers


def _drop_partial_splits(records: Sequence[SourceRecord]) -> tuple[list[SourceRecord], list[str]]:
    """Drop the split of sites that PraNet keeps for testing as a whole, since a site needs both splits."""
    sides: dict[str, set[Split | None]] = {}
    for record in records:
        sides.setdefault(record.site, set()).add(record.split)
    remarks = [
        f"Site '{site}' is shipped with one split only ({side}), so it is split again."
        for site, (side, *others) in sides.items()
        if not others
    ]
    kept = [record if len(sides[record.site]) > 1 else replace(record, split=None) for record in records]
    return kept, remarks
