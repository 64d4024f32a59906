"""Fed-Prostate: the prostate in MR slices of six sites, as NIfTI volumes or as MiDSS's slices in PNG."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
from numpy.typing import NDArray

from feal.data.prepare.base import DATASET_SOURCES, SourceRecord, Split, UnusableFileError, make_finding
from feal.data.prepare.datasets.layout import (
    PairedFolders,
    Pairing,
    find_entry,
    index_by_stem,
    list_files,
    merge,
    pair_by_stem,
    pair_folder,
)
from feal.data.prepare.decode import VOLUME_SUFFIXES, is_volume, strip_suffix
from feal.data.resize import Fitting

_NAMES = ("BIDMC", "BMC", "HK", "I2CVB", "RUNMC", "UCL")
_SEGMENTATION = "_segmentation"


@DATASET_SOURCES.register("fed-prostate", summary="segmentation: the prostate in MR slices of six sites")
class FedProstate(PairedFolders):
    """Slices that show a prostate, each clipped at its 99th percentile and stretched to 16 bits."""

    name = "fed-prostate"
    classes = ("background", "prostate")
    size = 384
    split = "8:2"
    channels = 1
    dtype = "uint16"
    fitting: ClassVar[Fitting] = Fitting(clip=0.99)
    site_folders: ClassVar = {name.lower(): (name,) for name in _NAMES}
    should_hold = (
        f"the folders {', '.join(_NAMES)}, each with volumes such as Case00.nii.gz and Case00_segmentation.nii.gz"
    )
    mask_values: ClassVar = {0: 1, 255: 0}
    """In the masks of MiDSS the prostate is black."""

    def scan_site(self, site: str, folder: Path, root: Path) -> Pairing:
        """Pair the slices of both splits if there are any, or else the volumes."""
        parts = {split: part for split in get_args(Split) if (part := find_entry(folder, split)) is not None}
        if not parts:
            return _scan_volumes(folder, site=site, root=root)
        return merge(_scan_slices(part, site=site, root=root, split=split) for split, part in parts.items())

    def to_classes(self, values: NDArray[Any], record: SourceRecord) -> NDArray[np.uint8]:
        """Convert the values of a mask; some sites number the zones of the prostate in volumes."""
        if not is_volume(record.image):
            return super().to_classes(values, record)
        if (values < 0).any() or (values != np.floor(values)).any():
            raise UnusableFileError("has negative or fractional mask values", file=record.mask)
        if not values.any():
            raise UnusableFileError("shows no prostate in any slice", file=record.mask)
        return (values > 0).astype(np.uint8)

    def decode(self, record: SourceRecord) -> Iterator[tuple[str, NDArray[Any], int | NDArray[np.uint8] | None]]:
        """Yield the slices that show a prostate."""
        return (sample for sample in super().decode(record) if np.any(sample[2]))


def _scan_volumes(folder: Path, *, site: str, root: Path) -> Pairing:
    found, findings = index_by_stem(list_files(folder, VOLUME_SUFFIXES), root, ignore_case=True)
    images = {stem: path for stem, path in found.items() if not stem.endswith(_SEGMENTATION)}
    masks = {stem.removesuffix(_SEGMENTATION): path for stem, path in found.items() if stem not in images}
    if not images:
        findings.append(make_finding(folder, root, "holds no volume"))
    records, unpaired = pair_by_stem(images, masks, images=folder, masks=folder, site=site, root=root)
    named_as_written = [(record, strip_suffix(record.image)) for record in records]
    return [replace(record, id=case, group=case) for record, case in named_as_written], [*findings, *unpaired]


def _scan_slices(folder: Path, *, site: str, root: Path, split: Split) -> Pairing:
    """List the slices `case_slice.png` of MiDSS; each split numbers its cases from 0."""
    records, findings = pair_folder(folder, site=site, root=root, split=split)
    apart = [
        replace(record, id=f"{split}-{record.id}", group=f"{split}-{record.id.split('_')[0]}")
        for record in records
    ]
    return apart, findings
