"""Fed-Camelyon: patches of lymph nodes with and without tumour from five centres of Camelyon17."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray

from feal.data.prepare import Finding, ScanResult, SourceRecord, UnusableFileError
from feal.data.prepare.base import DATASET_SOURCES, relative_name
from feal.data.prepare.datasets.layout import (
    find_entry,
    find_home,
    index_by_stem,
    list_files,
    list_visible,
    match_files,
)
from feal.data.prepare.decode import ImageSource
from feal.data.prepare.image_table import parse_index, parse_split, read_table
from feal.data.resize import Fitting
from feal.errors import FealError

_SITES = tuple(f"centre-{number}" for number in range(5))
_METADATA, _PATCHES, _SPLIT, _PICKLE = "metadata.csv", "patches", "split.csv", "data.pkl"
_COLUMNS = ("patient", "node", "x_coord", "y_coord", "tumor", "center")
_SHOULD_HOLD = "metadata.csv and patches/patient_{p}_node_{n}/*.png of Camelyon17 (WILDS)"


@DATASET_SOURCES.register("fed-camelyon", summary="classification: tumour in lymph node patches of five centres")
class FedCamelyon(ImageSource):
    """Patches of 96 pixels, split by patient or by a `split.csv` beside them."""

    name = "fed-camelyon"
    task = "classification"
    classes = ("normal", "tumour")
    size = 96
    fitting: ClassVar[Fitting] = Fitting()

    def scan(self, folder: Path) -> ScanResult:
        """Match the patches with the metadata, and with the split if there is one."""
        home = find_home(folder, [_METADATA], should_hold=_SHOULD_HOLD)
        metadata, patches, listed = (find_entry(home, name) for name in (_METADATA, _PATCHES, _SPLIT))
        if metadata is None or patches is None:
            raise FealError(f"{home} should hold {_SHOULD_HOLD}, but has no folder {_PATCHES}: unpack it there.")
        paths = (path for part in list_visible(patches) for path in list_files(part))
        files, repeated = index_by_stem(paths, folder)
        splits = None if listed is None else _read_splits(listed)
        at = Path(relative_name(patches, folder))
        rows, known = [], set()
        for _, line in read_table(metadata, columns=_COLUMNS):
            name = f"patient_{line['patient']}_node_{line['node']}"
            stem = f"patch_{name}_x_{line['x_coord']}_y_{line['y_coord']}"
            if splits is None or stem in splits:
                known.add(stem)
                rows.append(
                    _parse_patch(line, at / name / f"{stem}.png", None if splits is None else splits[stem])
                )
        scan = match_files(rows, files, sites=_SITES, table=_METADATA)
        strangers = [
            Finding(
                file=relative_name(files[stem], folder) if stem in files else f"{stem}.png",
                problem=f"has no line in {_METADATA}",
            )
            for stem in sorted((files if splits is None else splits).keys() - known)
        ]
        remarks = []
        if splits is not None and (left_out := len(files.keys() - splits.keys())):
            remarks.append(f"Patches left out, since {_SPLIT} does not list them: {left_out}.")
        if splits is None and find_entry(home, _PICKLE) is not None:
            remarks.append(
                f"{_PICKLE} is not read, since a pickle can run code: for its split, write {_SPLIT} beside it "
                "with the columns image (a patch's file name) and split (train or test)."
            )
        return replace(scan, findings=[*scan.findings, *repeated, *strangers], remarks=remarks)

    def to_pixels(self, image: NDArray[Any], record: SourceRecord) -> NDArray[Any]:
        """Convert a patch that has the published size."""
        high, wide = image.shape[:2]
        if (high, wide) != (self.size, self.size):
            raise UnusableFileError(f"is {wide} x {high} pixels instead of {self.size} x {self.size}")
        return super().to_pixels(image, record)


def _parse_patch(line: Mapping[str, str], image: Path, side: str | None) -> SourceRecord | Finding:
    centre, label = parse_index(line["center"], len(_SITES)), parse_index(line["tumor"], 2)
    split = None if side is None else parse_split(side)
    if centre is None:
        problem = f"is of the centre '{line['center']}' in {_METADATA}, outside 0 to 4"
    elif label is None:
        problem = f"has the label '{line['tumor']}' in {_METADATA}, neither 0 nor 1"
    elif side is not None and split is None:
        problem = f"is in the split '{side}' in {_SPLIT}, neither train nor test"
    else:
        patient = line["patient"]
        return SourceRecord(
            site=_SITES[centre], id=image.stem, image=image, label=label, group=patient, split=split
        )
    return Finding(file=image.as_posix(), problem=problem)


def _read_splits(path: Path) -> dict[str, str]:
    """Read the split of each patch by file name; two that differ are joined to a name that is no split."""
    sides: dict[str, str] = {}
    for _, line in read_table(path, columns=("image", "split")):
        stem, side = Path(line["image"]).stem, line["split"]
        sides[stem] = side if sides.get(stem, side) == side else f"{sides[stem]} and {side}"
    return sides
