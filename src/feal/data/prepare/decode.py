"""Decode image and volume files to arrays without losing information, or reject them."""

import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps

from feal.data.prepare.base import DatasetSource, DecodedSample, SourceRecord, UnusableFileError, list_first
from feal.data.resize import Fitting

FORMATS = ("PNG", "JPEG", "TIFF", "BMP")
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp")
VOLUME_SUFFIXES = (".nii.gz", ".nii")

_TRANSPARENT = ("LA", "La", "PA", "RGBA", "RGBa", "RGBX")
_LARGEST = 2**30
"""The largest number of voxels that is read, since a damaged header may claim anything."""
_NAMED = 6
_NO_CLASS = 255
"""No class of a mask has this number."""
_ORIENTATION = ExifTags.Base.Orientation
_DEEP = "sixteen bits of"
"""The key under which `open_upright` notes that an image had more bits than are read."""


def is_volume(path: Path) -> bool:
    """Return whether a file's name is that of a volume."""
    return path.name.lower().endswith(VOLUME_SUFFIXES)


def strip_suffix(path: Path) -> str:
    """Return a file's name without its suffix.

    >>> strip_suffix(Path("a/case.07.nii.gz")), strip_suffix(Path("b.jpeg"))
    ('case.07', 'b')
    """
    ending = next((ending for ending in VOLUME_SUFFIXES if path.name.lower().endswith(ending)), path.suffix)
    return path.name[: len(path.name) - len(ending)]


def decode_image(path: Path) -> NDArray[Any]:
    """Decode a PNG, JPEG, TIFF or BMP: upright [H, W] or [H, W, 3], uint8, or uint16 if it is grey of 16 bits.

    The camera's orientation is applied, a palette becomes colours, an alpha channel must be opaque. Colours of 16
    bits keep their upper 8.

    Raises:
        UnusableFileError: missing, unreadable, truncated, several pages, transparent, or of unknown range.
    """
    return _to_array(open_upright(path), path)


def _to_array(found: Image.Image, path: Path) -> NDArray[Any]:
    if found.info.get(_DEEP) == "grey":
        raise UnusableFileError("is grey of 16 bits with an alpha channel: save it without alpha", file=path)
    if found.mode == "I":
        raise UnusableFileError("has 32-bit values of no known range: save it with 8 or 16 bits", file=path)
    if found.mode.startswith("I"):
        return np.asarray(found).astype(np.uint16)
    if found.mode in _TRANSPARENT or "transparency" in found.info:
        lowest, _ = found.convert("RGBA").getchannel("A").getextrema()
        if lowest != 255:
            raise UnusableFileError("has transparent pixels: fill them and save it again", file=path)
    if found.mode in ("L", "RGB"):
        return np.asarray(found)
    if found.mode in ("1", "LA", "La"):
        return np.asarray(found.convert("L"))
    if found.mode in ("YCbCr", "P", *_TRANSPARENT):
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
    problem = "is a mask in colours: save it with class numbers or greys as values"
    return to_grey(_to_array(found, path), file=path, problem=problem)


def decode_pair(record: SourceRecord) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Decode an image [H, W] or [H, W, 3] and the values [H, W] of its mask if it has one, or volumes [X, Y, Z].

    Raises:
        UnusableFileError: one of them cannot be read, or they differ in size.
    """
    image = decode_volume(record.image) if is_volume(record.image) else decode_image(record.image)
    if record.mask is None:
        return image, None
    if is_volume(record.mask) != is_volume(record.image):
        mask, other = ("volume", "flat image") if is_volume(record.mask) else ("flat image", "volume")
        raise UnusableFileError(f"is a {mask} as the mask of a {other}", file=record.mask)
    values = decode_volume(record.mask) if is_volume(record.mask) else decode_mask(record.mask)
    check_same_size(image, values, file=record.mask)
    return image, values


def open_upright(path: Path) -> Image.Image:
    """Decode an image file and apply its camera's orientation.

    Raises:
        UnusableFileError: missing, unreadable, truncated, or several pages.
    """
    with _reading(path), ignore_warnings(), Image.open(path, formats=FORMATS) as file:
        # A phone's JPEG may carry a preview or a second view after the image.
        pages = 1 if file.format == "MPO" else getattr(file, "n_frames", 1)
        stored = repr(getattr(file, "tile", ""))
        file.load()
        found = file if file.getexif().get(_ORIENTATION, 1) == 1 else ImageOps.exif_transpose(file)
    if pages > 1:
        raise UnusableFileError(f"has {pages} pages: save the one that is meant", file=path)
    if ";16" in stored and not found.mode.startswith("I"):  # pillow reads 8 of its 16 bits
        found.info[_DEEP] = "grey" if "LA;16" in stored else "colour"
    return found


def decode_volume(path: Path) -> NDArray[Any]:
    """Decode a NIfTI volume [X, Y, Z] as it is stored (not reoriented), with its header's scaling applied.

    Raises:
        UnusableFileError: missing, unreadable, truncated, not three-dimensional, or not finite.
    """
    import nibabel

    with _reading(path, kind=" as NIfTI"):
        found = nibabel.Nifti1Image.from_filename(path)
        shape = " x ".join(map(str, found.shape))
        if len(found.shape) not in (3, 4) or min(found.shape) < 1 or found.shape[3:] not in ((), (1,)):
            raise UnusableFileError(f"has the shape {shape}: one volume is needed", file=path)
        if int(np.prod(found.shape, dtype=np.int64)) > _LARGEST:
            raise UnusableFileError(f"claims the size {shape}, which is too large", file=path)
        values = np.asanyarray(found.dataobj)
    if values.dtype.kind not in "iuf":
        raise UnusableFileError(f"holds values of type {values.dtype}: save it as plain numbers", file=path)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise UnusableFileError("has a voxel that is not a finite number", file=path)
    native = values.astype(values.dtype.newbyteorder("="), copy=False)
    return native[..., 0] if native.ndim == 4 else native


@contextmanager
def ignore_warnings() -> Iterator[None]:
    """Ignore warnings: pillow's are about harmless oddities, and what matters is checked here.

    Filters are shared by all threads, so only the main one changes them, for the workers that it waits for, too.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _reading(path: Path, *, kind: str = "") -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        problem = "is a link to nothing" if path.is_symlink() else "is missing"
        raise UnusableFileError(problem, file=path) from None
    except UnusableFileError:
        raise
    except Exception as error:  # decoders raise whatever they like on a broken file
        reason = f"{type(error).__name__}: {error}".splitlines()[0].replace(str(path), "the file")
        raise UnusableFileError(f"cannot be read{kind} ({reason})", file=path) from error


def to_rgb(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Convert an image [H, W] or [H, W, 3] to [H, W, 3] of 8 bits; 16 bits keep their upper 8."""
    eight = to_eight_bits(array)
    return np.repeat(eight[..., None], 3, axis=2) if eight.ndim == 2 else eight


def to_eight_bits(array: NDArray[Any]) -> NDArray[Any]:
    """Keep the upper 8 of 16 bits; other types are returned as they are."""
    return (array >> 8).astype(np.uint8) if array.dtype == np.uint16 else array


def to_grey(image: NDArray[Any], *, file: Path, problem: str = "has colours, but should be grey") -> NDArray[Any]:
    """Convert an image saved as three equal channels to [H, W].

    Raises:
        UnusableFileError: it has colours; `problem` says so.
    """
    if image.ndim == 2:
        return image
    first = image[..., 0]
    if any((first != image[..., channel]).any() for channel in range(1, image.shape[2])):
        raise UnusableFileError(problem, file=file)
    return first


def map_values(values: NDArray[Any], mapping: Mapping[int, int], *, file: Path | None = None) -> NDArray[np.uint8]:
    """Map the values of a mask to class numbers.

    Raises:
        UnusableFileError: values outside the mapping; the message names them.

    >>> map_values(np.array([[0, 255]]), {0: 0, 255: 1})
    array([[0, 1]], dtype=uint8)
    """
    if values.dtype in (np.uint8, np.uint16):  # a table instead of sorting all pixels
        table = np.full(np.iinfo(values.dtype).max + 1, _NO_CLASS, dtype=np.uint8)
        for value in mapping.keys() & range(len(table)):
            table[value] = mapping[value]
        mapped: NDArray[np.uint8] = table[values]
        if mapped.max(initial=0) != _NO_CLASS:
            return mapped
    found, places = np.unique(values, return_inverse=True)
    unknown = [f"{value:g}" for value in found.tolist() if value not in mapping]
    if unknown:
        named, known = list_first(unknown, _NAMED), list_first([str(value) for value in sorted(mapping)], _NAMED)
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


def fit_sample(
    id: str, image: NDArray[Any], label: int | NDArray[np.uint8] | None, *, fitting: Fitting, size: int
) -> DecodedSample:
    """Fit an image [H, W] or [H, W, C], and its mask [H, W] if the label is one, to `size` x `size` pixels.

    Margins of the fitting are added to the size.
    """
    side = fitting.add_margin(size)
    fitted = fitting.fit_image(image, side, side)
    planes = fitted[None] if fitted.ndim == 2 else fitted.transpose(2, 0, 1)
    if isinstance(label, np.ndarray):
        label = fitting.fit_mask(label, side, side)
    return DecodedSample(id=id, image=np.ascontiguousarray(planes), label=label)


class ImageSource(DatasetSource):
    """A source of images or volumes, whose subclass says what their pixels and the values of their masks mean."""

    fitting: ClassVar[Fitting]
    mask_values: ClassVar[Mapping[int, int]]
    """Segmentation: the class of each value of a mask."""

    def read(self, record: SourceRecord, *, size: int) -> Sequence[DecodedSample]:
        """Decode an image, or the slices of a volume, with class or mask, and fit them."""
        return [fit_sample(*sample, fitting=self.fitting, size=size) for sample in self.decode(record)]

    def decode(self, record: SourceRecord) -> Iterator[tuple[str, NDArray[Any], int | NDArray[np.uint8] | None]]:
        """Yield the id, the pixels and the class or mask of each sample of a record, not fitted yet."""
        image, values = decode_pair(record)
        pixels = self.to_pixels(image, record)
        mask = None if values is None else self.to_classes(values, record)
        if not is_volume(record.image):
            yield record.id, pixels, record.label if mask is None else mask
            return
        for place in range(pixels.shape[2]):
            # The first axis of NIfTI runs along a row of the image.
            label = record.label if mask is None else mask[..., place].T
            yield f"{record.id}-{place:03}", pixels[..., place].T, label

    def to_pixels(self, image: NDArray[Any], record: SourceRecord) -> NDArray[Any]:
        """Convert a decoded image or volume to the channels and the type of the data set."""
        if self.channels == 3:
            return to_rgb(image)
        grey = image if is_volume(record.image) else to_grey(image, file=record.image)
        return to_eight_bits(grey) if self.dtype == "uint8" else grey

    def to_classes(self, values: NDArray[Any], record: SourceRecord) -> NDArray[np.uint8]:
        """Convert the values of a mask to class numbers."""
        return map_values(values, self.mask_values, file=record.mask)
