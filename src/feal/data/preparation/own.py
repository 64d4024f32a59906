"""Pictures of one's own: read from folders or a table, without writing a data set class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from feal.data.fitting import Fitting
from feal.data.preparation import decoding
from feal.data.preparation.contract import Download, Draft, Finding, Piece, Scan, UnfitError
from feal.data.preparation.downloads.tables import whole_number
from feal.data.preparation.findings import named
from feal.data.preparation.own_layout import Layout, Own, from_folders
from feal.data.preparation.own_table import from_table, table_in
from feal.errors import FealError
from feal.settings import Task

_LOOKED_AT = 16
"""Pictures of a site that decide whether the set is grey or in colour, of 8 or 16 bits."""
_GREY = ("1", "L", "LA", "La")


class OwnPictures(Download):
    """A data set whose classes and kind of pictures were found in the user's folder; see `own_pictures`."""

    size = 224
    fitting: ClassVar[Fitting] = Fitting(shape="letterbox")
    version = 2

    def __init__(
        self, *, name: str, task: Task, classes: tuple[str, ...], channels: int, dtype: str, table: str | None
    ) -> None:
        # What other data sets are as classes, this one is as an instance.
        self.__dict__.update(name=name, task=task, classes=classes, channels=channels, dtype=dtype)
        self._table = table

    def scan(self, folder: Path) -> Scan:
        """Find the pictures again, and the number of each one's class."""
        found = _layout(folder, self.task, self._table)
        drafts, findings = [], [*found.findings]
        given = any(_told(own, self.task) is not None for own in found.pictures)
        for own in found.pictures:
            problem = self._problem(own) if given else self._other_task(own)
            if problem:
                findings.append(Finding(file=named(own.image, folder), problem=problem))
            else:
                drafts.append(self._draft(own))
        return Scan(drafts=drafts, findings=findings, remarks=found.remarks)

    def read(self, draft: Draft, *, size: int) -> Sequence[Piece]:
        """A picture, letterboxed, or a volume's slices; each volume's range of values becomes the set's."""
        if not _is_volume(draft.image):
            image = self._picture(draft.image)
            return [self._piece(draft.id, image, self._mask(draft, image), draft, size)]
        voxels = self._volume(draft.image)
        mask = self._mask(draft, voxels)
        # NIfTI's first axis runs along a row of the picture.
        return [
            self._piece(
                f"{draft.id}-{place:03}",
                voxels[..., place].T,
                None if mask is None else mask[..., place].T,
                draft,
                size,
            )
            for place in range(voxels.shape[2])
        ]

    def _problem(self, own: Own) -> str | None:
        if self.task == "segmentation" or own.label is None or class_of(own.label, self.classes) is not None:
            return None
        return f"has the label '{own.label}', which is none of {', '.join(self.classes)}"

    def _other_task(self, own: Own) -> str | None:
        """The problem of a picture that is told for the other task, where none is told for this one."""
        if self.task == "segmentation":
            return "has a label, and the task is segmentation: name a mask" if own.label else None
        return "has a mask, and the task is classification: name a label" if own.mask else None

    def _draft(self, own: Own) -> Draft:
        told = _told(own, self.task)
        return Draft(
            site=own.site,
            id=own.id,
            image=own.image,
            label=class_of(told, self.classes) if isinstance(told, str) else None,
            mask=told if isinstance(told, Path) else None,
            group=own.patient or (own.id if _is_volume(own.image) else None),
            split=own.split,
        )

    def _piece(
        self, id: str, image: NDArray[Any], mask: NDArray[np.uint8] | None, draft: Draft, size: int
    ) -> Piece:
        fitted = self.fitting.image(image, size, size)
        planes = fitted.transpose(2, 0, 1) if fitted.ndim == 3 else fitted[None]
        drawn = None if mask is None else self.fitting.mask(mask, size, size)
        return Piece(id=id, image=planes, truth=draft.label if self.task == "classification" else drawn)

    def _picture(self, path: Path) -> NDArray[Any]:
        found = decoding.picture(path)
        if self.channels == 1 and found.ndim == 3:
            if (found != found[..., :1]).any():
                raise UnfitError("is in colour, and the others are grey: make them alike", file=path)
            found = found[..., 0]
        if self.dtype == "uint8" and found.dtype == np.uint16:
            raise UnfitError("has 16 bits, and the others 8 or colours: make them alike", file=path)
        if self.dtype == "uint16" and found.dtype == np.uint8:
            found = found.astype(np.uint16) * 257
        return decoding.colour(found) if self.channels == 3 else found

    def _volume(self, path: Path) -> NDArray[Any]:
        if self.channels == 3:
            raise UnfitError("is a volume among pictures in colour: prepare them apart", file=path)
        voxels = decoding.volume(path)
        if voxels.dtype == np.uint8 and self.dtype == "uint8":
            return voxels
        low, high = float(voxels.min()), float(voxels.max())
        top = np.iinfo(self.dtype).max
        return ((voxels - low) / max(high - low, 1e-12) * top).round().astype(self.dtype)

    def _mask(self, draft: Draft, image: NDArray[Any]) -> NDArray[np.uint8] | None:
        path = draft.mask
        if path is None:
            return None
        if _is_volume(path) != _is_volume(draft.image):
            mask, other = ("volume", "flat picture") if _is_volume(path) else ("flat picture", "volume")
            raise UnfitError(f"is a mask that is a {mask}, and its image is a {other}", file=path)
        values = decoding.volume(path) if _is_volume(path) else decoding.mask_values(path)
        decoding.check_same_size(image, values, file=path)
        if len(self.classes) == 2 and not (values == 1).any():
            return decoding.mapped(values, {0: 0, 255: 1}, file=path)
        return decoding.mapped(values, {number: number for number in range(len(self.classes))}, file=path)


def own_pictures(
    folder: Path,
    *,
    task: Task,
    name: str,
    table: str | Path | None = None,
    classes: Sequence[str] = (),
) -> OwnPictures:
    """The data set in a folder of one's own, by its folders' names or a CSV.

    Classification: classes are the names of folders or labels, sorted. Segmentation: `classes` names them, in the
    order of the numbers in masks; without, there are a background and a foreground.

    Raises:
        FealError: no picture there, one class only, a table that cannot be read.
    """
    if not folder.is_dir():
        raise FealError(f"There is no folder {folder}: give the one that holds the pictures.")
    found = _layout(folder, task, None if table is None else str(table))
    if not found.pictures:
        wanted = "site/class/*.png" if task == "classification" else "site/image/*.png with site/mask/*.png"
        raise FealError(f"There is no picture for {task} in {folder}: arrange them as {wanted}, or give a --csv.")
    if not classes:
        classes = _classes(found.pictures) if task == "classification" else ("background", "foreground")
    if len(classes) < 2:
        named_ones = f"is one class ({classes[0]})" if classes else "is no label"
        raise FealError(f"There {named_ones} in {folder}: two classes are needed, name them by --classes.")
    channels, dtype = _kind(found.pictures)
    return OwnPictures(
        name=name,
        task=task,
        classes=tuple(classes),
        channels=channels,
        dtype=dtype,
        table=None if table is None else str(table),
    )


def class_of(label: str, classes: Sequence[str]) -> int | None:
    """The number of the class that a label names, or that it is the number of; None if it is neither.

    Where classes are called by numbers, a label is a name: `0` is not the first of the classes `1` and `2`.

    >>> class_of("2", ("1", "2")), class_of("0", ("1", "2")), class_of("1", ("nevus", "melanoma"))
    (1, None, 1)
    """
    if label in classes:
        return classes.index(label)
    number = None if any(whole_number(name) is not None for name in classes) else whole_number(label)
    return number if number is not None and 0 <= number < len(classes) else None


def _classes(pictures: Sequence[Own]) -> list[str]:
    """All labels, sorted; a number below zero, which tables often hold for want of a label, is none."""
    labels = {own.label for own in pictures if own.label is not None}
    return sorted((label for label in labels if (whole_number(label) or 0) >= 0), key=_in_order)


def _layout(folder: Path, task: Task, table: str | None) -> Layout:
    path = Path(table) if table is not None else table_in(folder)
    return from_table(path, folder) if path is not None else from_folders(folder, task)


def _told(own: Own, task: Task) -> str | Path | None:
    """What a task is learned from: a label, or a mask; a table may hold both."""
    return own.label if task == "classification" else own.mask


def _in_order(label: str) -> tuple[int, int, str]:
    """Numbers by value, then names."""
    return (0, int(label), "") if label.isdecimal() else (1, 0, label)


def _is_volume(path: Path) -> bool:
    return path.name.lower().endswith(decoding.VOLUMES)


def _kind(pictures: Sequence[Own]) -> tuple[int, str]:
    """Channels and type by the first pictures of each site: colour wins over grey, and grey of 16 bits over 8."""
    seen: dict[str, int] = {}
    modes = set()
    for own in pictures:
        seen[own.site] = seen.get(own.site, 0) + 1
        if seen[own.site] <= _LOOKED_AT:
            modes.add(_mode(own.image))
    if "colour" in modes:
        return 3, "uint8"
    return 1, "uint16" if "deep" in modes else "uint8"


def _mode(path: Path) -> str | None:
    if _is_volume(path):
        return "deep"
    try:
        with Image.open(path, formats=decoding.FORMATS) as picture:
            if picture.mode.startswith("I"):
                return "deep"
            return "grey" if picture.mode in _GREY else "colour"
    except Exception:  # what cannot be read is a finding later
        return None
