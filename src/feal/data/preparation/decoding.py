"""Files of a download as arrays: faithfully, or not at all."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from feal.data.fitting import Fitting, Shape
from feal.data.fitting import resized as resized
from feal.data.preparation.contract import UnfitError

FORMATS = ("PNG", "JPEG", "TIFF", "BMP")
PICTURES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp")
VOLUMES = (".nii", ".nii.gz")

_TRANSPARENT = ("LA", "La", "PA", "RGBA", "RGBa", "RGBX")
_LARGEST = 2**30
"""Voxels of the largest volume that is read: a damaged header may claim anything."""
_NAMED = 6
_DEEP = "sixteen bits of"
"""Noted with a picture that had more bits than are read."""


def picture(path: Path) -> NDArray[Any]:
    """Decode a PNG, JPEG, TIFF or BMP: upright [H, W] or [H, W, 3], uint8, or uint16 if it is grey of 16 bits.

    Of colours of 16 bits the upper 8 are kept.
    A camera's orientation is heeded, a palette gives its colours, an alpha channel must be opaque.

    Raises:
        UnfitError: missing, unreadable, cut short, several pages, see-through, or values of no known range.
    """
    found = upright(path)
    if found.info.get(_DEEP) == "grey":
        raise UnfitError("is grey of 16 bits with an alpha channel: save it without, or bits are lost", file=path)
    if found.mode.startswith("I"):
        return _sixteen_bits(found, path)
    _check_opaque(found, path)
    if found.mode in ("1", "L", "LA", "La"):
        return np.asarray(found.convert("L"))
    if found.mode in ("RGB", "YCbCr", "P", *_TRANSPARENT):
        return np.asarray(found.convert("RGB"))
    raise UnfitError(f"has the colour mode {found.mode}: save it as grey or RGB", file=path)


def mask_values(path: Path) -> NDArray[Any]:
    """The values [H, W] that a mask's pixels hold: greys, or the numbers behind a coloured palette.

    Raises:
        UnfitError: as for `picture`, or colours that are no greys.
    """
    found = upright(path)
    if found.mode == "P":
        numbers, entries = np.asarray(found), found.getpalette() or []
        used = np.unique(numbers).tolist()
        if any(len(set(entries[3 * value : 3 * value + 3])) > 1 for value in used):
            return numbers
    if _DEEP in found.info:
        # Class numbers are in the lower bits, which would be lost.
        raise UnfitError("is a mask in colours of 16 bits: save it with class numbers or greys", file=path)
    values = picture(path)
    if values.ndim == 2:
        return values
    if (values != values[..., :1]).any():
        raise UnfitError("is a mask in colours: save it with class numbers or greys as values", file=path)
    return values[..., 0]


def upright(path: Path) -> Image.Image:
    """A picture file, decoded whole and turned as its camera says.

    Raises:
        UnfitError: missing, unreadable, cut short, or several pages.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pillow's doubts about odd files; what matters is checked here
            with Image.open(path, formats=FORMATS) as file:
                # A phone's JPEG may carry a preview or a second view behind the picture.
                pages = 1 if file.format == "MPO" else getattr(file, "n_frames", 1)
                deep = _deep(file)
                found = ImageOps.exif_transpose(file)
                found.load()
    except FileNotFoundError:
        raise _missing(path) from None
    except Exception as error:  # decoders raise whatever they like on a broken file
        why = f"{type(error).__name__}: {error}".splitlines()[0].replace(str(path), "the file")
        raise UnfitError(f"cannot be read ({why})", file=path) from error
    if pages > 1:
        raise UnfitError(f"has {pages} pages: save the one that is meant", file=path)
    if deep:
        found.info[_DEEP] = deep
    return found


def colour(array: NDArray[Any]) -> NDArray[np.uint8]:
    """A picture [H, W] or [H, W, 3] as [H, W, 3] of 8 bits; of 16 bits the upper 8 are kept."""
    eight = (array >> 8).astype(np.uint8) if array.dtype == np.uint16 else array
    return np.repeat(eight[..., None], 3, axis=2) if eight.ndim == 2 else eight


def letterboxed(array: NDArray[Any], size: int, *, nearest: bool) -> NDArray[Any]:
    """An image [H, W] or [H, W, C] with its long side at `size`, centred on a square of zeros.

    >>> letterboxed(np.full((2, 4), 7, dtype=np.uint8), 4, nearest=True)[:, 0].tolist()
    [0, 7, 7, 0]
    """
    return _fitted(array, "letterbox", size, nearest=nearest)


def centre_cropped(array: NDArray[Any], size: int, *, nearest: bool = False) -> NDArray[Any]:
    """An image [H, W] or [H, W, C] with its short side at `size`, and the square in its middle."""
    return _fitted(array, "centre", size, nearest=nearest)


def mapped(values: NDArray[Any], mapping: Mapping[int, int], *, file: Path | None = None) -> NDArray[np.uint8]:
    """Class numbers for the values of a mask.

    Raises:
        UnfitError: a value that the mapping does not have; it names these values.

    >>> mapped(np.array([[0, 255]]), {0: 0, 255: 1})
    array([[0, 1]], dtype=uint8)
    """
    found, places = np.unique(values, return_inverse=True)
    foreign = [value for value in found.tolist() if value not in mapping]
    if foreign:
        named = ", ".join(f"{value:g}" for value in foreign[:_NAMED]) + (", ..." if len(foreign) > _NAMED else "")
        known = ", ".join(map(str, sorted(mapping)[:_NAMED])) + (", ..." if len(mapping) > _NAMED else "")
        raise UnfitError(f"has mask values outside the mapping ({named}; known are {known})", file=file)
    classes = np.array([mapping[value] for value in found.tolist()], dtype=np.uint8)
    return classes[places.reshape(values.shape)]


def check_same_size(image: NDArray[Any], mask: NDArray[Any], *, file: Path | None = None) -> None:
    """Raise an `UnfitError` unless a mask is of its image's size (of a volume, all three sizes)."""
    axes = image.ndim if mask.ndim == 3 else 2
    if image.shape[:axes] != mask.shape[:axes]:
        # Volumes are stored [X, Y, Z], pictures [H, W]: width comes first in both.
        shapes = [array.shape[:3] if axes == 3 else array.shape[1::-1] for array in (mask, image)]
        sizes = [" x ".join(map(str, shape)) for shape in shapes]
        raise UnfitError(f"is a mask of size {sizes[0]} and its image has {sizes[1]}", file=file)


def volume(path: Path) -> NDArray[Any]:
    """A NIfTI volume [X, Y, Z] as it is stored (not reoriented), its header's scaling applied.

    Raises:
        UnfitError: missing, unreadable, cut short, not three-dimensional, or with values that are not finite.
    """
    import nibabel

    try:
        found = nibabel.Nifti1Image.from_filename(path)
        _check_shape(found.shape, path)
        values = np.asanyarray(found.dataobj)
    except FileNotFoundError:
        raise _missing(path) from None
    except UnfitError:
        raise
    except Exception as error:  # decoders raise whatever they like on a broken file
        why = f"{type(error).__name__}: {error}".splitlines()[0].replace(str(path), "the file")
        raise UnfitError(f"cannot be read as NIfTI ({why})", file=path) from error
    if values.dtype.kind not in "iuf":
        raise UnfitError(f"holds values of type {values.dtype}: save it as plain numbers", file=path)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise UnfitError("has a voxel that is not a finite number", file=path)
    native = values.astype(values.dtype.newbyteorder("="), copy=False)
    return native[..., 0] if native.ndim == 4 else native


def _missing(path: Path) -> UnfitError:
    return UnfitError("is a link to nothing" if path.is_symlink() else "is missing", file=path)


def _deep(file: Image.Image) -> str | None:
    """What 16 bits are of in a file that pillow reads with 8: `colour`, or `grey` with alpha."""
    stored = repr(getattr(file, "tile", ""))
    if ";16" not in stored or file.mode.startswith("I"):
        return None
    return "grey" if "LA;16" in stored else "colour"


def _fitted(array: NDArray[Any], shape: Shape, size: int, *, nearest: bool) -> NDArray[Any]:
    fitting = Fitting(shape=shape)
    return (fitting.mask if nearest else fitting.image)(array, size, size)


def _check_shape(shape: tuple[int, ...], path: Path) -> None:
    if len(shape) not in (3, 4) or min(shape) < 1 or (len(shape) == 4 and shape[3] != 1):
        raise UnfitError(f"has the shape {' x '.join(map(str, shape))}: one volume is needed", file=path)
    if int(np.prod(shape, dtype=np.int64)) > _LARGEST:
        raise UnfitError(f"claims the size {' x '.join(map(str, shape))}, which is too large", file=path)


def _sixteen_bits(found: Image.Image, path: Path) -> NDArray[np.uint16]:
    values = np.asarray(found)
    if found.mode == "I":
        raise UnfitError("has 32-bit values of no known range: save it with 8 or 16 bits", file=path)
    return values.astype(np.uint16)


def _check_opaque(found: Image.Image, path: Path) -> None:
    if found.mode in _TRANSPARENT or "transparency" in found.info:
        lowest, _ = found.convert("RGBA").getchannel("A").getextrema()
        if lowest != 255:
            raise UnfitError("has see-through pixels: fill them and save it again", file=path)
