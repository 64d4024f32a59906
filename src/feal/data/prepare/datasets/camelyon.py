"""Fed-Camelyon: patches of lymph nodes with and without tumour from five centres of Camelyon17."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from feal.data.prepare.base import (
    DATASET_SOURCES,
    DatasetSource,
    DecodedSample,
    Finding,
    ScanResult,
    SourceRecord,
    Split,
    UnusableFileError,
)
from feal.data.prepare.datasets.layout import (
    TableRow,
    channels_first,
    find_entry,
    find_home,
    index_by_stem,
    list_images,
    list_visible,
    match_files,
    parse_split,
    parse_whole,
    read_rows,
    relative_path,
)
from feal.data.prepare.decode import decode_image, to_rgb
from feal.data.resize import Fitting
from feal.errors import FealError

SITES = tuple(f"centre-{number}" for number in range(5))
METADATA, PATCHES, SPLIT, PICKLE = "metadata.csv", "patches", "split.csv", "data.pkl"
COLUMNS = ("patient", "node", "x_coord", "y_coord", "tumor", "center")


@DATASET_SOURCES.register("fed-camelyon", summary="classification: tumour in lymph node patches of five centres")
class FedCamelyon(DatasetSource):
    """Patches of 96 pixels, split by patient or by a `split.csv` beside them."""

    name = "fed-camelyon"
    task = "classification"
    classes = ("normal", "tumour")
    size = 96
    fitting: ClassVar[Fitting] = Fitting()

    def scan(self, folder: Path) -> ScanResult:
        should_hold = "metadata.csv and patches/patient_{p}_node_{n}/*.png of Camelyon17 (WILDS)"
        place = find_home(folder, [METADATA], should_hold=should_hold)
        metadata, patches, listed = (find_entry(place, name) for name in (METADATA, PATCHES, SPLIT))
        if metadata is None or patches is None:
            raise FealError(f"{place} should hold {should_hold}, but has no folder {PATCHES}: unpack it there.")
        paths = (path for part in list_visible(patches) for path in list_images(part))
        files, repeated = index_by_stem(paths, folder)
        splits = None if listed is None else _read_splits(listed)
        entries = list(_read_patches(metadata, splits, at=relative_path(patches, folder)))
        scan = match_files(entries, files, sites=SITES, table=METADATA)
        known = {Path(entry.file).stem for entry in entries}
        strangers = [
            Finding(
                file=relative_path(files[stem], folder) if stem in files else f"{stem}.png",
                problem=f"has no line in {METADATA}",
            )
            for stem in sorted((files if splits is None else splits).keys() - known)
        ]
        return replace(
            scan, findings=[*scan.findings, *repeated, *strangers], remarks=_make_remarks(place, files, splits)
        )

    def read(self, record: SourceRecord, *, size: int) -> Sequence[DecodedSample]:
        patch = to_rgb(decode_image(record.image))
        high, wide = patch.shape[:2]
        if (high, wide) != (self.size, self.size):
            raise UnusableFileError(f"is {wide} x {high} pixels instead of {self.size} x {self.size}")
        small = self.fitting.fit_image(patch, size, size)
        return [DecodedSample(id=record.id, image=channels_first(small), label=record.label)]


def _read_patches(metadata: Path, splits: Mapping[str, str] | None, *, at: str) -> Iterator[TableRow | Finding]:
    """Yield the patches that `metadata.csv` lists, except those that a split leaves out."""
    for line in read_rows(metadata, columns=COLUMNS):
        stem = _name_patch(line)
        if splits is None or stem in splits:
            file = f"{at}/patient_{line['patient']}_node_{line['node']}/{stem}.png"
            yield _parse_patch(line, file, None if splits is None else splits[stem])


def _parse_patch(line: Mapping[str, str], file: str, side: str | None) -> TableRow | Finding:
    centre, label = parse_whole(line["center"]), parse_whole(line["tumor"])
    if centre is None or not 0 <= centre < len(SITES):
        return Finding(file=file, problem=f"is of the centre '{line['center']}' in {METADATA}, outside 0 to 4")
    if label not in (0, 1):
        return Finding(file=file, problem=f"has the label '{line['tumor']}' in {METADATA}, neither 0 nor 1")
    split: Split | None = None
    if side is not None:
        split = parse_split(side)
        if split is None:
            return Finding(file=file, problem=f"is in the split '{side}' in {SPLIT}, neither train nor test")
    return TableRow(
        site=SITES[centre], id=_name_patch(line), file=file, label=label, group=line["patient"], split=split
    )


def _name_patch(line: Mapping[str, str]) -> str:
    return f"patch_patient_{line['patient']}_node_{line['node']}_x_{line['x_coord']}_y_{line['y_coord']}"


def _read_splits(path: Path) -> dict[str, str]:
    """Read the split of each patch by file name; two that differ are joined to a name that is no split."""
    sides: dict[str, str] = {}
    for line in read_rows(path, columns=("image", "split")):
        stem, side = Path(line["image"]).stem, line["split"]
        sides[stem] = side if sides.get(stem, side) == side else f"{sides[stem]} and {side}"
    return sides


def _make_remarks(place: Path, files: Mapping[str, Path], splits: Mapping[str, str] | None) -> list[str]:
    remarks = []
    if splits is not None and (left_out := len(files.keys() - splits.keys())):
        remarks.append(f"Patches left out, since {SPLIT} does not list them: {left_out}.")
    if splits is None and find_entry(place, PICKLE) is not None:
        remarks.append(
            f"{PICKLE} is not read, since a pickle can run code: for its split, write {SPLIT} beside it with the "
            "columns image (a patch's file name) and split (train or test)."
        )
    return remarks
