"""OCTA-500: the foveal avascular zone in angiographic projections of two fields of view, in both releases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from feal.data.fitting import Fitting
from feal.data.preparation.contract import Download, Draft, Finding, Piece, Scan, UnfitError
from feal.data.preparation.decoding import mapped
from feal.data.preparation.downloads.drafts import channels_first, grey, image_and_mask, joined, matched
from feal.data.preparation.downloads.folders import named, relative, sites_of
from feal.data.preparation.registry import DOWNLOADS

SITES = {"octa-3m": ("OCTA_3M", "OCTA_3mm"), "octa-6m": ("OCTA_6M", "OCTA_6mm")}
SIDES = {"octa-3m": 304, "octa-6m": 400}
"""Pixels of a side, as published."""
PROJECTIONS = ("ProjectionMaps", "Projection Maps")
LAYER = "OCTA(ILM_OPL)"
ZONE = {0: 0, 255: 1}
ZONE_AND_VESSELS = {0: 0, 100: 1, 255: 0}
"""The older release draws both in one picture: the zone with 100, large vessels with 255."""


@DOWNLOADS.register(
    "octa-500", summary="segmentation: the foveal avascular zone at two fields of view of retinal angiography"
)
class Octa500(Download):
    """Projections between ILM and OPL, pixel for pixel on a canvas of 400; the smaller ones have a black rim."""

    name = "octa-500"
    task = "segmentation"
    classes = ("background", "avascular zone")
    size = 400
    fitting: ClassVar[Fitting] = Fitting(shape="canvas", canvas=400)
    channels = 1

    def scan(self, folder: Path) -> Scan:
        should_hold = f"OCTA_3M and OCTA_6M, each with ProjectionMaps/{LAYER} and GT_FAZ (or GroundTruth)"
        folders, absent = sites_of(folder, SITES, should_hold=should_hold)
        drafts, findings = joined(_site(at, site=site, root=folder) for site, at in folders.items())
        return Scan(drafts=drafts, findings=findings, absent=absent)

    def read(self, draft: Draft, *, size: int) -> Sequence[Piece]:
        image, values = image_and_mask(draft)
        side = SIDES[draft.site]
        if image.shape[:2] != (side, side):
            high, wide = image.shape[:2]
            raise UnfitError(f"is {wide} x {high} pixels, and this field of view has {side} x {side}")
        plain = grey(image, file=draft.image)
        eight = (plain >> 8).astype(np.uint8) if plain.dtype == np.uint16 else plain
        mask = mapped(values, ZONE_AND_VESSELS if (values == 100).any() else ZONE, file=draft.mask)
        return [
            Piece(
                id=draft.id,
                image=channels_first(self.fitting.image(eight, size, size)),
                truth=self.fitting.mask(mask, size, size),
            )
        ]


def _site(folder: Path, *, site: str, root: Path) -> tuple[list[Draft], list[Finding]]:
    projections = named(folder, *PROJECTIONS)
    images = None if projections is None else named(projections, LAYER)
    masks = named(folder, "GT_FAZ", "GroundTruth")
    if images is None or masks is None:
        missing = f"ProjectionMaps/{LAYER}" if images is None else "GT_FAZ or GroundTruth"
        return [], [Finding(file=relative(folder, root), problem=f"has no folder {missing}")]
    drafts, findings = matched(images, masks, site=site, root=root)
    return [replace(draft, group=draft.id) for draft in drafts], findings
