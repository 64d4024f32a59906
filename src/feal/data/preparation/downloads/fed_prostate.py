"""Fed-Prostate: the prostate in MR slices of six sites, as NIfTI volumes or as MiDSS's slices in PNG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from feal.data.fitting import Fitting
from feal.data.preparation.contract import Download, Draft, Finding, Piece, Scan, Split, UnfitError
from feal.data.preparation.decoding import VOLUMES, check_same_size, mapped, volume
from feal.data.preparation.downloads.drafts import (
    by_stem,
    channels_first,
    couples,
    grey,
    image_and_mask,
    joined,
    paired,
    without_partner,
)
from feal.data.preparation.downloads.folders import named, relative, sites_of, with_endings
from feal.data.preparation.registry import DOWNLOADS

SITES = {name.lower(): (name,) for name in ("BIDMC", "BMC", "HK", "I2CVB", "RUNMC", "UCL")}
SEGMENTATION = "_segmentation"
SPLITS: tuple[Split, ...] = ("train", "test")
INVERTED = {0: 1, 255: 0}
"""MiDSS's masks: the prostate is black."""


@DOWNLOADS.register("fed-prostate", summary="segmentation: the prostate in MR slices of six sites")
class FedProstate(Download):
    """Slices that show a prostate, each clipped at its 99th percentile and stretched to 16 bits."""

    name = "fed-prostate"
    task = "segmentation"
    classes = ("background", "prostate")
    size = 384
    channels = 1
    dtype = "uint16"
    fitting: ClassVar[Fitting] = Fitting(clip=0.99)

    def scan(self, folder: Path) -> Scan:
        should_hold = (
            f"the folders {', '.join(name for (name,) in SITES.values())}, "
            "each with volumes such as Case00.nii.gz and Case00_segmentation.nii.gz"
        )
        folders, absent = sites_of(folder, SITES, should_hold=should_hold)
        drafts, findings = joined(_site(at, site=site, root=folder) for site, at in folders.items())
        return Scan(drafts=drafts, findings=findings, absent=absent)

    def read(self, draft: Draft, *, size: int) -> Sequence[Piece]:
        slices = _of_volume(draft) if draft.image.name.lower().endswith(VOLUMES) else _of_picture(draft)
        return [
            Piece(
                id=name,
                image=channels_first(self.fitting.image(image, size, size)),
                truth=self.fitting.mask(mask, size, size),
            )
            for name, image, mask in slices
            if mask.any()
        ]


def _site(folder: Path, *, site: str, root: Path) -> tuple[list[Draft], list[Finding]]:
    parts = {split: part for split in SPLITS if (part := named(folder, split)) is not None}
    if not parts:
        return _volumes(folder, site=site, root=root)
    return joined(_slices(part, site=site, root=root, split=split) for split, part in parts.items())


def _volumes(folder: Path, *, site: str, root: Path) -> tuple[list[Draft], list[Finding]]:
    found, findings = by_stem(with_endings(folder, VOLUMES), root, stem=lambda path: _stem(path).lower())
    images = {stem: path for stem, path in found.items() if not stem.endswith(SEGMENTATION)}
    masks = {stem.removesuffix(SEGMENTATION): path for stem, path in found.items() if stem not in images}
    if not images:
        findings.append(Finding(file=relative(folder, root), problem="holds no volume"))
    findings += without_partner(images, masks, images=folder, masks=folder, root=root)
    named_as_written = [(draft, _stem(draft.image)) for draft in couples(images, masks, site=site)]
    return [replace(draft, id=case, group=case) for draft, case in named_as_written], findings


def _slices(folder: Path, *, site: str, root: Path, split: Split) -> tuple[list[Draft], list[Finding]]:
    """MiDSS's slices `case_slice.png`; each side of the split numbers its cases from 0."""
    drafts, findings = paired(folder, site=site, root=root, split=split)
    apart = [
        replace(draft, id=f"{split}-{draft.id}", group=f"{split}-{draft.id.split('_')[0]}") for draft in drafts
    ]
    return apart, findings


def _of_volume(draft: Draft) -> Iterator[tuple[str, NDArray[Any], NDArray[np.uint8]]]:
    if draft.mask is None:
        raise UnfitError("has no segmentation")
    image, values = volume(draft.image), volume(draft.mask)
    check_same_size(image, values, file=draft.mask)
    # Some sites number the zones of the prostate: all of them count.
    if (values < 0).any() or (values != np.floor(values)).any():
        raise UnfitError("has mask values that are no class numbers (below zero or fractions)", file=draft.mask)
    mask = (values > 0).astype(np.uint8)
    if not mask.any():
        raise UnfitError("shows no prostate in any slice", file=draft.mask)
    for place in range(image.shape[2]):
        # NIfTI's first axis runs along a row of the picture.
        yield f"{draft.id}-{place:03d}", image[:, :, place].T, mask[:, :, place].T


def _of_picture(draft: Draft) -> Iterator[tuple[str, NDArray[Any], NDArray[np.uint8]]]:
    image, values = image_and_mask(draft)
    yield draft.id, grey(image, file=draft.image), mapped(values, INVERTED, file=draft.mask)


def _stem(path: Path) -> str:
    ending = next(
        ending for ending in sorted(VOLUMES, key=len, reverse=True) if path.name.lower().endswith(ending)
    )
    return path.name[: -len(ending)]
