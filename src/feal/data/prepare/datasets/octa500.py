"""OCTA-500: the foveal avascular zone in angiographic projections of two fields of view, in both releases."""

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
    UnusableFileError,
)
from feal.data.prepare.datasets.layout import (
    channels_first,
    decode_pair,
    find_entry,
    find_sites,
    match_masks,
    merge_parts,
    relative_path,
    to_grey,
)
from feal.data.prepare.decode import map_values
from feal.data.resize import Fitting

SITES = {"octa-3m": ("OCTA_3M", "OCTA_3mm"), "octa-6m": ("OCTA_6M", "OCTA_6mm")}
SIDES = {"octa-3m": 304, "octa-6m": 400}
"""The side in pixels, as published."""
PROJECTIONS = ("ProjectionMaps", "Projection Maps")
LAYER = "OCTA(ILM_OPL)"
ZONE = {0: 0, 255: 1}
ZONE_AND_VESSELS = {0: 0, 100: 1, 255: 0}
"""The older release draws both in one image: the zone as 100, large vessels as 255."""


@DATASET_SOURCES.register(
    "octa-500", summary="segmentation: the foveal avascular zone at two fields of view of retinal angiography"
)
class Octa500(DatasetSource):
    """Projections between ILM and OPL, unscaled on a canvas of 400; the smaller ones have a black border."""

    name = "octa-500"
    task = "segmentation"
    classes = ("background", "avascular zone")
    size = 400
    fitting: ClassVar[Fitting] = Fitting(shape="canvas", canvas=400)
    channels = 1

    def scan(self, folder: Path) -> ScanResult:
        should_hold = f"OCTA_3M and OCTA_6M, each with ProjectionMaps/{LAYER} and GT_FAZ (or GroundTruth)"
        folders, absent = find_sites(folder, SITES, should_hold=should_hold)
        records, findings = merge_parts(_scan_site(at, site=site, root=folder) for site, at in folders.items())
        return ScanResult(records=records, findings=findings, absent=absent)

    def read(self, record: SourceRecord, *, size: int) -> Sequence[DecodedSample]:
        image, values = decode_pair(record)
        side = SIDES[record.site]
        if image.shape[:2] != (side, side):
            high, wide = image.shape[:2]
            raise UnusableFileError(f"is {wide} x {high} pixels, but this field of view has {side} x {side}")
        plain = to_grey(image, file=record.image)
        eight = (plain >> 8).astype(np.uint8) if plain.dtype == np.uint16 else plain
        mask = map_values(values, ZONE_AND_VESSELS if (values == 100).any() else ZONE, file=record.mask)
        return [
            DecodedSample(
                id=record.id,
                image=channels_first(self.fitting.fit_image(eight, size, size)),
                label=self.fitting.fit_mask(mask, size, size),
            )
        ]


def _scan_site(folder: Path, *, site: str, root: Path) -> tuple[list[SourceRecord], list[Finding]]:
    projections = find_entry(folder, *PROJECTIONS)
    images = None if projections is None else find_entry(projections, LAYER)
    masks = find_entry(folder, "GT_FAZ", "GroundTruth")
    if images is None or masks is None:
        missing = f"ProjectionMaps/{LAYER}" if images is None else "GT_FAZ or GroundTruth"
        return [], [Finding(file=relative_path(folder, root), problem=f"has no folder {missing}")]
    records, findings = match_masks(images, masks, site=site, root=root)
    return [replace(record, group=record.id) for record in records], findings
