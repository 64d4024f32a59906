"""OCTA-500: the foveal avascular zone in angiographic projections of two fields of view, in both releases."""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from feal.data.prepare.base import DATASET_SOURCES, SourceRecord, UnusableFileError, make_finding
from feal.data.prepare.datasets.layout import PairedFolders, Pairing, find_entry, pair_files
from feal.data.prepare.decode import map_values
from feal.data.resize import Fitting

_LAYER = "OCTA(ILM_OPL)"
_SIDES = {"octa-3m": 304, "octa-6m": 400}
"""The side in pixels, as published."""
_ZONE_AND_VESSELS = {0: 0, 100: 1, 255: 0}
"""The older release draws both in one image: the zone as 100, large vessels as 255."""


@DATASET_SOURCES.register(
    "octa-500", summary="segmentation: the foveal avascular zone at two fields of view of retinal angiography"
)
class Octa500(PairedFolders):
    """Projections between ILM and OPL, unscaled on a canvas of 400; the smaller ones have a black border."""

    name = "octa-500"
    classes = ("background", "avascular zone")
    size = 400
    split = "8:2"
    fitting: ClassVar[Fitting] = Fitting(shape="canvas", canvas=400)
    channels = 1
    site_folders: ClassVar = {"octa-3m": ("OCTA_3M", "OCTA_3mm"), "octa-6m": ("OCTA_6M", "OCTA_6mm")}
    should_hold = f"OCTA_3M and OCTA_6M, each with ProjectionMaps/{_LAYER} and GT_FAZ (or GroundTruth)"
    mask_values: ClassVar = {0: 0, 255: 1}

    def scan_site(self, site: str, folder: Path, root: Path) -> Pairing:
        """Pair the projections with the masks of either release; each is a patient of its own."""
        images = find_entry(find_entry(folder, "ProjectionMaps", "Projection Maps"), _LAYER)
        masks = find_entry(folder, "GT_FAZ", "GroundTruth")
        if images is None or masks is None:
            missing = f"ProjectionMaps/{_LAYER}" if images is None else "GT_FAZ or GroundTruth"
            return [], [make_finding(folder, root, f"has no folder {missing}")]
        records, findings = pair_files(images, masks, site=site, root=root)
        return [replace(record, group=record.id) for record in records], findings

    def to_pixels(self, image: NDArray[Any], record: SourceRecord) -> NDArray[Any]:
        """Convert a projection that has the published size to 8 bits of grey."""
        side, (high, wide) = _SIDES[record.site], image.shape[:2]
        if (high, wide) != (side, side):
            raise UnusableFileError(f"is {wide} x {high} pixels, but this field of view has {side} x {side}")
        return super().to_pixels(image, record)

    def to_classes(self, values: NDArray[Any], record: SourceRecord) -> NDArray[np.uint8]:
        """Convert the values of either release to classes."""
        return map_values(
            values, _ZONE_AND_VESSELS if (values == 100).any() else self.mask_values, file=record.mask
        )
