"""Show images and masks to people: PNG files, tiles, contact sheets; and read the masks that people drew."""

import colorsys
import io
import math
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from feal.data.prepared import NO_LABEL, PreparedSite, SiteLabels, open_labels
from feal.data.samples import SPLITS, Texts
from feal.errors import FealError
from feal.fileio import write_bytes

RGB = tuple[int, int, int]

# Black, then colours that are easy to tell apart on black and beside each other.
_FIRST: tuple[RGB, ...] = (
    (0, 0, 0), (255, 221, 51), (51, 204, 255), (255, 96, 176), (120, 255, 120),
    (255, 140, 0), (150, 110, 255), (220, 40, 40), (0, 160, 140),
)  # fmt: skip
_NUMBERS = ("1", "L", "LA", "I;16", "I;16B", "I")
_NAMED = 6
"""How many invalid values or colours an error names."""

_TILE, _GAP, _MARGIN, _LABELS, _TITLE = 96, 6, 16, 168, 56
"""Pixels of a contact sheet's parts."""
_PAIRS = 4
"""Rows of images with their masks, at most."""
_INK, _FAINT = (24, 28, 34), (104, 112, 122)


def to_pil(image: NDArray[np.float32]) -> Image.Image:
    """Convert an image [C, H, W] to 8 bits: grey, or RGB from three channels on.

    Values in [0, 1] are kept; others (prepared float16 may be standardised) are scaled by their own range.
    """
    channels = image[:3] if image.shape[0] >= 3 else image[:1]
    low, high = (0.0, 1.0) if image.min() >= 0 and image.max() <= 1 else (image.min(), image.max())
    scaled = (channels - low) / max(float(high - low), 1e-6)
    pixels = (scaled.clip(0, 1) * 255).round().astype(np.uint8)
    return Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))


def mask_to_pil(mask: NDArray[np.uint8], *, classes: int) -> Image.Image:
    """Convert a mask [H, W] to a palette image: a pixel's value is its class number, class 0 is black.

    >>> image = mask_to_pil(np.array([[0, 2]], dtype=np.uint8), classes=3)
    >>> image.mode, image.getpixel((1, 0)), image.convert("RGB").getpixel((0, 0))
    ('P', 2, (0, 0, 0))
    """
    if mask.max(initial=0) >= classes:
        raise ValueError(f"a mask holds the value {mask.max()}, but there are {classes} classes")
    image = Image.fromarray(np.ascontiguousarray(mask, dtype=np.uint8))
    image.putpalette([part for colour in class_colours(classes) for part in colour])
    return image


def encode_png(image: Image.Image) -> bytes:
    """Encode an image as PNG; the same image gives the same bytes."""
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


def read_mask(path: Path, *, shape: tuple[int, int], classes: int) -> NDArray[np.uint8]:
    """Read the class numbers [H, W] of a mask that a person saved as PNG.

    Pixel values are class numbers (grey of 1 to 16 bits, or a palette), or colours are exactly those of
    `mask_to_pil`, since editors convert a palette to colours or reorder it. Nothing is guessed.

    Raises:
        FealError: not a readable PNG, wrong size, transparent pixels, or values and colours that are no class.
    """
    try:
        image = _load(path, shape)
        if image.mode in _NUMBERS or (image.mode == "P" and _has_class_palette(image, classes)):
            return _read_numbers(image, classes)
        return _read_colours(image, classes)
    except _MaskError as error:
        raise FealError(f"The mask {path.name} {error}.") from None


@cache
def class_colours(classes: int) -> tuple[RGB, ...]:
    """Return the colour of each class: all different, and only the first one grey."""
    colours = dict.fromkeys(_FIRST)
    step = 0
    while len(colours) < classes:
        # Golden-ratio steps around the hue circle never repeat a hue.
        saturation, value = (0.9, 0.5)[step % 2], (1.0, 0.8, 0.6)[step % 3]
        red, green, blue = colorsys.hsv_to_rgb(step * 0.618034 % 1, saturation, value)
        colours.setdefault((round(255 * red), round(255 * green), round(255 * blue)))
        step += 1
    return tuple(colours)[:classes]


class _MaskError(Exception):
    """What is wrong with a mask and what to do: the rest of a sentence that starts with the mask's name."""


def _load(path: Path, shape: tuple[int, int]) -> Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pillow warns about harmless oddities; what matters is checked here
            with Image.open(path, formats=["PNG"]) as image:
                if image.size != shape[::-1]:
                    wide, high = image.size
                    raise _MaskError(
                        f"is {wide} x {high} pixels and the image {shape[1]} x {shape[0]}: "
                        "save it in the size of the image"
                    )
                image.load()
                _check_opaque(image)
    except _MaskError:
        raise
    except OSError as error:
        why = error.strerror or "it is not a PNG, or incomplete"
        raise _MaskError(f"cannot be read ({why}): save it again") from error
    except Exception as error:
        # Decoders raise errors of any kind on damaged files.
        raise _MaskError("cannot be read (it is a damaged PNG): save it again") from error
    return image


def _check_opaque(image: Image.Image) -> None:
    has_alpha = image.has_transparency_data and not image.mode.startswith("I")
    if has_alpha and image.convert("RGBA").getchannel("A").getextrema()[0] != 255:
        raise _MaskError("has transparent pixels, which belong to no class: fill them and save it again")


def _read_numbers(image: Image.Image, classes: int) -> NDArray[np.uint8]:
    values = np.asarray(image.getchannel("L") if image.mode == "LA" else image).astype(np.int64)
    invalid = sorted({int(value) for value in np.unique(values)} - set(range(classes)))
    if invalid:
        allowed = f"allowed are the class numbers 0 to {classes - 1}"
        raise _MaskError(f"has the pixel {_list('value', list(map(str, invalid)))}: {allowed}")
    return values.astype(np.uint8)


def _has_class_palette(image: Image.Image, classes: int) -> bool:
    """Return whether values are classes: in our colours, or in greys, which a program without colours writes."""
    entries, ours = image.getpalette() or [], class_colours(classes)
    values = np.unique(np.asarray(image)).tolist()
    if 3 * values[-1] >= len(entries):
        raise _MaskError(f"has the pixel value {values[-1]}, which its palette does not have: save it again")
    return all(
        value < classes and tuple(entries[3 * value : 3 * value + 3]) in (ours[value], (value,) * 3)
        for value in values
    )


def _read_colours(image: Image.Image, classes: int) -> NDArray[np.uint8]:
    parts = np.asarray(image.convert("RGB")).astype(np.int64)
    packed, places = np.unique(parts @ np.array([65536, 256, 1]), return_inverse=True)
    ours = {
        red << 16 | green << 8 | blue: number for number, (red, green, blue) in enumerate(class_colours(classes))
    }
    invalid = [f"#{colour:06x}" for colour in packed.tolist() if colour not in ours]
    if invalid:
        allowed = ", ".join(f"#{colour:06x}" for colour in list(ours)[:_NAMED])
        more = ", ..." if classes > _NAMED else ""
        raise _MaskError(
            f"has the {_list('colour', invalid)}, which no class has: draw only {allowed}{more}, no soft edges"
        )
    numbers = np.array([ours[colour] for colour in packed.tolist()], dtype=np.uint8)
    return numbers[places.reshape(parts.shape[:2])]


def _list(kind: str, names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{kind}{'s' if len(names) > 1 else ''} {', '.join(names[:_NAMED])}{more}"


def make_tile(image: NDArray[np.float32]) -> Image.Image:
    """Convert an image [C, H, W] to a small square RGB image."""
    return to_pil(image).convert("RGB").resize((_TILE, _TILE), Image.Resampling.BICUBIC)


def outline_mask(tile: Image.Image, mask: NDArray[np.uint8], classes: int) -> Image.Image:
    """Draw the outline of every class of a mask [H, W] but the first on a tile, visible on any background."""
    from scipy import ndimage  # 0.3 s, which a run on prepared data need not pay

    pixels = np.array(tile)
    large = np.array(Image.fromarray(mask.astype(np.uint8)).resize((_TILE, _TILE), Image.Resampling.NEAREST))
    for number in range(1, classes):
        region = large == number
        inner = ndimage.binary_erosion(region, iterations=2, border_value=1)
        # A dark line inside: yellow alone is invisible on yellow tissue.
        pixels[inner & ~ndimage.binary_erosion(inner, border_value=1)] = _INK
        pixels[region & ~inner] = class_colours(classes)[number]
    return Image.fromarray(pixels)


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
    sheet, draw = _make_sheet(site, rows=len(rows), columns=columns, labels=_LABELS)
    for place, (number, name) in enumerate(rows):
        members = ids[classes == number]
        top = _TITLE + _MARGIN + place * (_TILE + _GAP)
        draw.text((_MARGIN, top + _TILE // 2 - 18), _shorten(name, draw), fill=_INK, font=_font(17))
        count = f"{len(members)} ({_format_share(len(members), len(ids))})" if len(members) else "none"
        draw.text((_MARGIN, top + _TILE // 2 + 4), count, fill=_FAINT, font=_font(14))
        for column, tile in enumerate(_make_tiles(site, _spread(members, columns))):
            sheet.paste(tile, (_MARGIN + _LABELS + column * (_TILE + _GAP), top))
    return sheet


def _by_mask(site: PreparedSite, labels: SiteLabels, columns: int) -> Image.Image:
    chosen = _spread(site.ids(), _PAIRS * columns)
    sheet, draw = _make_sheet(site, rows=2 * math.ceil(len(chosen) / columns), columns=columns)
    _draw_legend(draw, site.classes, right=sheet.width - _MARGIN)
    masks = labels.of(chosen).numpy()
    for place, (tile, mask) in enumerate(zip(_make_tiles(site, chosen), masks, strict=True)):
        row, column = divmod(place, columns)
        left, top = _MARGIN + column * (_TILE + _GAP), _TITLE + _MARGIN + 2 * row * (_TILE + _GAP)
        below = top + _TILE + _GAP // 2
        sheet.paste(tile, (left, top))
        if mask[0, 0] == NO_LABEL["segmentation"]:
            draw.text((left + _GAP, below + _TILE // 2 - 8), "unlabelled", fill=_FAINT, font=_font(14))
        else:
            sheet.paste(outline_mask(tile, mask, len(site.classes)), (left, below))
    return sheet


def _make_sheet(
    site: PreparedSite, *, rows: int, columns: int, labels: int = 0
) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    width = 2 * _MARGIN + labels + columns * (_TILE + _GAP) - _GAP
    height = _TITLE + 2 * _MARGIN + rows * (_TILE + _GAP) - _GAP
    sheet = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(sheet)
    draw.text((_MARGIN, _MARGIN - 4), site.name, fill=_INK, font=_font(26))
    channels, high, wide = site.shape
    counts = ", ".join(f"{len(site.ids(split))} {split}" for split in SPLITS)
    facts = f"{counts} samples · {wide} x {high} pixels, {channels} channels"
    draw.text((_MARGIN, _MARGIN + 28), facts, fill=_FAINT, font=_font(15))
    return sheet, draw


def _draw_legend(draw: ImageDraw.ImageDraw, classes: Sequence[str], *, right: int) -> None:
    """Draw the colours of the outlines at the right of the title, for as many classes as fit."""
    left = right
    for name, colour in reversed(list(zip(classes, class_colours(len(classes)), strict=True))[1:]):
        left -= round(draw.textlength(name, font=_font(15))) + 2 * _MARGIN
        if left < right // 2:
            return
        draw.rectangle((left, _MARGIN + 6, left + 11, _MARGIN + 17), fill=colour, outline=_INK)
        draw.text((left + _MARGIN + 2, _MARGIN), name, fill=_INK, font=_font(15))


def _format_share(part: int, whole: int) -> str:
    """Format a share in per cent, never 0% of what exists.

    >>> _format_share(1, 950), _format_share(6, 950), _format_share(950, 950)
    ('<1%', '1%', '100%')
    """
    return "<1%" if part / whole < 0.005 else f"{part / whole:.0%}"


def _shorten(name: str, draw: ImageDraw.ImageDraw) -> str:
    """Truncate a class name to fit beside the tiles."""
    shown = name
    while name and draw.textlength(shown, font=_font(17)) > _LABELS - _GAP:
        name = name[:-1]
        shown = f"{name}..."
    return shown


def _spread(ids: Texts, count: int) -> Texts:
    chosen: Texts = ids[np.linspace(0, len(ids) - 1, count).round().astype(int)] if len(ids) > count else ids
    return chosen


def _make_tiles(site: PreparedSite, ids: Texts) -> list[Image.Image]:
    return [make_tile(image) for image in site.images(ids).numpy()]


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size=size)
