"""Fed-Polyp: polyps in endoscopic frames of four centres, in the paper's layout or in PraNet's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from feal.data.fitting import Fitting
from feal.data.preparation.contract import Download, Draft, Finding, Piece, Scan, Split, UnfitError
from feal.data.preparation.decoding import colour
from feal.data.preparation.downloads.drafts import channels_first, image_and_mask, joined, paired
from feal.data.preparation.downloads.folders import home, named, relative, site_folders
from feal.data.preparation.registry import DOWNLOADS

SITES = {
    "kvasir": ("Kvasir", "Kvasir-SEG"),
    "etis": ("ETIS", "ETIS-LaribPolypDB"),
    "cvc-colondb": ("CVC-ColonDB",),
    "cvc-clinicdb": ("CVC-ClinicDB",),
}
PRANET = ("TrainDataset", "TestDataset")
THRESHOLD = 128
"""From this value on a mask's pixel is polyp; masks that are JPEG files hold values in between."""


@DOWNLOADS.register("fed-polyp", summary="segmentation: polyps in endoscopic frames of four centres")
class FedPolyp(Download):
    """Frames and masks, letterboxed; the download names no patients, so repeats are told by likeness alone."""

    name = "fed-polyp"
    task = "segmentation"
    classes = ("background", "polyp")
    size = 384
    fitting: ClassVar[Fitting] = Fitting(shape="letterbox")

    def scan(self, folder: Path) -> Scan:
        should_hold = (
            "Kvasir, ETIS, CVC-ColonDB and CVC-ClinicDB, each with the folders image and mask, "
            "or PraNet's TrainDataset and TestDataset"
        )
        ours = [name for names in SITES.values() for name in names]
        place = home(folder, (*PRANET, *ours), should_hold=should_hold)
        if named(place, *PRANET) is not None:
            return _pranet(place, folder)
        folders, absent = site_folders(place, SITES)
        drafts, findings = joined(paired(at, site=site, root=folder) for site, at in folders.items())
        return Scan(drafts=drafts, findings=findings, absent=absent)

    def read(self, draft: Draft, *, size: int) -> Sequence[Piece]:
        image, values = image_and_mask(draft)
        polyp = (values >= THRESHOLD).astype(np.uint8)
        # A mask of zeros and ones would come out empty without a word.
        if values.any() and not polyp.any():
            problem = f"has no value of {THRESHOLD} or more (the largest is {values.max()}), so it shows no polyp"
            raise UnfitError(problem, file=draft.mask)
        boxed = self.fitting.image(colour(image), size, size)
        return [Piece(id=draft.id, image=channels_first(boxed), truth=self.fitting.mask(polyp, size, size))]


def _pranet(place: Path, root: Path) -> Scan:
    train, test = (named(place, name) for name in PRANET)
    tested, _ = ({}, ()) if test is None else site_folders(test, SITES)
    parts = [paired(at, site=site, root=root, split="test") for site, at in tested.items()]
    if train is not None:
        mixed, problems = paired(train, site="", root=root, split="train")
        parts = [([], problems), _sorted_by_centre(mixed, root), *parts]
    drafts, findings = joined(parts)
    kept, remarks = _one_sided_sites_unsplit(drafts)
    if test is not None and named(test, "CVC-300") is not None:
        remarks.append("CVC-300 is left out: its frames are from the sequences of CVC-ColonDB, which is a site.")
    present = {draft.site for draft in drafts}
    return Scan(
        drafts=kept,
        findings=findings,
        absent=[site for site in SITES if site not in present],
        remarks=remarks,
    )


def _sorted_by_centre(mixed: Sequence[Draft], root: Path) -> tuple[list[Draft], list[Finding]]:
    """PraNet's training frames by centre: names of Kvasir begin with c, those of CVC-ClinicDB are numbers."""
    drafts, strangers = [], []
    for draft in mixed:
        if draft.id.lower().startswith("c"):
            drafts.append(replace(draft, site="kvasir"))
        elif draft.id.isdecimal():
            drafts.append(replace(draft, site="cvc-clinicdb"))
        else:
            problem = "is of no known centre: names of Kvasir begin with c, those of CVC-ClinicDB are numbers"
            strangers.append(Finding(file=relative(draft.image, root), problem=problem))
    return drafts, strangers


def _one_sided_sites_unsplit(drafts: Sequence[Draft]) -> tuple[list[Draft], list[str]]:
    """PraNet keeps whole centres for testing; a site needs both sides, so such a one is split like any other."""
    sides: dict[str, set[Split | None]] = {}
    for draft in drafts:
        sides.setdefault(draft.site, set()).add(draft.split)
    remarks = [
        f"Site '{site}' is shipped for one side only ({side}), so it is split anew."
        for site, (side, *others) in sides.items()
        if not others
    ]
    kept = [draft if len(sides[draft.site]) > 1 else replace(draft, split=None) for draft in drafts]
    return kept, remarks
