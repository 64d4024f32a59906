"""Fed-Camelyon: patches of lymph nodes with and without tumour from five centres of Camelyon17."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from feal.data.fitting import Fitting
from feal.data.preparation.contract import Download, Draft, Finding, Piece, Scan, Split, UnfitError
from feal.data.preparation.decoding import colour, picture
from feal.data.preparation.downloads.drafts import by_stem, channels_first
from feal.data.preparation.downloads.folders import home, named, pictures, relative, visible
from feal.data.preparation.downloads.listed import Listed, located
from feal.data.preparation.downloads.tables import lines, split_named, whole_number
from feal.data.preparation.registry import DOWNLOADS
from feal.errors import FealError

SITES = tuple(f"centre-{number}" for number in range(5))
METADATA, PATCHES, SPLIT, PICKLE = "metadata.csv", "patches", "split.csv", "data.pkl"
COLUMNS = ("patient", "node", "x_coord", "y_coord", "tumor", "center")


@DOWNLOADS.register("fed-camelyon", summary="classification: tumour in lymph node patches of five centres")
class FedCamelyon(Download):
    """Patches of 96 pixels as they are, split by patient or as a `split.csv` beside them says."""

    name = "fed-camelyon"
    task = "classification"
    classes = ("normal", "tumour")
    size = 96
    fitting: ClassVar[Fitting] = Fitting()

    def scan(self, folder: Path) -> Scan:
        should_hold = "metadata.csv and patches/patient_{p}_node_{n}/*.png of Camelyon17 (WILDS)"
        place = home(folder, [METADATA], should_hold=should_hold)
        metadata, patches, listed = (named(place, name) for name in (METADATA, PATCHES, SPLIT))
        if metadata is None or patches is None:
            raise FealError(f"{place} should hold {should_hold}, but has no folder {PATCHES}: unpack it there.")
        paths = (path for part in visible(patches) for path in pictures(part))
        files, repeated = by_stem(paths, folder)
        splits = None if listed is None else _splits(listed)
        entries = list(_entries(metadata, splits, at=relative(patches, folder)))
        scan = located(entries, files, sites=SITES, table=METADATA)
        known = {Path(entry.file).stem for entry in entries}
        strangers = [
            Finding(
                file=relative(files[stem], folder) if stem in files else f"{stem}.png",
                problem=f"has no line in {METADATA}",
            )
            for stem in sorted((files if splits is None else splits).keys() - known)
        ]
        return replace(
            scan, findings=[*scan.findings, *repeated, *strangers], remarks=_remarks(place, files, splits)
        )

    def read(self, draft: Draft, *, size: int) -> Sequence[Piece]:
        patch = colour(picture(draft.image))
        high, wide = patch.shape[:2]
        if (high, wide) != (self.size, self.size):
            raise UnfitError(f"is {wide} x {high} pixels, but patches have {self.size} x {self.size}")
        small = self.fitting.image(patch, size, size)
        return [Piece(id=draft.id, image=channels_first(small), truth=draft.label)]


def _entries(metadata: Path, splits: Mapping[str, str] | None, *, at: str) -> Iterator[Listed | Finding]:
    """The patches that `metadata.csv` lists, without those that a given split leaves out."""
    for line in lines(metadata, columns=COLUMNS):
        stem = _stem(line)
        if splits is None or stem in splits:
            file = f"{at}/patient_{line['patient']}_node_{line['node']}/{stem}.png"
            yield _entry(line, file, None if splits is None else splits[stem])


def _entry(line: Mapping[str, str], file: str, side: str | None) -> Listed | Finding:
    centre, label = whole_number(line["center"]), whole_number(line["tumor"])
    if centre is None or not 0 <= centre < len(SITES):
        return Finding(file=file, problem=f"is of centre '{line['center']}' in {METADATA}: there are 0 to 4")
    if label not in (0, 1):
        return Finding(file=file, problem=f"has the label '{line['tumor']}' in {METADATA}: there are 0 and 1")
    split: Split | None = None
    if side is not None:
        split = split_named(side)
        if split is None:
            return Finding(file=file, problem=f"is on the side '{side}' in {SPLIT}: there are train and test")
    return Listed(site=SITES[centre], id=_stem(line), file=file, label=label, group=line["patient"], split=split)


def _stem(line: Mapping[str, str]) -> str:
    return f"patch_patient_{line['patient']}_node_{line['node']}_x_{line['x_coord']}_y_{line['y_coord']}"


def _splits(path: Path) -> dict[str, str]:
    """The side of each patch, by the name of its file; two that differ are given as one that does not exist."""
    sides: dict[str, str] = {}
    for line in lines(path, columns=("image", "split")):
        stem, side = Path(line["image"]).stem, line["split"]
        sides[stem] = side if sides.get(stem, side) == side else f"{sides[stem]} and {side}"
    return sides


def _remarks(place: Path, files: Mapping[str, Path], splits: Mapping[str, str] | None) -> list[str]:
    remarks = []
    if splits is not None and (left_out := len(files.keys() - splits.keys())):
        remarks.append(f"Patches left out, since {SPLIT} does not list them: {left_out}.")
    if splits is None and named(place, PICKLE) is not None:
        remarks.append(
            f"{PICKLE} is not read, since a pickle can run code: for its split, write {SPLIT} beside it with the "
            "columns image (a patch's file name) and split (train or test)."
        )
    return remarks
