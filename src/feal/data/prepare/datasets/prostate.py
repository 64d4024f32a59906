"""Fed-Prostate: the prostate in MR slices of six sites, as NIfTI volumes or as MiDSS's slices in PNG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

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
    find_sites,
    find_unpaired,
    index_by_stem,
    list_by_suffix,
    merge_parts,
    pair_by_stem,
    pair_folder,
    relative_path,
    to_grey,
)
from feal.data.prepare.decode import VOLUME_SUFFIXES, check_same_size, decode_volume, map_values
from feal.data.resize import Fitting

SITES = {name.lower(): (name,) for name in ("BIDMC", "BMC", "HK", "I2CVB", "RUNMC", "UCL")}
SEGMENTATION = "_segmentation"
SPLITS: tuple[Split, ...] = ("train", "test")
INVERTED = {0: 1, 255: 0}
"""In the masks of MiDSS the prostate is black."""


@DATASET_SOURCES.register("fed-prostate", summary="segmentation: the prostate in MR slices of six sites")
class FedProstate(DatasetSource):
    """Slices that show a prostate, each clipped at its 99th percentile and stretched to 16 bits."""

    name = "fed-prostate"
    task = "segmentation"
    classes = ("background", "prostate")
    size = 384
    channels = 1
    dtype = "uint16"
    fitting: ClassVar[Fitting] = Fitting(clip=0.99)

    def scan(self, folder: Path) -> ScanResult:
        should_hold = (
            f"the folders {', '.join(name for (name,) in SITES.values())}, "
            "each with volumes such as Case00.nii.gz and Case00_segmentation.nii.gz"
        )
        folders, absent = find_sites(folder, SITES, should_hold=should_hold)
        records, findings = merge_parts(_scan_site(at, site=site, root=folder) for site, at in folders.items())
        return ScanResult(records=records, findings=findings, absent=absent)

    def read(self, record: SourceRecord, *, size: int) -> Sequence[DecodedSample]:
        slices = (
            _decode_slices(record)
            if record.image.name.lower().endswith(VOLUME_SUFFIXES)
            else _decode_image(record)
        )
        return [
            DecodedSample(
                id=name,
                image=channels_first(self.fitting.fit_image(image, size, size)),
                label=self.fitting.fit_mask(mask, size, size),
            )
            for name, image, mask in slices
            if mask.any()
        ]


def _scan_site(folder: Path, *, site: str, root: Path) -> tuple[list[SourceRecord], list[Finding]]:
    parts = {split: part for split in SPLITS if (part := find_entry(folder, split)) is not None}
    if not parts:
        return _scan_volumes(folder, site=site, root=root)
    return merge_parts(_scan_slices(part, site=site, root=root, split=split) for split, part in parts.items())


def _scan_volumes(folder: Path, *, site: str, root: Path) -> tuple[list[SourceRecord], list[Finding]]:
    found, findings = index_by_stem(
        list_by_suffix(folder, VOLUME_SUFFIXES), root, stem=lambda path: _strip_suffix(path).lower()
    )
    images = {stem: path for stem, path in found.items() if not stem.endswith(SEGMENTATION)}
    masks = {stem.removesuffix(SEGMENTATION): path for stem, path in found.items() if stem not in images}
    if not images:
        findings.append(Finding(file=relative_path(folder, root), problem="holds no volume"))
    findings += find_unpaired(images, masks, images=folder, masks=folder, root=root)
    named_as_written = [(record, _strip_suffix(record.image)) for record in pair_by_stem(images, masks, site=site)]
    return [replace(record, id=case, group=case) for record, case in named_as_written], findings


def _scan_slices(folder: Path, *, site: str, root: Path, split: Split) -> tuple[list[SourceRecord], list[Finding]]:
    """List the slices `case_slice.png` of MiDSS; each split numbers its cases from 0."""
    records, findings = pair_folder(folder, site=site, root=root, split=split)
    apart = [
        replace(record, id=f"{split}-{record.id}", group=f"{split}-{record.id.split('_')[0]}")
        for record in records
    ]
    return apart, findings


def _decode_slices(record: SourceRecord) -> Iterator[tuple[str, NDArray[Any], NDArray[np.uint8]]]:
    if record.mask is None:
        raise UnusableFileError("has no segmentation")
    image, values = decode_volume(record.image), decode_volume(record.mask)
    check_same_size(image, values, file=record.mask)
    # Some sites number the zones of the prostate: all of them are prostate.
    if (values < 0).any() or (values != np.floor(values)).any():
        raise UnusableFileError("has negative or fractional mask values", file=record.mask)
    mask = (values > 0).astype(np.uint8)
    if not mask.any():
        raise UnusableFileError("shows no prostate in any slice", file=record.mask)
    for place in range(image.shape[2]):
        # The first axis of NIfTI runs along a row of the image.
        yield f"{record.id}-{place:03d}", image[:, :, place].T, mask[:, :, place].T


def _decode_image(record: SourceRecord) -> Iterator[tuple[str, NDArray[Any], NDArray[np.uint8]]]:
    image, values = decode_pair(record)
    yield record.id, to_grey(image, file=record.image), map_values(values, INVERTED, file=record.mask)


def _strip_suffix(path: Path) -> str:
    ending = next(
        ending for ending in sorted(VOLUME_SUFFIXES, key=len, reverse=True) if path.name.lower().endswith(ending)
    )
    return path.name[: -len(ending)]
