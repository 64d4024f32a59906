"""Encode images and masks as PNG for people, and read the masks that people drew."""

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

RGB = tuple[int, int, int]

# Black, then colours that are easy to tell apart on black and beside each other.
_FIRST: tuple[RGB, ...] = (
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
"""How many invalid values or colours an error names."""


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
        if image.mode in _NUMBERS:
            return _by_number(image, classes)
        return _by_palette(image, classes) if image.mode == "P" else _by_colour(image, classes)
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
    has_alpha = image.mode in ("LA", "RGBA") or (
        "transparency" in image.info and image.mode in ("1", "L", "P", "RGB")
    )
    if has_alpha and image.convert("RGBA").getchannel("A").getextrema()[0] != 255:
        raise _MaskError("has transparent pixels, which belong to no class: fill them and save it again")


def _by_number(image: Image.Image, classes: int) -> NDArray[np.uint8]:
    values = np.asarray(image.getchannel("L") if image.mode == "LA" else image).astype(np.int64)
    invalid = sorted({int(value) for value in np.unique(values)} - set(range(classes)))
    if invalid:
        allowed = f"allowed are the class numbers 0 to {classes - 1}"
        raise _MaskError(f"has the pixel {_listed('value', map(str, invalid))}: {allowed}")
    return values.astype(np.uint8)


def _by_palette(image: Image.Image, classes: int) -> NDArray[np.uint8]:
    values, entries, ours = np.asarray(image), image.getpalette() or [], class_colours(classes)
    colours = {int(value): tuple(entries[3 * value : 3 * value + 3]) for value in np.unique(values).tolist()}
    # A palette of greys in order comes from a program without colours: the values are the classes.
    if all(value < classes and colour in (ours[value], (value,) * 3) for value, colour in colours.items()):
        return values.astype(np.uint8)
    _check_colours(colours.values(), classes)
    meant = np.zeros(256, dtype=np.uint8)
    for value, colour in colours.items():
        meant[value] = ours.index(colour)
    mask: NDArray[np.uint8] = meant[values]
    return mask


def _by_colour(image: Image.Image, classes: int) -> NDArray[np.uint8]:
    parts = np.asarray(image.convert("RGB")).astype(np.int64)
    packed, places = np.unique(parts @ np.array([65536, 256, 1]), return_inverse=True)
    colours = [(value >> 16, value >> 8 & 255, value & 255) for value in packed.tolist()]
    _check_colours(colours, classes)
    ours = class_colours(classes)
    meant = np.array([ours.index(colour) for colour in colours], dtype=np.uint8)
    return meant[places.reshape(parts.shape[:2])]


def _check_colours(colours: Iterable[tuple[int, ...]], classes: int) -> None:
    invalid = sorted(set(colours) - set(class_colours(classes)))
    if invalid:
        names = ["#" + "".join(f"{part:02x}" for part in colour) for colour in invalid]
        allowed = ", ".join(f"#{r:02x}{g:02x}{b:02x}" for r, g, b in class_colours(classes)[:_NAMED])
        more = ", ..." if classes > _NAMED else ""
        raise _MaskError(
            f"has the {_listed('colour', names)}, which no class has: draw only {allowed}{more}, no soft edges"
        )


def _listed(kind: str, names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return f"{kind}{'s' if len(listed) > 1 else ''} {', '.join(listed[:_NAMED])}{more}"
