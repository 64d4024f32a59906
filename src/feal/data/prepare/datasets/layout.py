"""Find the folders, files, image-mask pairs and table rows of a download; names are case-insensitive."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from feal.data.prepare import Finding, ScanResult, SourceRecord
from feal.data.prepare.base import Split, make_finding, relative_name
from feal.data.prepare.decode import IMAGE_SUFFIXES, ImageSource, strip_suffix
from feal.errors import FealError

Pairing = tuple[list[SourceRecord], list[Finding]]
"""The records and findings of a folder."""


class PairedFolders(ImageSource):
    """A segmentation data set with one folder per site; `scan_site` finds the images and masks in it."""

    task = "segmentation"
    site_folders: ClassVar[Mapping[str, tuple[str, ...]]]
    """The names that the folder of each site may have."""
    should_hold: ClassVar[str]
    """What the download should hold, for the error if it does not."""

    def scan(self, folder: Path) -> ScanResult:
        """Find the folders of the sites, and pair the files of each."""
        names = [name for names in self.site_folders.values() for name in names]
        home = find_home(folder, names, should_hold=self.should_hold)
        folders = self.find_sites(home)
        records, findings = merge(self.scan_site(site, at, folder) for site, at in folders.items())
        absent = [site for site in self.site_folders if site not in folders]
        return ScanResult(records=records, findings=findings, absent=absent)

    def find_sites(self, home: Path) -> dict[str, Path]:
        """Return the folder of each site that is present."""
        found = {site: find_entry(home, *names) for site, names in self.site_folders.items()}
        return {site: folder for site, folder in found.items() if folder is not None}

    def scan_site(self, site: str, folder: Path, root: Path) -> Pairing:
        """Pair the images and masks of one site, by default in the folders `image` and `mask`."""
        return pair_folder(folder, site=site, root=root)


def list_visible(folder: Path) -> list[Path]:
    """List a folder sorted by name, without hidden files; empty if there is no such folder."""
    if not folder.is_dir():
        return []
    shown = (entry for entry in folder.iterdir() if not entry.name.startswith("."))
    return sorted(shown, key=lambda entry: entry.name)


def list_files(folder: Path, suffixes: tuple[str, ...] = IMAGE_SUFFIXES) -> list[Path]:
    """List the files of a folder with these suffixes."""
    return [entry for entry in list_visible(folder) if entry.name.lower().endswith(suffixes)]


def find_entry(folder: Path | None, *names: str) -> Path | None:
    """Return the entry of a folder with the first of these names that exists, or None."""
    found = {entry.name.lower(): entry for entry in reversed(list_visible(folder) if folder else [])}
    return next((found[name.lower()] for name in names if name.lower() in found), None)


def find_home(folder: Path, names: Sequence[str], *, should_hold: str) -> Path:
    """Return the folder that holds one of `names`: `folder` itself, or the first folder in it that does.

    Raises:
        FealError: neither does; the message says what the folder `should_hold`.
    """
    for place in (folder, *(entry for entry in list_visible(folder) if entry.is_dir())):
        if find_entry(place, *names) is not None:
            return place
    raise FealError(f"{folder} should hold {should_hold}: name the folder of the download with --from.")


def merge(parts: Iterable[Pairing]) -> Pairing:
    """Concatenate the records and findings of several folders."""
    records, findings = [], []
    for found, problems in parts:
        records += found
        findings += problems
    return records, findings


def pair_folder(folder: Path, *, site: str, root: Path, split: Split | None = None) -> Pairing:
    """Pair the images and masks in the subfolders `image` and `mask`; see `pair_files`."""
    images, masks = find_entry(folder, "image", "images"), find_entry(folder, "mask", "masks")
    if images is None or masks is None:
        missing = [f"'{name}'" for found, name in ((images, "image"), (masks, "mask")) if found is None]
        return [], [make_finding(folder, root, f"has no folder {' and '.join(missing)}")]
    return pair_files(images, masks, site=site, root=root, split=split)


def pair_files(images: Path, masks: Path, *, site: str, root: Path, split: Split | None = None) -> Pairing:
    """Pair images with the masks of the same name except for the suffix; all others become findings."""
    by_image, repeated_images = index_by_stem(list_files(images), root)
    by_mask, repeated_masks = index_by_stem(list_files(masks), root)
    empty = [] if by_image else [make_finding(images, root, "holds no image")]
    records, unpaired = pair_by_stem(by_image, by_mask, images=images, masks=masks, site=site, root=root)
    findings = [*repeated_images, *repeated_masks, *empty, *unpaired]
    return [replace(record, split=split) for record in records], findings


def pair_by_stem(
    shown: Mapping[str, Path], drawn: Mapping[str, Path], *, images: Path, masks: Path, site: str, root: Path
) -> Pairing:
    """Pair images and masks with the same key, with findings for those that are alone."""
    records = [
        SourceRecord(site=site, id=stem, image=shown[stem], mask=drawn[stem])
        for stem in sorted(shown.keys() & drawn.keys())
    ]
    no_mask = f"has no mask in {relative_name(masks, root)}"
    no_image = f"is a mask without its image in {relative_name(images, root)}"
    findings = [make_finding(shown[stem], root, no_mask) for stem in sorted(shown.keys() - drawn.keys())]
    findings += [make_finding(drawn[stem], root, no_image) for stem in sorted(drawn.keys() - shown.keys())]
    return records, findings


def index_by_stem(
    paths: Iterable[Path], root: Path, *, ignore_case: bool = False
) -> tuple[dict[str, Path], list[Finding]]:
    """Index files by name without suffix (the first of each), with a finding for every file that shares its name.

    `check_records` removes the first one too, since a finding names it.
    """
    same: dict[str, list[Path]] = {}
    for path in paths:
        stem = strip_suffix(path)
        same.setdefault(stem.lower() if ignore_case else stem, []).append(path)
    findings = []
    for first, second, *more in (files for files in same.values() if len(files) > 1):
        for path, other in [(first, second), *((path, first) for path in (second, *more))]:
            problem = f"has the same name as {relative_name(other, root)}: keep one of them"
            findings.append(make_finding(path, root, problem))
    return {name: files[0] for name, files in same.items()}, findings


def match_files(
    rows: Iterable[SourceRecord | Finding], files: Mapping[str, Path], *, sites: Sequence[str], table: str
) -> ScanResult:
    """Match the rows of a table with `files` by id; the image of a row is where findings say that it should be.

    A site without any of its images is absent; elsewhere a missing image is a finding. So is an id in two rows,
    and neither becomes a record, since either may be wrong. Findings among the rows are kept.
    """
    listed: dict[str, SourceRecord] = {}
    findings: list[Finding] = []
    repeated: set[str] = set()
    for row in rows:
        if isinstance(row, Finding):
            findings.append(row)
        elif listed.setdefault(row.id, row) is not row:
            repeated.add(row.id)
            findings.append(Finding(file=row.image.as_posix(), problem=f"has two lines in {table}"))
    present = {row.site for row in listed.values() if row.id in files}
    records = []
    for row in listed.values():
        if row.id not in files and row.site in present:
            findings.append(Finding(file=row.image.as_posix(), problem=f"is missing, but {table} lists it"))
        elif row.id in files and row.id not in repeated:
            records.append(replace(row, image=files[row.id]))
    return ScanResult(records=records, findings=findings, absent=[site for site in sites if site not in present])
