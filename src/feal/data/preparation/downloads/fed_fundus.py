"""Fed-Fundus: optic disc and cup in retinal photographs of four sources, in the layout of DoFE and FedDG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from feal.data.fitting import Fitting
from feal.data.preparation.contract import Download, Draft, Finding, Piece, Scan, Split
from feal.data.preparation.decoding import colour, mapped
from feal.data.preparation.downloads.drafts import channels_first, image_and_mask, joined, paired
from feal.data.preparation.downloads.folders import named, relative, sites_of
from feal.data.preparation.registry import DOWNLOADS

SITES = {
    "drishti-gs": ("Domain1",),
    "rim-one-r3": ("Domain2",),
    "refuge-train": ("Domain3",),
    "refuge-val": ("Domain4",),
}
SPLITS: tuple[Split, ...] = ("train", "test")
MASK = {255: 0, 128: 1, 0: 2}


@DOWNLOADS.register(
    "fed-fundus", summary="segmentation: optic disc and cup in retinal photographs of four sources"
)
class FedFundus(Download):
    """Regions of interest around the disc, resized without regard to their sides; the shipped split is kept."""

    name = "fed-fundus"
    task = "segmentation"
    classes = ("background", "rim", "cup")
    size = 384
    fitting: ClassVar[Fitting] = Fitting()
    regions: ClassVar[Mapping[str, tuple[int, ...]]] = {"disc": (1, 2), "cup": (2,)}

    def scan(self, folder: Path) -> Scan:
        should_hold = "Domain1 to Domain4, each with {train,test}/ROIs/{image,mask}"
        folders, absent = sites_of(folder, SITES, should_hold=should_hold)
        parts = [(site, domain, split) for site, domain in folders.items() for split in SPLITS]
        drafts, findings = joined(
            _part(domain, site=site, root=folder, split=split) for site, domain, split in parts
        )
        return Scan(drafts=drafts, findings=findings, absent=absent)

    def read(self, draft: Draft, *, size: int) -> Sequence[Piece]:
        image, values = image_and_mask(draft)
        mask = mapped(values, MASK, file=draft.mask)
        small = self.fitting.image(colour(image), size, size)
        return [Piece(id=draft.id, image=channels_first(small), truth=self.fitting.mask(mask, size, size))]


def _part(domain: Path, *, site: str, root: Path, split: Split) -> tuple[list[Draft], list[Finding]]:
    part = named(domain, split)
    rois = None if part is None else named(part, "ROIs")
    if rois is None:
        return [], [Finding(file=relative(domain, root), problem=f"has no folder {split}/ROIs")]
    return paired(rois, site=site, root=root, split=split)
