"""Find the folders, files, image-mask pairs and table rows of a download; names are case-insensitive."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feal.data.prepare.base import Finding, ScanResult, SourceRecord, Split, UnusableFileError
from feal.data.prepare.decode import IMAGE_SUFFIXES, check_same_size, decode_image, decode_mask
from feal.errors import FealError


def list_visible(folder: Path) -> list[Path]:
    """List a folder sorted by name, without hidden files; empty if there is no such folder."""
    if not folder.is_dir():
        return []
    shown = (entry for entry in folder.iterdir() if not entry.name.startswith("."))
    return sorted(shown, key=lambda entry: entry.name)


def find_entry(folder: Path, *names: str) -> Path | None:
    """Return the entry of a folder with the first of these names that exists, or None."""
    found = {entry.name.lower(): entry for entry in reversed(list_visible(folder))}
    return next((found[name.lower()] for name in names if name.lower() in found), None)


def find_home(folder: Path, names: Iterable[str], *, should_hold: str) -> Path:
    """Return the folder that holds one of `names`: `folder` itself, or the first folder in it that does.

    Raises:
        FealError: neither does; the message says what the folder `should_hold`.
    """
    wanted = tuple(names)
    places = (folder, *(entry for entry in list_visible(folder) if entry.is_dir()))
    for place in places:
        if find_entry(place, *wanted) is not None:
            return place
    raise FealError(f"{folder} should hold {should_hold}: name the folder of the download with --from.")


def find_site_folders(place: Path, names: Mapping[str, tuple[str, ...]]) -> tuple[dict[str, Path], list[str]]:
    """Return the folder of each present site, and the absent sites; `names` are the folder names by site."""
    found = {site: find_entry(place, *folders) for site, folders in names.items()}
    return (
        {site: folder for site, folder in found.items() if folder is not None},
        [site for site, folder in found.items() if folder is None],
    )


def find_sites(
    folder: Path, names: Mapping[str, tuple[str, ...]], *, should_hold: str
) -> tuple[dict[str, Path], list[str]]:
    """Find site folders in the folder that `find_home` returns; none of them present is a `FealError`."""
    every = [name for folders in names.values() for name in folders]
    return find_site_folders(find_home(folder, every, should_hold=should_hold), names)


def list_images(folder: Path) -> list[Path]:
    """List the image files of a folder."""
    return list_by_suffix(folder, IMAGE_SUFFIXES)


def list_by_suffix(folder: Path, endings: tuple[str, ...]) -> list[Path]:
    """List the files of a folder with these suffixes."""
    return [entry for entry in list_visible(folder) if entry.name.lower().endswith(endings)]


def relative_path(path: Path, root: Path) -> str:
    """Return a file's path relative to the download's folder, with slashes, as findings name it."""
    return path.relative_to(root).as_posix()


IMAGES = ("image", "images")
MASKS = ("mask", "masks")


def pair_folder(
    folder: Path, *, site: str, root: Path, split: Split | None = None
) -> tuple[list[SourceRecord], list[Finding]]:
    """Pair the images and masks in the subfolders `image` and `mask`; see `match_masks`."""
    images, masks = find_entry(folder, *IMAGES), find_entry(folder, *MASKS)
    if images is None or masks is None:
        missing = " and ".join(
            f"'{names[0]}'" for found, names in ((images, IMAGES), (masks, MASKS)) if found is None
        )
        return [], [Finding(file=relative_path(folder, root), problem=f"has no folder {missing}")]
    return match_masks(images, masks, site=site, root=root, split=split)


def match_masks(
    images: Path, masks: Path, *, site: str, root: Path, split: Split | None = None
) -> tuple[list[SourceRecord], list[Finding]]:
    """Pair images with the masks of the same name except for the suffix; all others become findings."""
    by_image, repeated_images = index_by_stem(list_images(images), root)
    by_mask, repeated_masks = index_by_stem(list_images(masks), root)
    empty = [] if by_image else [Finding(file=relative_path(images, root), problem="holds no image")]
    coupled = [replace(record, split=split) for record in pair_by_stem(by_image, by_mask, site=site)]
    alone = find_unpaired(by_image, by_mask, images=images, masks=masks, root=root)
    return coupled, [*repeated_images, *repeated_masks, *empty, *alone]


def pair_by_stem(shown: Mapping[str, Path], drawn: Mapping[str, Path], *, site: str) -> list[SourceRecord]:
    """Pair images and masks with the same key."""
    return [
        SourceRecord(site=site, id=stem, image=shown[stem], mask=drawn[stem])
        for stem in sorted(shown.keys() & drawn.keys())
    ]


def find_unpaired(
    shown: Mapping[str, Path], drawn: Mapping[str, Path], *, images: Path, masks: Path, root: Path
) -> list[Finding]:
    """Return findings for images without a mask and masks without an image."""
    no_mask = f"has no mask in {relative_path(masks, root)}"
    no_image = f"is a mask without its image in {relative_path(images, root)}"
    return [
        *(
            Finding(file=relative_path(shown[stem], root), problem=no_mask)
            for stem in sorted(shown.keys() - drawn.keys())
        ),
        *(
            Finding(file=relative_path(drawn[stem], root), problem=no_image)
            for stem in sorted(drawn.keys() - shown.keys())
        ),
    ]


def merge_parts(
    parts: Iterable[tuple[list[SourceRecord], list[Finding]]],
) -> tuple[list[SourceRecord], list[Finding]]:
    """Concatenate the records and findings of several folders."""
    found = list(parts)
    return [record for records, _ in found for record in records], [
        one for _, findings in found for one in findings
    ]


def index_by_stem(
    paths: Iterable[Path], root: Path, *, stem: Callable[[Path], str] = lambda path: path.stem
) -> tuple[dict[str, Path], list[Finding]]:
    """Index files by stem (the first of each), with a finding for every file that shares its stem.

    `check_records` removes the first one too, since a finding names it.
    """
    same: dict[str, list[Path]] = {}
    for path in paths:
        same.setdefault(stem(path), []).append(path)
    findings = []
    for first, second, *more in (files for files in same.values() if len(files) > 1):
        for path, other in [(first, second), *((path, first) for path in (second, *more))]:
            problem = f"has the same name as {relative_path(other, root)}: keep one of them"
            findings.append(Finding(file=relative_path(path, root), problem=problem))
    return {name: files[0] for name, files in same.items()}, findings


def decode_pair(record: SourceRecord) -> tuple[NDArray[Any], NDArray[Any]]:
    """Decode an image [H, W] or [H, W, 3] and the values [H, W] of its mask.

    Raises:
        UnusableFileError: one of them cannot be read, or they differ in size.
    """
    if record.mask is None:
        raise UnusableFileError("has no mask")
    image, values = decode_image(record.image), decode_mask(record.mask)
    check_same_size(image, values, file=record.mask)
    return image, values


def to_grey(image: NDArray[Any], *, file: Path) -> NDArray[Any]:
    """Convert an image saved as three equal channels to [H, W].

    Raises:
        UnusableFileError: it has colours.
    """
    if image.ndim == 2:
        return image
    if (image != image[..., :1]).any():
        raise UnusableFileError("has colours, but should be grey", file=file)
    return image[..., 0]


def channels_first(image: NDArray[Any]) -> NDArray[Any]:
    """Convert an image [H, W] or [H, W, C] to [C, H, W]."""
    planes = image[None] if image.ndim == 2 else image.transpose(2, 0, 1)
    return np.ascontiguousarray(planes)


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """A row of a table: a sample and the file of its image."""

    site: str
    id: str
    file: str
    """The image as findings name it."""
    label: int
    group: str | None
    split: Split | None


def match_files(
    entries: Iterable[TableRow | Finding], files: Mapping[str, Path], *, sites: Sequence[str], table: str
) -> ScanResult:
    """Match the rows of a table with `files` by id; findings among the rows are kept.

    A site without any of its images is absent; elsewhere a missing image is a finding. So is an id in two rows,
    and neither becomes a record, since either may be wrong.
    """
    listed: dict[str, TableRow] = {}
    findings: list[Finding] = []
    repeated: set[str] = set()
    for entry in entries:
        if isinstance(entry, Finding):
            findings.append(entry)
        elif listed.setdefault(entry.id, entry) is not entry:
            repeated.add(entry.id)
            findings.append(Finding(file=entry.file, problem=f"has two lines in {table}"))
    present = {entry.site for entry in listed.values() if entry.id in files}
    findings += [
        Finding(file=entry.file, problem=f"is missing, but {table} lists it")
        for entry in listed.values()
        if entry.site in present and entry.id not in files
    ]
    records = [
        SourceRecord(
            site=entry.site,
            id=entry.id,
            image=files[entry.id],
            label=entry.label,
            group=entry.group,
            split=entry.split,
        )
        for entry in listed.values()
        if entry.id in files and entry.id not in repeated
    ]
    return ScanResult(records=records, findings=findings, absent=[site for site in sites if site not in present])


def read_rows(path: Path, *, columns: Sequence[str]) -> Iterator[dict[str, str]]:
    """Read the rows of a table separated by tabs, if its first line has one, or else by commas.

    Cells are stripped; missing cells are empty.

    Raises:
        FealError: it cannot be read as text, or lacks one of `columns`.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            separator = "\t" if "\t" in file.readline() else ","
            file.seek(0)
            reader = csv.DictReader(file, delimiter=separator, restval="")
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise FealError(
                    f"The table {path} has no column {', '.join(missing)}: download it again from its owners."
                )
            for line in reader:
                yield {key: cell.strip() for key, cell in line.items() if isinstance(cell, str) and key}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FealError(f"The table {path} cannot be read ({error}): download it again.") from error


def parse_whole(cell: str) -> int | None:
    """Parse a whole number, also if it was saved as a decimal fraction; None if it is none.

    >>> parse_whole("3"), parse_whole("3.0"), parse_whole("3.5"), parse_whole("")
    (3, 3, None, None)
    """
    try:
        value = float(cell)
    except ValueError:
        return None
    return int(value) if value.is_integer() else None


def parse_split(cell: str) -> Split | None:
    """Parse the name of a split; None if it is none."""
    splits: dict[str, Split] = {"train": "train", "test": "test"}
    return splits.get(cell.lower())
