"""Picture files as a network's input."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from feal.data.preparation.contract import UnfitError
from feal.data.preparation.decoding import PICTURES, upright
from feal.data.prepared import scaled
from feal.errors import FealError
from feal.inference.facts import Input

_MODES = {1: "L", 3: "RGB"}


@dataclass(frozen=True)
class Picture:
    """A picture as the network takes it, and the size that it has itself."""

    pixels: NDArray[np.float32]
    """[channels, height, width], values in [0, 1]."""
    width: int
    height: int


def find_pictures(folder: Path) -> list[str]:
    """The pictures below a folder as paths relative to it, sorted; hidden files and folders are passed over.

    Raises:
        FealError: there is no such folder, or no picture in it.
    """
    if not folder.is_dir():
        raise FealError(f"There is no folder {folder}: give the one that holds the pictures.")
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        relative = Path(place).relative_to(folder)
        found += [(relative / name).as_posix() for name in files if _is_picture(name)]
    if not found:
        raise FealError(f"There is no picture in {folder} or below it: looked for {', '.join(PICTURES)}.")
    return sorted(found)


def check_readable(size: Input) -> None:
    """Raise a `FealError` where picture files cannot hold what the network was trained on."""
    if size.channels not in _MODES:
        raise FealError(
            f"The model takes images of {size.channels} channels, and pictures have 1 or 3: "
            "give it arrays from Python, as its model card shows."
        )
    if size.scale is None:
        raise FealError(
            f"The model was trained on {size.dtype} images with values of their own, which pictures do not have: "
            "give it arrays from Python, as its model card shows."
        )


def read_picture(path: Path, size: Input) -> Picture:
    """Decode a picture: grey or RGB as the network takes it, fitted to its size, integers scaled to [0, 1].

    A picture that the run's data set was prepared from gives the very numbers that the prepared reader gives.
    Where it was not noted how pictures were fitted, it is stretched (bicubic); a PNG of a prepared image then
    gives them.
    Pixels are scaled by what their type can hold; transparency is ignored, a camera's orientation is heeded.

    Raises:
        FealError: it cannot be decoded, has several pages, or values of no known range; one sentence names it.
    """
    try:
        picture = upright(path)
    except UnfitError as error:
        raise FealError(f"{path} {error}.") from error
    if picture.mode in ("I", "F"):
        raise FealError(f"{path} has 32-bit values of no known range: save it with 8 or 16 bits.")
    plain = _plain(picture, size.channels)
    if size.fitting is None:
        pixels = np.asarray(_stretched(plain, (size.width, size.height)))
    else:
        pixels = size.fitting.image(_as_stored(np.asarray(plain), size.dtype), size.height, size.width)
    planes = np.repeat(pixels[None], size.channels, axis=0) if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return Picture(scaled(planes), picture.width, picture.height)


def _plain(picture: Image.Image, channels: int) -> Image.Image:
    """Grey of 16 bits as it is, any other in grey or RGB of 8 bits, as there are channels."""
    if picture.mode.startswith("I;16"):
        return Image.fromarray(np.asarray(picture).astype(np.uint16))
    return (picture.convert("RGBA") if picture.mode == "P" else picture).convert(_MODES[channels])


def _as_stored(pixels: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Pixels of 8 bits as the same greys of 16, or of 16 the upper 8, so that they are rounded as in preparing."""
    if pixels.dtype.name == dtype:
        return pixels
    return pixels.astype(np.uint16) * 257 if dtype == "uint16" else (pixels >> 8).astype(np.uint8)


def _stretched(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    return picture if picture.size == size else picture.resize(size, Image.Resampling.BICUBIC)


def _is_picture(name: str) -> bool:
    return not name.startswith(".") and name.lower().endswith(PICTURES)
