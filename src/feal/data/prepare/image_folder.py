"""Prepare a user's folder of images, arranged by folder or listed in a table, without writing a class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from feal.data.prepare import decode as decoding
from feal.data.prepare.base import (
    DatasetSource,
    DecodedSample,
    Finding,
    ScanResult,
    SourceRecord,
    UnusableFileError,
    relative_name,
)
from feal.data.prepare.datasets.layout import parse_whole
from feal.data.prepare.folder_layout import ImageListing, ImageRecord, list_folders
from feal.data.prepare.image_table import find_table, list_table
from feal.data.resize import Fitting
from feal.errors import FealError
from feal.settings import Task

_INSPECTED = 16
"""How many images of a site decide whether the set is grey or in colour, of 8 or 16 bits."""
_GREY = ("1", "L", "LA", "La")


class ImageFolder(DatasetSource):
    """A user's folder of images with classes, channels and type found in it; create it by `open_image_folder`."""

    size = 224
    fitting: ClassVar[Fitting] = Fitting(shape="letterbox")
    version = 2

    def __init__(
        self, *, name: str, task: Task, classes: tuple[str, ...], channels: int, dtype: str, table: str | None
    ) -> None:
        # Other sources define these as class attributes.
        self.__dict__.update(name=name, task=task, classes=classes, channels=channels, dtype=dtype)
        self._table = table

    def scan(self, folder: Path) -> ScanResult:
        """Find the images and the class number of each."""
        found = _list_images(folder, self.task, self._table)
        records, findings = [], [*found.findings]
        is_labelled = any(_label_of(image, self.task) is not None for image in found.images)
        for image in found.images:
            problem = self._find_bad_label(image) if is_labelled else self._find_other_task(image)
            if problem:
                findings.append(Finding(file=relative_name(image.image, folder), problem=problem))
            else:
                records.append(self._to_source_record(image))
        return ScanResult(records=records, findings=findings, remarks=found.remarks)

    def read(self, record: SourceRecord, *, size: int) -> Sequence[DecodedSample]:
        """Decode and letterbox an image or the slices of a volume, whose values are scaled to the set's range."""
        if not _is_volume(record.image):
            image = self._decode_image(record.image)
            return [self._make_sample(record.id, image, self._mask(record, image), record, size)]
        voxels = self._decode_volume(record.image)
        mask = self._mask(record, voxels)
        # The first axis of NIfTI runs along a row of the image.
        return [
            self._make_sample(
                f"{record.id}-{place:03}",
                voxels[..., place].T,
                None if mask is None else mask[..., place].T,
                record,
                size,
            )
            for place in range(voxels.shape[2])
        ]

    def _find_bad_label(self, image: ImageRecord) -> str | None:
        if (
            self.task == "segmentation"
            or image.label is None
            or parse_class(image.label, self.classes) is not None
        ):
            return None
        return f"has the label '{image.label}', which is none of {', '.join(self.classes)}"

    def _find_other_task(self, image: ImageRecord) -> str | None:
        """Return the problem of an image with a label for the other task, in a set without any for this one."""
        if self.task == "segmentation":
            return "has a label, but the task is segmentation: name a mask" if image.label else None
        return "has a mask, but the task is classification: name a label" if image.mask else None

    def _to_source_record(self, image: ImageRecord) -> SourceRecord:
        label = _label_of(image, self.task)
        return SourceRecord(
            site=image.site,
            id=image.id,
            image=image.image,
            label=parse_class(label, self.classes) if isinstance(label, str) else None,
            mask=label if isinstance(label, Path) else None,
            group=image.patient or (image.id if _is_volume(image.image) else None),
            split=image.split,
        )

    def _make_sample(
        self, id: str, image: NDArray[Any], mask: NDArray[np.uint8] | None, record: SourceRecord, size: int
    ) -> DecodedSample:
        fitted = self.fitting.fit_image(image, size, size)
        planes = fitted.transpose(2, 0, 1) if fitted.ndim == 3 else fitted[None]
        drawn = None if mask is None else self.fitting.fit_mask(mask, size, size)
        return DecodedSample(id=id, image=planes, label=record.label if self.task == "classification" else drawn)

    def _decode_image(self, path: Path) -> NDArray[Any]:
        found = decoding.decode_image(path)
        if self.channels == 1 and found.ndim == 3:
            if (found != found[..., :1]).any():
                raise UnusableFileError("is in colour, but the others are grey: convert it", file=path)
            found = found[..., 0]
        if self.dtype == "uint8" and found.dtype == np.uint16:
            raise UnusableFileError("has 16 bits, but the others have 8 bits or colours: convert it", file=path)
        if self.dtype == "uint16" and found.dtype == np.uint8:
            found = found.astype(np.uint16) * 257
        return decoding.to_rgb(found) if self.channels == 3 else found

    def _decode_volume(self, path: Path) -> NDArray[Any]:
        if self.channels == 3:
            raise UnusableFileError("is a volume among colour images: prepare them separately", file=path)
        voxels = decoding.decode_volume(path)
        if voxels.dtype == np.uint8 and self.dtype == "uint8":
            return voxels
        low, high = float(voxels.min()), float(voxels.max())
        top = np.iinfo(self.dtype).max
        return ((voxels - low) / max(high - low, 1e-12) * top).round().astype(self.dtype)

    def _mask(self, record: SourceRecord, image: NDArray[Any]) -> NDArray[np.uint8] | None:
        path = record.mask
        if path is None:
            return None
        if _is_volume(path) != _is_volume(record.image):
            mask, other = ("volume", "flat image") if _is_volume(path) else ("flat image", "volume")
            raise UnusableFileError(f"is a {mask} as the mask of a {other}", file=path)
        values = decoding.decode_volume(path) if _is_volume(path) else decoding.decode_mask(path)
        decoding.check_same_size(image, values, file=path)
        if len(self.classes) == 2 and not (values == 1).any():
            return decoding.map_values(values, {0: 0, 255: 1}, file=path)
        return decoding.map_values(values, {number: number for number in range(len(self.classes))}, file=path)


def open_image_folder(
    folder: Path,
    *,
    task: Task,
    name: str,
    table: str | Path | None = None,
    classes: Sequence[str] = (),
) -> ImageFolder:
    """Open a user's folder of images as a data set, by the names of its folders or by a CSV.

    Classification: the classes are the names of folders or labels, sorted, unless `classes` lists them.
    Segmentation: `classes` lists them in the order of mask values; the default is background and foreground.

    Raises:
        FealError: no image there, fewer than two classes, or a table that cannot be read.
    """
    if not folder.is_dir():
        raise FealError(f"There is no folder {folder}: name the one that holds the images.")
    found = _list_images(folder, task, None if table is None else str(table))
    if not found.images:
        wanted = "site/class/*.png" if task == "classification" else "site/image/*.png with site/mask/*.png"
        raise FealError(f"There is no image for {task} in {folder}: arrange images as {wanted}, or pass --csv.")
    if not classes:
        classes = _list_classes(found.images) if task == "classification" else ("background", "foreground")
    if len(classes) < 2:
        few = f"only one class ({classes[0]})" if classes else "no label"
        raise FealError(f"There is {few} in {folder}: name two or more classes by --classes.")
    channels, dtype = _detect_format(found.images)
    return ImageFolder(
        name=name,
        task=task,
        classes=tuple(classes),
        channels=channels,
        dtype=dtype,
        table=None if table is None else str(table),
    )


def parse_class(label: str, classes: Sequence[str]) -> int | None:
    """Return the number of the class that a label names or numbers; None if it does neither.

    If the classes themselves are numbers, a label is a name: `0` is not the first of the classes `1` and `2`.

    >>> parse_class("2", ("1", "2")), parse_class("0", ("1", "2")), parse_class("1", ("nevus", "melanoma"))
    (1, None, 1)
    """
    if label in classes:
        return classes.index(label)
    number = None if any(parse_whole(name) is not None for name in classes) else parse_whole(label)
    return number if number is not None and 0 <= number < len(classes) else None


def _list_classes(images: Sequence[ImageRecord]) -> list[str]:
    """List all labels, sorted; a negative number, which tables often hold for a missing label, is none."""
    labels = {image.label for image in images if image.label is not None}
    return sorted((label for label in labels if (parse_whole(label) or 0) >= 0), key=_sort_key)


def _list_images(folder: Path, task: Task, table: str | None) -> ImageListing:
    path = Path(table) if table is not None else find_table(folder)
    return list_table(path, folder) if path is not None else list_folders(folder, task)


def _label_of(image: ImageRecord, task: Task) -> str | Path | None:
    """Return the label or the mask, whichever the task needs; a table may hold both."""
    return image.label if task == "classification" else image.mask


def _sort_key(label: str) -> tuple[int, int, str]:
    """Sort numbers by value, then names."""
    return (0, int(label), "") if label.isdecimal() else (1, 0, label)


def _is_volume(path: Path) -> bool:
    return path.name.lower().endswith(decoding.VOLUME_SUFFIXES)


def _detect_format(images: Sequence[ImageRecord]) -> tuple[int, str]:
    """Return channels and type by the first images of each site: colour wins over grey, and 16 bits over 8."""
    counts: dict[str, int] = {}
    modes = set()
    for image in images:
        counts[image.site] = counts.get(image.site, 0) + 1
        if counts[image.site] <= _INSPECTED:
            modes.add(_read_mode(image.image))
    if "colour" in modes:
        return 3, "uint8"
    return 1, "uint16" if "deep" in modes else "uint8"


def _read_mode(path: Path) -> str | None:
    if _is_volume(path):
        return "deep"
    try:
        with Image.open(path, formats=decoding.FORMATS) as image:
            if image.mode.startswith("I"):
                return "deep"
            return "grey" if image.mode in _GREY else "colour"
    except Exception:  # an unreadable file becomes a finding when it is decoded
        return None
