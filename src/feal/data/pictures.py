"""Images and masks as pictures for people, and the masks that people drew."""

from __future__ import annotations

import colorsys
import io
import warnings
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from feal.errors import FealError

Colour = tuple[int, int, int]

# Black, then colours that are told apart at a glance, on black and beside each other.
_FIRST: tuple[Colour, ...] = (
    (0, 0, 0),
    (255, 221, 51),
    (51, 204, 255),
    (255, 96, 176),
    (120, 255, 120),
    (255, 140, 0),
    (150, 110, 255),
    (220, 40, 40),
    (0, 160, 140),
)
_NUMBERS = ("1", "L", "LA", "I;16", "I;16B", "I")
_NAMED = 6
"""How many foreign values or colours an error names."""


def as_picture(image: NDArray[np.float32]) -> Image.Image:
    """An image [C, H, W] as a picture of 8 bits: grey, or RGB from three channels on.

    Values in [0, 1] are shown as they are; others (prepared float16 may be standardised) over their own range.
    """
    channels = image[:3] if image.shape[0] >= 3 else image[:1]
    low, high = (0.0, 1.0) if image.min() >= 0 and image.max() <= 1 else (image.min(), image.max())
    scaled = (channels - low) / max(float(high - low), 1e-6)
    pixels = (scaled.clip(0, 1) * 255).round().astype(np.uint8)
    return Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))


def mask_picture(mask: NDArray[np.uint8], *, classes: int) -> Image.Image:
    """A mask [H, W] as a palette picture: a pixel's value is its class number, class 0 is black.

    >>> picture = mask_picture(np.array([[0, 2]], dtype=np.uint8), classes=3)
    >>> picture.mode, picture.getpixel((1, 0)), picture.convert("RGB").getpixel((0, 0))
    ('P', 2, (0, 0, 0))
    """
    if mask.max(initial=0) >= classes:
        raise ValueError(f"a mask holds the value {mask.max()}, but there are {classes} classes")
    picture = Image.fromarray(np.ascontiguousarray(mask, dtype=np.uint8))
    picture.putpalette([part for colour in palette(classes) for part in colour])
    return picture


def png_bytes(picture: Image.Image) -> bytes:
    """A picture as a PNG file; the same picture gives the same bytes."""
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return buffer.getvalue()


def read_mask(path: Path, *, shape: tuple[int, int], classes: int) -> NDArray[np.uint8]:
    """The class numbers [H, W] of a mask that somebody saved as PNG.

    Pixel values are class numbers (grey of 1 to 16 bits, or a palette), or colours are exactly those of
    `mask_picture`, since editors turn a palette into colours or put it into another order. Nothing is guessed.

    Raises:
        FealError: no readable PNG, another size, see-through pixels, or values and colours of no class.
    """
    try:
        picture = _load(path, shape)
        if picture.mode in _NUMBERS:
            return _by_number(picture, classes)
        return _by_palette(picture, classes) if picture.mode == "P" else _by_colour(picture, classes)
    except _UnfitError as error:
        raise FealError(f"The mask {path.name} {error}.") from None


@cache
def palette(classes: int) -> tuple[Colour, ...]:
    """The colour of each class, all different, none but the first a grey."""
    colours = dict.fromkeys(_FIRST)
    step = 0
    while len(colours) < classes:
        # Golden-ratio steps around the circle of hues never come back to one they had.
        saturation, value = (0.9, 0.5)[step % 2], (1.0, 0.8, 0.6)[step % 3]
        red, green, blue = colorsys.hsv_to_rgb(step * 0.618034 % 1, saturation, value)
        colours.setdefault((round(255 * red), round(255 * green), round(255 * blue)))
        step += 1
    return tuple(colours)[:classes]


class _UnfitError(Exception):
    """What is wrong with a mask and what to do, as the rest of a sentence about it."""


def _load(path: Path, shape: tuple[int, int]) -> Image.Image:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pillow's doubts about odd files; what matters is checked here
            with Image.open(path, formats=["PNG"]) as picture:
                if picture.size != shape[::-1]:
                    wide, high = picture.size
                    raise _UnfitError(
                        f"is {wide} x {high} pixels and the picture {shape[1]} x {shape[0]}: "
                        "save it in the picture's size"
                    )
                picture.load()
                _check_opaque(picture)
    except _UnfitError:
        raise
    except OSError as error:
        why = error.strerror or "it is no PNG, or not written to its end"
        raise _UnfitError(f"cannot be read ({why}): save it again") from error
    except Exception as error:
        # A decoder of files from anywhere may stumble in any way.
        raise _UnfitError("cannot be read (it is a damaged PNG): save it again") from error
    return picture


def _check_opaque(picture: Image.Image) -> None:
    seen_through = picture.mode in ("LA", "RGBA") or (
        "transparency" in picture.info and picture.mode in ("1", "L", "P", "RGB")
    )
    if seen_through and picture.convert("RGBA").getchannel("A").getextrema()[0] != 255:
        raise _UnfitError("has see-through pixels, which say no class: fill them and save it again")


def _by_number(picture: Image.Image, classes: int) -> NDArray[np.uint8]:
    values = np.asarray(picture.getchannel("L") if picture.mode == "LA" else picture).astype(np.int64)
    foreign = sorted({int(value) for value in np.unique(values)} - set(range(classes)))
    if foreign:
        allowed = f"allowed are the class numbers 0 to {classes - 1}"
        raise _UnfitError(f"has the pixel {_listed('value', map(str, foreign))}: {allowed}")
    return values.astype(np.uint8)


def _by_palette(picture: Image.Image, classes: int) -> NDArray[np.uint8]:
    values, entries, ours = np.asarray(picture), picture.getpalette() or [], palette(classes)
    colours = {int(value): tuple(entries[3 * value : 3 * value + 3]) for value in np.unique(values).tolist()}
    # A palette of greys in order is what a program without colours writes: the values are meant.
    if all(value < classes and colour in (ours[value], (value,) * 3) for value, colour in colours.items()):
        return values.astype(np.uint8)
    _check_colours(colours.values(), classes)
    meant = np.zeros(256, dtype=np.uint8)
    for value, colour in colours.items():
        meant[value] = ours.index(colour)
    mask: NDArray[np.uint8] = meant[values]
    return mask


def _by_colour(picture: Image.Image, classes: int) -> NDArray[np.uint8]:
    parts = np.asarray(picture.convert("RGB")).astype(np.int64)
    packed, places = np.unique(parts @ np.array([65536, 256, 1]), return_inverse=True)
    colours = [(value >> 16, value >> 8 & 255, value & 255) for value in packed.tolist()]
    _check_colours(colours, classes)
    ours = palette(classes)
    meant = np.array([ours.index(colour) for colour in colours], dtype=np.uint8)
    return meant[places.reshape(parts.shape[:2])]


def _check_colours(colours: Iterable[tuple[int, ...]], classes: int) -> None:
    foreign = sorted(set(colours) - set(palette(classes)))
    if foreign:
        names = ["#" + "".join(f"{part:02x}" for part in colour) for colour in foreign]
        allowed = ", ".join(f"#{r:02x}{g:02x}{b:02x}" for r, g, b in palette(classes)[:_NAMED])
        more = ", ..." if classes > _NAMED else ""
        raise _UnfitError(
            f"has the {_listed('colour', names)} of no class: draw with {allowed}{more} only, without soft edges"
        )


def _listed(kind: str, names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return f"{kind}{'s' if len(listed) > 1 else ''} {', '.join(listed[:_NAMED])}{more}"
