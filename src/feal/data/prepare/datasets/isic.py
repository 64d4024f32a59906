"""Fed-ISIC: skin lesions of eight classes at six centres, from ISIC 2019 with HAM10000 or from FLamby."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from feal.data.prepare import DecodedSample, Finding, ScanResult, SourceRecord
from feal.data.prepare.base import DATASET_SOURCES, relative_name
from feal.data.prepare.datasets.layout import find_entry, find_home, index_by_stem, list_files, match_files
from feal.data.prepare.decode import ImageSource, fit_sample
from feal.data.prepare.image_table import parse_index, parse_split, parse_whole, read_table
from feal.data.resize import Fitting
from feal.errors import FealError

RAW = "ISIC_2019_Training_Input"
PREPROCESSED = "ISIC_2019_Training_Input_preprocessed"

_CLASSES = ("MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC")
_SITES = ("bcn", "vidir-molemax", "vidir-modern", "rosendahl", "msk", "vienna-dias")
"""The sites in the order of FLamby's centres 0 to 5."""
_SPLIT = ("train_test_split", "train_test_split.csv", "train_test_split.tsv", "train_test_split.txt")
_GROUND_TRUTH = "ISIC_2019_Training_GroundTruth.csv"
_METADATA = "ISIC_2019_Training_Metadata.csv"
_HAM10000 = ("HAM10000_metadata", "HAM10000_metadata.csv", "HAM10000_metadata.tab")
_SHOULD_HOLD = (
    f"{RAW} with {_GROUND_TRUTH}, {_METADATA} and HAM10000_metadata, "
    f"or FLamby's {PREPROCESSED} with its train_test_split"
)


@DATASET_SOURCES.register("fed-isic", summary="classification: eight kinds of skin lesion at up to six centres")
class FedIsic(ImageSource):
    """Short side resized to 224 pixels and colour constancy as in FLamby, then the central square with a margin.

    The margin holds what a rotation by up to 10 degrees brings into the square: (cos 10 + sin 10 - 1) / 2 < 0.08
    of its side beyond each edge. A crop of the centre afterwards is the crop of the whole image, rotated with a
    reflected border, as in the authors' code.
    """

    name = "fed-isic"
    task = "classification"
    classes = _CLASSES
    size = 224
    version = 2
    fitting: ClassVar[Fitting] = Fitting(shape="centre", colour="constant", margin=0.08)

    def scan(self, folder: Path) -> ScanResult:
        """Match the images with FLamby's split, or with the tables of ISIC if it is not there."""
        home = find_home(folder, [PREPROCESSED, RAW], should_hold=_SHOULD_HOLD)
        images, split = find_entry(home, PREPROCESSED, RAW), find_entry(home, *_SPLIT)
        table = split or find_entry(home, _GROUND_TRUTH)
        if images is None or table is None:
            raise FealError(f"{home} should hold {_SHOULD_HOLD}, but has no table of classes: put it there.")
        found, repeated = index_by_stem(list_files(images), folder)
        # Some tables omit the suffix of the images of MSK.
        files = {stem.removesuffix("_downsampled"): path for stem, path in found.items()} | found
        at = Path(relative_name(images, folder))
        scan = (_scan_isic if split is None else _scan_flamby)(table, home, files, at)
        chosen = [] if find_entry(home, RAW) in (None, images) else [f"{PREPROCESSED} is read, and {RAW} is not."]
        return replace(scan, findings=[*repeated, *scan.findings], remarks=[*chosen, *scan.remarks])

    def read(self, record: SourceRecord, *, size: int) -> Sequence[DecodedSample]:
        """Decode and crop an image; FLamby's are preprocessed already."""
        is_done = record.image.parent.name.lower() == PREPROCESSED.lower()
        fitting = self.fitting.model_copy(update={"colour": None}) if is_done else self.fitting
        return [fit_sample(*sample, fitting=fitting, size=size) for sample in self.decode(record)]


def _scan_flamby(table: Path, home: Path, files: Mapping[str, Path], at: Path) -> ScanResult:
    scan = match_files(_read_split(table, home, at), files, sites=_SITES, table=table.name)
    remarks = []
    left_out = len(set(files.values()) - {record.image for record in scan.records})
    if left_out:
        remarks.append(f"Images left out, since {table.name} does not list them, or not rightly: {left_out}.")
    ungrouped = sum(record.group is None for record in scan.records)
    if ungrouped:
        remarks.append(f"Images of no known lesion, since no table here names it: {ungrouped}.")
    return replace(scan, remarks=remarks)


def _read_split(table: Path, home: Path, at: Path) -> Iterator[SourceRecord | Finding]:
    """Read the images of FLamby's split; lesions come from other tables if present."""
    ham10000 = _read_column(find_entry(home, *_HAM10000), "image_id", "lesion_id")
    lesions = ham10000 | _read_column(find_entry(home, _METADATA), "image", "lesion_id")
    for _, line in read_table(table, columns=("image", "target", "center", "fold")):
        name, image = line["image"], at / f"{line['image']}.jpg"
        label, centre = parse_index(line["target"], len(_CLASSES)), parse_index(line["center"], len(_SITES))
        split = parse_split(line["fold"])
        if label is None:
            problem = f"has the target '{line['target']}' outside 0 to {len(_CLASSES) - 1}"
        elif parse_whole(line.get(_CLASSES[label].lower(), "1")) != 1:
            problem = f"has the target {label}, but no 1 in the column {_CLASSES[label]}"
        elif centre is None:
            problem = f"is of the centre '{line['center']}' outside 0 to {len(_SITES) - 1}"
        elif split is None:
            problem = f"is in the split '{line['fold']}', neither train nor test"
        else:
            group = lesions.get(name) or None
            yield SourceRecord(site=_SITES[centre], id=name, image=image, label=label, group=group, split=split)
            continue
        yield Finding(file=image.as_posix(), problem=f"{problem} (in {table.name})")


def _scan_isic(truth: Path, home: Path, files: Mapping[str, Path], at: Path) -> ScanResult:
    ham10000 = find_entry(home, *_HAM10000)
    if ham10000 is None:
        raise FealError(
            f"{home} has no HAM10000_metadata, whose column 'dataset' names the centres of HAM10000: "
            "put it there (FLamby has it in flamby/datasets/fed_isic2019)."
        )
    sources = _read_column(ham10000, "image_id", "dataset")
    lesions = _read_column(find_entry(home, _METADATA), "image", "lesion_id")
    if not lesions:
        raise FealError(f"{home} has no {_METADATA} that names lesions: put it there, or a train_test_split.")
    lines = [line for _, line in read_table(truth, columns=("image", *_CLASSES))]
    # Images without a lesion are left out.
    rows = [_parse_truth(line, lesions, sources, at) for line in lines if lesions.get(line["image"]) != ""]
    scan = match_files(rows, files, sites=_SITES, table=_GROUND_TRUTH)
    known = {files[line["image"]] for line in lines if line["image"] in files}
    strangers = [
        Finding(file=f"{at.as_posix()}/{path.name}", problem=f"has no line in {_GROUND_TRUTH}")
        for path in sorted(set(files.values()) - known)
    ]
    without = sum(not lesion for lesion in lesions.values())
    remarks = [f"Images without a lesion_id, left out as FLamby does: {without}."] if without else []
    return replace(scan, findings=[*scan.findings, *strangers], remarks=remarks)


def _parse_truth(
    line: Mapping[str, str], lesions: Mapping[str, str], sources: Mapping[str, str], at: Path
) -> SourceRecord | Finding:
    """Parse a row of ISIC's ground truth; the centre is derived from the lesion as in FLamby."""
    name, image = line["image"], at / f"{line['image']}.jpg"
    lesion = lesions.get(name)
    if lesion is None:
        return Finding(file=image.as_posix(), problem=f"has no line in {_METADATA}")
    marked = [kind for kind in (*_CLASSES, "UNK") if parse_whole(line.get(kind.lower(), "0")) == 1]
    if len(marked) != 1 or marked[0] not in _CLASSES:
        problem = f"needs exactly one class, but {_GROUND_TRUTH} marks {' and '.join(marked) or 'none'}"
        return Finding(file=image.as_posix(), problem=problem)
    site = sources.get(name, "").replace("_", "-") if lesion.startswith("HAM_") else lesion[:3].lower()
    if site not in _SITES:
        return Finding(file=image.as_posix(), problem=f"is of the lesion {lesion}, whose centre is unknown")
    return SourceRecord(site=site, id=name, image=image, label=_CLASSES.index(marked[0]), group=lesion)


def _read_column(table: Path | None, key: str, column: str) -> dict[str, str]:
    """Read one column of a table, by the name of the image; nothing without the table."""
    if table is None:
        return {}
    return {line[key]: line[column] for _, line in read_table(table, columns=(key, column))}
