"""Draw a contact sheet of a site: examples of its images with their labels, to check the data by eye."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage

from feal.data.images import class_colours, encode_png, to_pil
from feal.data.prepared import NO_LABEL, PreparedSite, SiteLabels, open_labels
from feal.fileio import write_bytes

_TILE = 96
_GAP = 6
_MARGIN = 16
_LABELS = 168
_TITLE = 56
_LINE = 24
_PAIRS = 4
"""Rows of images with their masks, at most."""

_PAPER, _INK, _FAINT = (255, 255, 255), (24, 28, 34), (104, 112, 122)

Pixels = NDArray[np.uint8]


def write_contact_sheet(site: PreparedSite, path: Path, *, columns: int = 10) -> None:
    """Write a PNG with examples of a site's images; the same site gives the same bytes.

    Classification: one row per class, with its number of samples. Segmentation: images, each above a copy with the
    outlines of its mask. Examples are spread evenly over the samples in order of their ids.

    Raises:
        FealError: the site is damaged or the file cannot be written.
    """
    labels = open_labels(site)
    sheet = _by_class(site, labels, columns) if site.task == "classification" else _by_mask(site, labels, columns)
    write_bytes(path, encode_png(sheet))


def _by_class(site: PreparedSite, labels: SiteLabels, columns: int) -> Image.Image:
    ids = site.ids()
    classes = labels.of(ids).numpy()
    rows = list(enumerate(site.classes))
    if site.unlabelled:
        rows.append((NO_LABEL["classification"], "unlabelled"))
    sheet, draw = _paper(site, rows=len(rows), columns=columns, labels=_LABELS)
    for place, (number, name) in enumerate(rows):
        members = ids[classes == number]
        top = _TITLE + _MARGIN + place * (_TILE + _GAP)
        draw.text((_MARGIN, top + _TILE // 2 - 18), _shortened(name, draw), fill=_INK, font=_font(17))
        count = f"{len(members)} ({_share(len(members), len(ids))})" if len(members) else "none"
        draw.text((_MARGIN, top + _TILE // 2 + 4), count, fill=_FAINT, font=_font(14))
        for column, tile in enumerate(_tiles(site, _spread(members, columns))):
            sheet.paste(tile, (_MARGIN + _LABELS + column * (_TILE + _GAP), top))
    return sheet


def _by_mask(site: PreparedSite, labels: SiteLabels, columns: int) -> Image.Image:
    chosen = _spread(site.ids(), _PAIRS * columns)
    sheet, draw = _paper(site, rows=2 * math.ceil(len(chosen) / columns), columns=columns, labels=0)
    _legend(draw, site.classes, right=sheet.width - _MARGIN)
    tiles, masks = _tiles(site, chosen), labels.of(chosen).numpy()
    for place, (tile, mask) in enumerate(zip(tiles, masks, strict=True)):
        row, column = divmod(place, columns)
        left, top = _MARGIN + column * (_TILE + _GAP), _TITLE + _MARGIN + 2 * row * (_TILE + _GAP)
        sheet.paste(tile, (left, top))
        below = (left, top + _TILE + _GAP // 2)
        if mask[0, 0] == NO_LABEL["segmentation"]:
            draw.text((below[0] + _GAP, below[1] + _TILE // 2 - 8), "unlabelled", fill=_FAINT, font=_font(14))
        else:
            sheet.paste(outline_mask(tile, mask, len(site.classes)), below)
    return sheet


def _paper(site: PreparedSite, *, rows: int, columns: int, labels: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    width = 2 * _MARGIN + labels + columns * (_TILE + _GAP) - _GAP
    height = _TITLE + 2 * _MARGIN + rows * (_TILE + _GAP) - _GAP
    sheet = Image.new("RGB", (width, height), _PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((_MARGIN, _MARGIN - 4), site.name, fill=_INK, font=_font(26))
    train, test = len(site.ids("train")), len(site.ids("test"))
    channels, high, wide = site.shape
    facts = f"{train} train, {test} test samples · {wide} x {high} pixels, {channels} channels"
    draw.text((_MARGIN, _MARGIN + _LINE + 4), facts, fill=_FAINT, font=_font(15))
    return sheet, draw


def _legend(draw: ImageDraw.ImageDraw, classes: Sequence[str], *, right: int) -> None:
    """Draw the colours of the outlines at the right of the title, for as many classes as fit."""
    left = right
    for name, colour in reversed(list(zip(classes, class_colours(len(classes)), strict=True))[1:]):
        left -= round(draw.textlength(name, font=_font(15))) + 2 * _MARGIN
        if left < right // 2:
            return
        draw.rectangle((left, _MARGIN + 6, left + 11, _MARGIN + 17), fill=colour, outline=_INK)
        draw.text((left + _MARGIN + 2, _MARGIN), name, fill=_INK, font=_font(15))


def _share(part: int, whole: int) -> str:
    """Format a share in per cent, never 0% of what exists.

    >>> _share(1, 950), _share(6, 950), _share(950, 950)
    ('<1%', '1%', '100%')
    """
    return "<1%" if part / whole < 0.005 else f"{part / whole:.0%}"


def _shortened(name: str, draw: ImageDraw.ImageDraw) -> str:
    """Truncate a class name to fit beside the tiles."""
    if draw.textlength(name, font=_font(17)) <= _LABELS - _GAP:
        return name
    while name and draw.textlength(f"{name}...", font=_font(17)) > _LABELS - _GAP:
        name = name[:-1]
    return f"{name}..."


def _spread(ids: NDArray[np.str_], count: int) -> NDArray[np.str_]:
    if len(ids) <= count:
        return ids
    chosen: NDArray[np.str_] = ids[np.linspace(0, len(ids) - 1, count).round().astype(int)]
    return chosen


def _tiles(site: PreparedSite, ids: NDArray[np.str_]) -> list[Image.Image]:
    return [make_tile(image) for image in site.images(ids).numpy()] if len(ids) else []


def make_tile(image: NDArray[np.float32]) -> Image.Image:
    """Convert an image [C, H, W] to a small square RGB image."""
    return to_pil(image).convert("RGB").resize((_TILE, _TILE), Image.Resampling.BICUBIC)


def outline_mask(tile: Image.Image, mask: Pixels, classes: int) -> Image.Image:
    """Draw the outline of every class of a mask [H, W] but the first on a tile, visible on any background."""
    pixels = np.array(tile)
    large = np.array(Image.fromarray(mask.astype(np.uint8)).resize((_TILE, _TILE), Image.Resampling.NEAREST))
    for number in range(1, classes):
        region = large == number
        inner = ndimage.binary_erosion(region, iterations=2, border_value=1)
        # A dark line inside: yellow alone is invisible on yellow tissue.
        pixels[inner & ~ndimage.binary_erosion(inner, border_value=1)] = _INK
        pixels[region & ~inner] = class_colours(classes)[number]
    return Image.fromarray(pixels)


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size=size)
