"""Decode image and volume files to arrays without losing information, or reject them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from feal.data.prepare.base import UnusableFileError
from feal.data.resize import FitShape, Fitting

FORMATS = ("PNG", "JPEG", "TIFF", "BMP")
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp")
VOLUME_SUFFIXES = (".nii", ".nii.gz")

_TRANSPARENT = ("LA", "La", "PA", "RGBA", "RGBa", "RGBX")
_LARGEST = 2**30
"""The largest number of voxels that is read, since a damaged header may claim anything."""
_NAMED = 6
_DEEP = "sixteen bits of"
"""The key under which `open_upright` notes that an image had more bits than are read."""


def decode_image(path: Path) -> NDArray[Any]:
    """Decode a PNG, JPEG, TIFF or BMP: upright [H, W] or [H, W, 3], uint8, or uint16 if it is grey of 16 bits.

    The camera's orientation is applied, a palette becomes colours, an alpha channel must be opaque. Colours of 16
    bits keep their upper 8.

    Raises:
        UnusableFileError: missing, unreadable, truncated, several pages, transparent, or of unknown range.
    """
    found = open_upright(path)
    if found.info.get(_DEEP) == "grey":
        raise UnusableFileError("is grey of 16 bits with an alpha channel: save it without alpha", file=path)
    if found.mode.startswith("I"):
        return _sixteen_bits(found, path)
    _check_opaque(found, path)
    if found.mode in ("1", "L", "LA", "La"):
        return np.asarray(found.convert("L"))
    if found.mode in ("RGB", "YCbCr", "P", *_TRANSPARENT):
        return np.asarray(found.convert("RGB"))
    raise UnusableFileError(f"has the colour mode {found.mode}: save it as grey or RGB", file=path)


def decode_mask(path: Path) -> NDArray[Any]:
    """Decode the pixel values [H, W] of a mask: greys, or the indices of a coloured palette.

    Raises:
        UnusableFileError: as for `decode_image`, or colours that are not grey.
    """
    found = open_upright(path)
    if found.mode == "P":
        numbers, entries = np.asarray(found), found.getpalette() or []
        used = np.unique(numbers).tolist()
        if any(len(set(entries[3 * value : 3 * value + 3])) > 1 for value in used):
            return numbers
    if _DEEP in found.info:
        # The lower bits, which would be lost, hold the class numbers.
        raise UnusableFileError("is a mask in colours of 16 bits: save it with class numbers or greys", file=path)
    values = decode_image(path)
    if values.ndim == 2:
        return values
    if (values != values[..., :1]).any():
        raise UnusableFileError("is a mask in colours: save it with class numbers or greys as values", file=path)
    return values[..., 0]


def open_upright(path: Path) -> Image.Image:
    """Decode an image file and apply its camera's orientation.

    Raises:
        UnusableFileError: missing, unreadable, truncated, or several pages.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pillow warns about harmless oddities; what matters is checked here
            with Image.open(path, formats=FORMATS) as file:
                # A phone's JPEG may carry a preview or a second view after the image.
                pages = 1 if file.format == "MPO" else getattr(file, "n_frames", 1)
                deep = _deep(file)
                found = ImageOps.exif_transpose(file)
                found.load()
    except FileNotFoundError:
        raise _missing(path) from None
    except Exception as error:  # decoders raise whatever they like on a broken file
        reason = f"{type(error).__name__}: {error}".splitlines()[0].replace(str(path), "the file")
        raise UnusableFileError(f"cannot be read ({reason})", file=path) from error
    if pages > 1:
        raise UnusableFileError(f"has {pages} pages: save the one that is meant", file=path)
    if deep:
        found.info[_DEEP] = deep
    return found


def to_rgb(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Convert an image [H, W] or [H, W, 3] to [H, W, 3] of 8 bits; 16 bits keep their upper 8."""
    eight = (array >> 8).astype(np.uint8) if array.dtype == np.uint16 else array
    return np.repeat(eight[..., None], 3, axis=2) if eight.ndim == 2 else eight


def letterbox(array: NDArray[Any], size: int, *, nearest: bool) -> NDArray[Any]:
    """Resize the long side of [H, W] or [H, W, C] to `size`, and centre it on a square of zeros.

    >>> letterbox(np.full((2, 4), 7, dtype=np.uint8), 4, nearest=True)[:, 0].tolist()
    [0, 7, 7, 0]
    """
    return _fit(array, "letterbox", size, nearest=nearest)


def centre_crop(array: NDArray[Any], size: int, *, nearest: bool = False) -> NDArray[Any]:
    """Resize the short side of [H, W] or [H, W, C] to `size`, and crop the central square."""
    return _fit(array, "centre", size, nearest=nearest)


def map_values(values: NDArray[Any], mapping: Mapping[int, int], *, file: Path | None = None) -> NDArray[np.uint8]:
    """Map the values of a mask to class numbers.

    Raises:
        UnusableFileError: values outside the mapping; the message names them.

    >>> map_values(np.array([[0, 255]]), {0: 0, 255: 1})
    array([[0, 1]], dtype=uint8)
    """
    found, places = np.unique(values, return_inverse=True)
    unknown = [value for value in found.tolist() if value not in mapping]
    if unknown:
        named = ", ".join(f"{value:g}" for value in unknown[:_NAMED]) + (", ..." if len(unknown) > _NAMED else "")
        known = ", ".join(map(str, sorted(mapping)[:_NAMED])) + (", ..." if len(mapping) > _NAMED else "")
        raise UnusableFileError(f"has mask values outside the mapping ({named}; known are {known})", file=file)
    classes = np.array([mapping[value] for value in found.tolist()], dtype=np.uint8)
    return classes[places.reshape(values.shape)]


def check_same_size(image: NDArray[Any], mask: NDArray[Any], *, file: Path | None = None) -> None:
    """Raise an `UnusableFileError` unless a mask has the size of its image (all three axes of a volume)."""
    axes = image.ndim if mask.ndim == 3 else 2
    if image.shape[:axes] != mask.shape[:axes]:
        # Volumes are stored [X, Y, Z], images [H, W]: the message gives the width first in both.
        shapes = [array.shape[:3] if axes == 3 else array.shape[1::-1] for array in (mask, image)]
        sizes = [" x ".join(map(str, shape)) for shape in shapes]
        raise UnusableFileError(f"is a mask of size {sizes[0]} and its image has {sizes[1]}", file=file)


def decode_volume(path: Path) -> NDArray[Any]:
    """Decode a NIfTI volume [X, Y, Z] as it is stored (not reoriented), with its header's scaling applied.

    Raises:
        UnusableFileError: missing, unreadable, truncated, not three-dimensional, or not finite.
    """
    import nibabel

    try:
        found = nibabel.Nifti1Image.from_filename(path)
        _check_shape(found.shape, path)
        values = np.asanyarray(found.dataobj)
    except FileNotFoundError:
        raise _missing(path) from None
    except UnusableFileError:
        raise
    except Exception as error:  # decoders raise whatever they like on a broken file
        reason = f"{type(error).__name__}: {error}".splitlines()[0].replace(str(path), "the file")
        raise UnusableFileError(f"cannot be read as NIfTI ({reason})", file=path) from error
    if values.dtype.kind not in "iuf":
        raise UnusableFileError(f"holds values of type {values.dtype}: save it as plain numbers", file=path)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise UnusableFileError("has a voxel that is not a finite number", file=path)
    native = values.astype(values.dtype.newbyteorder("="), copy=False)
    return native[..., 0] if native.ndim == 4 else native


def _missing(path: Path) -> UnusableFileError:
    return UnusableFileError("is a link to nothing" if path.is_symlink() else "is missing", file=path)


def _deep(file: Image.Image) -> str | None:
    """Return what has 16 bits in a file that pillow reads with 8: `colour`, or `grey` with alpha."""
    stored = repr(getattr(file, "tile", ""))
    if ";16" not in stored or file.mode.startswith("I"):
        return None
    return "grey" if "LA;16" in stored else "colour"


def _fit(array: NDArray[Any], shape: FitShape, size: int, *, nearest: bool) -> NDArray[Any]:
    fitting = Fitting(shape=shape)
    return (fitting.fit_mask if nearest else fitting.fit_image)(array, size, size)


def _check_shape(shape: tuple[int, ...], path: Path) -> None:
    if len(shape) not in (3, 4) or min(shape) < 1 or (len(shape) == 4 and shape[3] != 1):
        raise UnusableFileError(f"has the shape {' x '.join(map(str, shape))}: one volume is needed", file=path)
    if int(np.prod(shape, dtype=np.int64)) > _LARGEST:
        raise UnusableFileError(f"claims the size {' x '.join(map(str, shape))}, which is too large", file=path)


def _sixteen_bits(found: Image.Image, path: Path) -> NDArray[np.uint16]:
    values = np.asarray(found)
    if found.mode == "I":
        raise UnusableFileError("has 32-bit values of no known range: save it with 8 or 16 bits", file=path)
    return values.astype(np.uint16)


def _check_opaque(found: Image.Image, path: Path) -> None:
    if found.mode in _TRANSPARENT or "transparency" in found.info:
        lowest, _ = found.convert("RGBA").getchannel("A").getextrema()
        if lowest != 255:
            raise UnusableFileError("has transparent pixels: fill them and save it again", file=path)
