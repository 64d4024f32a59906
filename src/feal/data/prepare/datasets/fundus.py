"""Fed-Fundus: optic disc and cup in retinal photographs of four sources, in the layout of DoFE and FedDG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from feal.data.prepare.base import (
    DATASET_SOURCES,
    DatasetSource,
    DecodedSample,
    Finding,
    ScanResult,
    SourceRecord,
    Split,
)
from feal.data.prepare.datasets.layout import (
    channels_first,
    decode_pair,
    find_entry,
    find_sites,
    merge_parts,
    pair_folder,
    relative_path,
)
from feal.data.prepare.decode import map_values, to_rgb
from feal.data.resize import Fitting

SITES = {
    "drishti-gs": ("Domain1",),
    "rim-one-r3": ("Domain2",),
    "refuge-train": ("Domain3",),
    "refuge-val": ("Domain4",),
}
SPLITS: tuple[Split, ...] = ("train", "test")
MASK = {255: 0, 128: 1, 0: 2}


@DATASET_SOURCES.register(
    "fed-fundus", summary="segmentation: optic disc and cup in retinal photographs of four sources"
)
class FedFundus(DatasetSource):
    """Regions of interest around the disc, stretched to a square; the shipped split is kept."""

    name = "fed-fundus"
    task = "segmentation"
    classes = ("background", "rim", "cup")
    size = 384
    fitting: ClassVar[Fitting] = Fitting()
    regions: ClassVar[Mapping[str, tuple[int, ...]]] = {"disc": (1, 2), "cup": (2,)}

    def scan(self, folder: Path) -> ScanResult:
        should_hold = "Domain1 to Domain4, each with {train,test}/ROIs/{image,mask}"
        folders, absent = find_sites(folder, SITES, should_hold=should_hold)
        parts = [(site, domain, split) for site, domain in folders.items() for split in SPLITS]
        records, findings = merge_parts(
            _scan_split(domain, site=site, root=folder, split=split) for site, domain, split in parts
        )
        return ScanResult(records=records, findings=findings, absent=absent)

    def read(self, record: SourceRecord, *, size: int) -> Sequence[DecodedSample]:
        image, values = decode_pair(record)
        mask = map_values(values, MASK, file=record.mask)
        small = self.fitting.fit_image(to_rgb(image), size, size)
        return [
            DecodedSample(id=record.id, image=channels_first(small), label=self.fitting.fit_mask(mask, size, size))
        ]


def _scan_split(domain: Path, *, site: str, root: Path, split: Split) -> tuple[list[SourceRecord], list[Finding]]:
    part = find_entry(domain, split)
    rois = None if part is None else find_entry(part, "ROIs")
    if rois is None:
        return [], [Finding(file=relative_path(domain, root), problem=f"has no folder {split}/ROIs")]
    return pair_folder(rois, site=site, root=root, split=split)
