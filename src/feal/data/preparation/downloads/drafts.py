"""Drafts of images that have their masks in another folder, and what such a pair decodes to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feal.data.preparation.contract import Draft, Finding, Split, UnfitError
from feal.data.preparation.decoding import check_same_size, mask_values, picture
from feal.data.preparation.downloads.folders import named, pictures, relative

IMAGES = ("image", "images")
MASKS = ("mask", "masks")


def paired(
    folder: Path, *, site: str, root: Path, split: Split | None = None
) -> tuple[list[Draft], list[Finding]]:
    """Drafts of a folder that holds images and masks in `image` and `mask`; see `matched`."""
    images, masks = named(folder, *IMAGES), named(folder, *MASKS)
    if images is None or masks is None:
        missing = " and ".join(
            f"'{names[0]}'" for found, names in ((images, IMAGES), (masks, MASKS)) if found is None
        )
        return [], [Finding(file=relative(folder, root), problem=f"has no folder {missing}")]
    return matched(images, masks, site=site, root=root, split=split)


def matched(
    images: Path, masks: Path, *, site: str, root: Path, split: Split | None = None
) -> tuple[list[Draft], list[Finding]]:
    """Drafts of the images whose mask has the same name up to the ending; findings for all others."""
    shown, repeated_images = by_stem(pictures(images), root)
    drawn, repeated_masks = by_stem(pictures(masks), root)
    empty = [] if shown else [Finding(file=relative(images, root), problem="holds no picture")]
    coupled = [replace(draft, split=split) for draft in couples(shown, drawn, site=site)]
    alone = without_partner(shown, drawn, images=images, masks=masks, root=root)
    return coupled, [*repeated_images, *repeated_masks, *empty, *alone]


def couples(shown: Mapping[str, Path], drawn: Mapping[str, Path], *, site: str) -> list[Draft]:
    """Drafts of the images by name that have a mask by that name."""
    return [
        Draft(site=site, id=stem, image=shown[stem], mask=drawn[stem])
        for stem in sorted(shown.keys() & drawn.keys())
    ]


def without_partner(
    shown: Mapping[str, Path], drawn: Mapping[str, Path], *, images: Path, masks: Path, root: Path
) -> list[Finding]:
    """Findings for images without a mask and masks without an image, which should be in these folders."""
    no_mask = f"has no mask in {relative(masks, root)}"
    no_image = f"is a mask without its image in {relative(images, root)}"
    return [
        *(
            Finding(file=relative(shown[stem], root), problem=no_mask)
            for stem in sorted(shown.keys() - drawn.keys())
        ),
        *(
            Finding(file=relative(drawn[stem], root), problem=no_image)
            for stem in sorted(drawn.keys() - shown.keys())
        ),
    ]


def joined(parts: Iterable[tuple[list[Draft], list[Finding]]]) -> tuple[list[Draft], list[Finding]]:
    """Drafts and findings of several folders in one list each."""
    found = list(parts)
    return [draft for drafts, _ in found for draft in drafts], [one for _, findings in found for one in findings]


def by_stem(
    paths: Iterable[Path], root: Path, *, stem: Callable[[Path], str] = lambda path: path.stem
) -> tuple[dict[str, Path], list[Finding]]:
    """Files by their name up to the ending, the first of each, and a finding for every one that shares its name.

    `checked_drafts` takes the first out again, since a finding names it.
    """
    same: dict[str, list[Path]] = {}
    for path in paths:
        same.setdefault(stem(path), []).append(path)
    findings = []
    for first, second, *more in (files for files in same.values() if len(files) > 1):
        for path, other in [(first, second), *((path, first) for path in (second, *more))]:
            problem = f"has the same name as {relative(other, root)}, and only one of them can be meant"
            findings.append(Finding(file=relative(path, root), problem=problem))
    return {name: files[0] for name, files in same.items()}, findings


def image_and_mask(draft: Draft) -> tuple[NDArray[Any], NDArray[Any]]:
    """The decoded image [H, W] or [H, W, 3] and the values [H, W] of its mask.

    Raises:
        UnfitError: one of them cannot be read, or they differ in size.
    """
    if draft.mask is None:
        raise UnfitError("has no mask")
    image, values = picture(draft.image), mask_values(draft.mask)
    check_same_size(image, values, file=draft.mask)
    return image, values


def grey(image: NDArray[Any], *, file: Path) -> NDArray[Any]:
    """A picture [H, W], also if it was saved as three equal channels.

    Raises:
        UnfitError: it has colours.
    """
    if image.ndim == 2:
        return image
    if (image != image[..., :1]).any():
        raise UnfitError("has colours, but should be grey", file=file)
    return image[..., 0]


def channels_first(image: NDArray[Any]) -> NDArray[Any]:
    """An image [H, W] or [H, W, C] as [C, H, W]."""
    planes = image[None] if image.ndim == 2 else image.transpose(2, 0, 1)
    return np.ascontiguousarray(planes)
