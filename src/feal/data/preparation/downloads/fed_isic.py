"""Fed-ISIC: eight kinds of skin lesion in dermoscopic images of six centres, raw or preprocessed by FLamby."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from feal.data.fitting import Fitting
from feal.data.preparation.contract import Download, Draft, Finding, Piece, Scan
from feal.data.preparation.decoding import colour, picture
from feal.data.preparation.downloads.drafts import by_stem, channels_first
from feal.data.preparation.downloads.folders import home, named, pictures, relative
from feal.data.preparation.downloads.isic_tables import (
    CLASSES,
    METADATA,
    SITES,
    SPLIT,
    TRUTH,
    from_split,
    from_truth,
    lesions_of_isic,
)
from feal.data.preparation.downloads.listed import located
from feal.data.preparation.downloads.tables import lines
from feal.data.preparation.registry import DOWNLOADS
from feal.errors import FealError

RAW = "ISIC_2019_Training_Input"
PREPROCESSED = "ISIC_2019_Training_Input_preprocessed"
DOWNSAMPLED = "_downsampled"


@DOWNLOADS.register("fed-isic", summary="classification: eight kinds of skin lesion at up to six centres")
class FedIsic(Download):
    """Short side to 224 pixels and colour constancy, as FLamby does or has done it; then the middle square."""

    name = "fed-isic"
    task = "classification"
    classes = CLASSES
    size = 224
    fitting: ClassVar[Fitting] = Fitting(shape="centre", colour="constant")

    def scan(self, folder: Path) -> Scan:
        should_hold = (
            f"{RAW} with {TRUTH}, {METADATA} and HAM10000_metadata, "
            f"or FLamby's {PREPROCESSED} with its train_test_split"
        )
        place = home(folder, [PREPROCESSED, RAW], should_hold=should_hold)
        images, split = named(place, PREPROCESSED, RAW), named(place, *SPLIT)
        table = split or named(place, TRUTH)
        if images is None or table is None:
            raise FealError(f"{place} should hold {should_hold}, but has no table of classes: put it there.")
        found, repeated = by_stem(pictures(images), folder)
        at, files = relative(images, folder), _also_without_ending(found)
        scan = (_unsplit if split is None else _split)(table, place, files, at=at)
        chosen = [] if named(place, RAW) in (None, images) else [f"{PREPROCESSED} is read, and {RAW} is not."]
        return replace(scan, findings=[*repeated, *scan.findings], remarks=[*chosen, *scan.remarks])

    def read(self, draft: Draft, *, size: int) -> Sequence[Piece]:
        done = draft.image.parent.name.lower() == PREPROCESSED.lower()
        fitting = Fitting(shape=self.fitting.shape) if done else self.fitting
        square = fitting.image(colour(picture(draft.image)), size, size)
        return [Piece(id=draft.id, image=channels_first(square), truth=draft.label)]


def _also_without_ending(found: dict[str, Path]) -> dict[str, Path]:
    """The images by name; those of MSK also without their ending `_downsampled`, which some tables leave out."""
    return {stem.removesuffix(DOWNSAMPLED): path for stem, path in found.items()} | found


def _unsplit(truth: Path, place: Path, files: dict[str, Path], *, at: str) -> Scan:
    scan = located(from_truth(truth, place, at=at), files, sites=SITES, table=TRUTH)
    without_lesion = {name for name, lesion in lesions_of_isic(place).items() if not lesion}
    known = {files[name] for line in lines(truth, columns=("image",)) if (name := line["image"]) in files}
    strangers = [
        Finding(file=f"{at}/{path.name}", problem=f"has no line in {TRUTH}")
        for path in sorted(set(files.values()) - known)
    ]
    remarks = [f"Images without a lesion_id, left out as FLamby does: {len(without_lesion)}."]
    return replace(scan, findings=[*scan.findings, *strangers], remarks=remarks if without_lesion else ())


def _split(table: Path, place: Path, files: dict[str, Path], *, at: str) -> Scan:
    scan = located(from_split(table, place, at=at), files, sites=SITES, table=table.name)
    remarks = []
    left_out = len(set(files.values()) - {draft.image for draft in scan.drafts})
    if left_out:
        remarks.append(f"Images left out, since {table.name} does not list them, or not rightly: {left_out}.")
    ungrouped = sum(draft.group is None for draft in scan.drafts)
    if ungrouped:
        remarks.append(f"Images of no known lesion, since no table here names it: {ungrouped}.")
    return replace(scan, remarks=remarks)
