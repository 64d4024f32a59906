"""Prepare a user's folder of images, arranged by folder or listed in a table, without writing a class."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from feal.data.prepare import Finding, ScanResult, SourceRecord, UnusableFileError
from feal.data.prepare import decode as decoding
from feal.data.prepare.base import Split, make_finding
from feal.data.prepare.decode import is_volume, strip_suffix
from feal.data.prepare.image_table import (
    ImageListing,
    ImageRecord,
    find_table,
    list_table,
    parse_index,
    parse_split,
    parse_whole,
)
from feal.data.resize import Fitting
from feal.data.samples import SPLITS
from feal.errors import FealError
from feal.settings import Task

_IMAGE_FOLDERS, _MASK_FOLDERS, _UNLABELLED = ("image", "images"), ("mask", "masks"), "unlabelled"
_INSPECTED = 16
"""How many images of a site decide whether the set is grey or in colour, of 8 or 16 bits."""
_GREY = ("1", "L", "LA", "La")


class ImageFolder(decoding.ImageSource):
    """A user's folder of images with classes, channels and type found in it; create it by `open_image_folder`."""

    size = 224
    fitting: ClassVar[Fitting] = Fitting(shape="letterbox")
    version = 3

    def __init__(
        self, *, name: str, task: Task, classes: tuple[str, ...], channels: int, dtype: str, table: str | None
    ) -> None:
        # Other sources define these as class attributes.
        self.__dict__.update(name=name, task=task, classes=classes, channels=channels, dtype=dtype)
        self._table = table

    def scan(self, folder: Path) -> ScanResult:
        """Find the images and the class number of each."""
        images, listed, remarks = _list_images(folder, self.task, self._table)
        records, findings = [], [*listed]
        is_class = self.task == "classification"
        is_labelled = any((image.class_name if is_class else image.mask) is not None for image in images)
        for image in images:
            label = parse_class(image.class_name, self.classes) if is_class and image.class_name else None
            if is_class and is_labelled and image.class_name is not None and label is None:
                problem = f"has the label '{image.class_name}', which is none of {', '.join(self.classes)}"
            elif is_class and not is_labelled and image.mask is not None:
                problem = "has a mask, but the task is classification: name a label"
            elif not is_class and not is_labelled and image.class_name is not None:
                problem = "has a label, but the task is segmentation: name a mask"
            else:
                mask, group = None if is_class else image.mask, image.group
                if group is None and is_volume(image.image):
                    group = image.id
                records.append(replace(image, label=label, mask=mask, group=group))
                continue
            findings.append(make_finding(image.image, folder, problem))
        return ScanResult(records=records, findings=findings, remarks=remarks)

    def to_pixels(self, image: NDArray[Any], record: SourceRecord) -> NDArray[Any]:
        """Convert an image to the channels and the type of the set, or scale a volume to its range."""
        if is_volume(record.image):
            return self._scale_volume(image, record.image)
        if self.channels == 1:
            problem = "is in colour, but the others are grey: convert it"
            image = decoding.to_grey(image, file=record.image, problem=problem)
        if self.dtype == "uint8" and image.dtype == np.uint16:
            raise UnusableFileError("has 16 bits, but the others have 8 bits or colours: convert it")
        if self.dtype == "uint16" and image.dtype == np.uint8:
            image = image.astype(np.uint16) * 257
        return decoding.to_rgb(image) if self.channels == 3 else image

    def to_classes(self, values: NDArray[Any], record: SourceRecord) -> NDArray[np.uint8]:
        """Take the values of a mask for class numbers, or for evenly spaced grey levels such as 0, 128 and 255."""
        count = len(self.classes)
        are_numbers = np.isin(values, np.arange(1, count)).any()
        levels = {(510 * number + count - 1) // (2 * (count - 1)): number for number in range(count)}
        mapping = {number: number for number in range(count)} if are_numbers else levels
        return decoding.map_values(values, mapping, file=record.mask)

    def _scale_volume(self, voxels: NDArray[Any], path: Path) -> NDArray[Any]:
        if self.channels == 3:
            raise UnusableFileError("is a volume among colour images: prepare them separately", file=path)
        if voxels.dtype == np.uint8 and self.dtype == "uint8":
            return voxels
        low, high = float(voxels.min()), float(voxels.max())
        top = np.iinfo(self.dtype).max
        return ((voxels - low) / max(high - low, 1e-12) * top).round().astype(self.dtype)


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
    table = None if table is None else str(table)
    images = _list_images(folder, task, table).images
    if not images:
        wanted = "site/class/*.png" if task == "classification" else "site/image/*.png with site/mask/*.png"
        raise FealError(f"There is no image for {task} in {folder}: arrange images as {wanted}, or pass --csv.")
    if not classes:
        classes = _list_classes(images) if task == "classification" else ("background", "foreground")
    if len(classes) < 2:
        few = f"only one class ({classes[0]})" if classes else "no label"
        raise FealError(f"There is {few} in {folder}: name two or more classes by --classes.")
    channels, dtype = _detect_format(images)
    return ImageFolder(name=name, task=task, classes=tuple(classes), channels=channels, dtype=dtype, table=table)


def parse_class(label: str, classes: Sequence[str]) -> int | None:
    """Return the number of the class that a label names or numbers; None if it does neither.

    If the classes themselves are numbers, a label is a name: `0` is not the first of the classes `1` and `2`.

    >>> parse_class("2", ("1", "2")), parse_class("0", ("1", "2")), parse_class("1", ("nevus", "melanoma"))
    (1, None, 1)
    """
    if label in classes:
        return classes.index(label)
    are_numbers = any(parse_whole(name) is not None for name in classes)
    return None if are_numbers else parse_index(label, len(classes))


def _list_classes(images: Sequence[ImageRecord]) -> list[str]:
    """List all labels, numbers by value and before names; a negative number, as for a missing label, is none."""
    labels = {image.class_name for image in images if image.class_name is not None}
    return sorted(
        (label for label in labels if (parse_whole(label) or 0) >= 0),
        key=lambda label: (0, int(label), "") if label.isdecimal() else (1, 0, label),
    )


def _detect_format(images: Sequence[ImageRecord]) -> tuple[int, str]:
    """Return channels and type by the first images of each site: colour wins over grey, and 16 bits over 8."""
    counts: Counter[str] = Counter()
    modes = set()
    for image in images:
        counts[image.site] += 1
        if counts[image.site] <= _INSPECTED:
            modes.add(_read_mode(image.image))
    if "colour" in modes:
        return 3, "uint8"
    return 1, "uint16" if "deep" in modes else "uint8"


def _read_mode(path: Path) -> str | None:
    if is_volume(path):
        return "deep"
    try:
        with Image.open(path, formats=decoding.FORMATS) as image:
            if image.mode.startswith("I"):
                return "deep"
            return "grey" if image.mode in _GREY else "colour"
    except Exception:  # an unreadable file becomes a finding when it is decoded
        return None


def _list_images(folder: Path, task: Task, table: str | None) -> ImageListing:
    path = Path(table) if table is not None else find_table(folder)
    return list_table(path, folder) if path is not None else _list_folders(folder, task)


def _list_folders(folder: Path, task: Task) -> ImageListing:
    """List images by folder: `site/class/` or `site/{image,mask}/`, `train` and `test` above or below the site.

    `site/unlabelled/` holds images without label or mask.
    """
    is_class = task == "classification"
    files = sorted(_walk(folder, frozenset()))
    suffixes = decoding.IMAGE_SUFFIXES + decoding.VOLUME_SUFFIXES
    found = [path for path in files if path.name.lower().endswith(suffixes)]
    images: list[ImageRecord] = []
    masks: dict[tuple[str, str], list[Path]] = defaultdict(list)
    problems: list[tuple[Path, str]] = []
    sites = set()
    for path in found:
        place = _parse_place(path.relative_to(folder).parts[:-1])
        if place is None:
            problems.append((path, f"is not in {'site/class/' if is_class else 'site/image/ or site/mask/'}"))
            continue
        site, split, kind = place
        sites.add(site)
        is_named = is_class or kind == _UNLABELLED
        id = "/".join(part for part in (split, kind if is_named else None, strip_suffix(path)) if part)
        if is_named or kind in _IMAGE_FOLDERS:
            name = kind if is_class and kind != _UNLABELLED else None
            images.append(ImageRecord(site=site, id=id, image=path, class_name=name, split=split))
        elif kind in _MASK_FOLDERS:
            masks[site, id].append(path)
        else:
            problems.append((path, "is neither in image nor in mask"))
    if not is_class:
        images, unpaired = _pair_masks(images, masks)
        problems += unpaired
    findings = [make_finding(path, folder, problem) for path, problem in problems]
    findings += _find_empty_sites(folder, sites)
    others = len(files) - len(found)
    return ImageListing(images, findings, [f"{others} files that are not images were skipped."] if others else [])


def _pair_masks(
    images: Sequence[ImageRecord], masks: Mapping[tuple[str, str], Sequence[Path]]
) -> tuple[list[ImageRecord], list[tuple[Path, str]]]:
    """Give each image its mask, by site and id; the others, except images without a label, are problems."""
    paired = []
    problems = []
    for image in images:
        if (image.site, image.id) in masks:
            paired.append(replace(image, mask=masks[image.site, image.id][-1]))
        elif image.image.parent.name == _UNLABELLED:
            paired.append(image)
        else:
            problems.append((image.image, "has no mask"))
    shown = {(image.site, image.id) for image in images}
    for key, paths in masks.items():
        if len(paths) > 1:
            problems += [(path, "is one of several masks with this name: keep one of them") for path in paths]
        if key not in shown:
            problems.append((paths[-1], "is a mask without an image"))
    return paired, problems


def _walk(folder: Path, parents: frozenset[Path]) -> Iterator[Path]:
    """Yield the visible files below a folder; links are followed, but never back into one of the `parents`."""
    real = folder.resolve()
    if real in parents:
        return
    try:
        entries = list(folder.iterdir())
    except OSError as error:
        raise FealError(
            f"The folder {folder} cannot be read ({error.strerror}): check its permissions."
        ) from error
    for path in entries:
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _walk(path, parents | {real})
        elif path.is_file() or path.is_symlink():
            yield path  # a broken link is reported as a missing image


def _parse_place(folders: Sequence[str]) -> tuple[str, Split | None, str] | None:
    """Return site, split and last folder of an image's folders, or None; a split is not a class.

    >>> _parse_place(("alder", "nevus")), _parse_place(("test", "alder", "nevus"))
    (('alder', None, 'nevus'), ('alder', 'test', 'nevus'))
    """
    *above, kind = folders or ("",)
    split = next((name for name in above if name in SPLITS), None)
    if split is not None:
        above.remove(split)
    if len(above) != 1 or kind in SPLITS:
        return None
    return above[0], parse_split(split or ""), kind


def _find_empty_sites(folder: Path, filled: set[str]) -> list[Finding]:
    above = [path for path in folder.iterdir() if path.is_dir() and path.name in SPLITS]
    places = [path for root in (folder, *above) for path in root.iterdir() if path.is_dir() and path not in above]
    empty = {path.name for path in places if not path.name.startswith(".")} - filled
    return [Finding(file=name, problem="is a site without any image") for name in empty]
