"""Fed-ISIC: skin lesions of eight classes at six centres, from ISIC 2019 with HAM10000 or from FLamby."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from feal.data.prepare.base import DATASET_SOURCES, DatasetSource, DecodedSample, Finding, ScanResult, SourceRecord
from feal.data.prepare.datasets.layout import (
    TableRow,
    channels_first,
    find_entry,
    find_home,
    index_by_stem,
    list_images,
    match_files,
    parse_split,
    parse_whole,
    read_rows,
    relative_path,
)
from feal.data.prepare.decode import decode_image, to_rgb
from feal.data.resize import Fitting
from feal.errors import FealError

CLASSES = ("MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC")
SITES = ("bcn", "vidir-molemax", "vidir-modern", "rosendahl", "msk", "vienna-dias")
"""The sites in the order of FLamby's centres 0 to 5."""
SPLIT = ("train_test_split", "train_test_split.csv", "train_test_split.tsv", "train_test_split.txt")
GROUND_TRUTH = "ISIC_2019_Training_GroundTruth.csv"
METADATA = "ISIC_2019_Training_Metadata.csv"
HAM10000 = ("HAM10000_metadata", "HAM10000_metadata.csv", "HAM10000_metadata.tab")


def read_split_table(table: Path, place: Path, *, at: str) -> Iterator[TableRow | Finding]:
    """Read the images of FLamby's split; lesions come from other tables if present."""
    lesions = {**_read_ham10000_lesions(place), **read_isic_lesions(place)}
    for line in read_rows(table, columns=("image", "target", "center", "fold")):
        name, file = line["image"], f"{at}/{line['image']}.jpg"
        centre, label, split = (
            parse_whole(line["center"]),
            parse_whole(line["target"]),
            parse_split(line["fold"]),
        )
        if label is None or not 0 <= label < len(CLASSES):
            problem = f"has the target '{line['target']}' outside 0 to {len(CLASSES) - 1}"
        elif parse_whole(line.get(CLASSES[label], "1")) != 1:
            problem = f"has the target {label}, but no 1 in the column {CLASSES[label]}"
        elif centre is None or not 0 <= centre < len(SITES):
            problem = f"is of the centre '{line['center']}' outside 0 to {len(SITES) - 1}"
        elif split is None:
            problem = f"is in the split '{line['fold']}', neither train nor test"
        else:
            group = lesions.get(name) or None
            yield TableRow(site=SITES[centre], id=name, file=file, label=label, group=group, split=split)
            continue
        yield Finding(file=file, problem=f"{problem} (in {table.name})")


def read_isic_tables(truth: Path, place: Path, *, at: str) -> Iterator[TableRow | Finding]:
    """Read the images that ISIC's own tables list with a lesion; centres are derived as in FLamby."""
    lesions, sources = read_isic_lesions(place), _read_ham10000_sources(place)
    if not lesions:
        raise FealError(f"{place} has no {METADATA} that names lesions: put it there, or a train_test_split.")
    for line in read_rows(truth, columns=("image", *CLASSES)):
        name, file = line["image"], f"{at}/{line['image']}.jpg"
        if name not in lesions:
            yield Finding(file=file, problem=f"has no line in {METADATA}")
        elif lesions[name]:
            yield _parse_ground_truth(line, file, lesions[name], sources)


def read_isic_lesions(place: Path) -> dict[str, str]:
    """Return the lesion of each image in ISIC's metadata, empty if it names none; nothing without the table."""
    table = find_entry(place, METADATA)
    columns = ("image", "lesion_id")
    return (
        {} if table is None else {line["image"]: line["lesion_id"] for line in read_rows(table, columns=columns)}
    )


def _parse_ground_truth(
    line: Mapping[str, str], file: str, lesion: str, sources: Mapping[str, str]
) -> TableRow | Finding:
    marked = [name for name in (*CLASSES, "UNK") if parse_whole(line.get(name, "0")) == 1]
    if len(marked) != 1 or marked[0] not in CLASSES:
        named_classes = " and ".join(marked) or "none"
        return Finding(file=file, problem=f"needs exactly one class, but {GROUND_TRUTH} marks {named_classes}")
    of_ham10000 = lesion.startswith("HAM_")
    source = sources.get(line["image"], "").replace("_", "-") if of_ham10000 else lesion[:3].lower()
    if source not in SITES:
        return Finding(file=file, problem=f"is of the lesion {lesion}, whose centre is unknown")
    label = CLASSES.index(marked[0])
    return TableRow(site=source, id=line["image"], file=file, label=label, group=lesion, split=None)


def _read_ham10000_lesions(place: Path) -> dict[str, str]:
    table = find_entry(place, *HAM10000)
    columns = ("image_id", "lesion_id")
    return (
        {}
        if table is None
        else {line["image_id"]: line["lesion_id"] for line in read_rows(table, columns=columns)}
    )


def _read_ham10000_sources(place: Path) -> dict[str, str]:
    table = find_entry(place, *HAM10000)
    if table is None:
        raise FealError(
            f"{place} has no HAM10000_metadata, whose column 'dataset' names the centres of HAM10000: "
            "put it there (FLamby has it in flamby/datasets/fed_isic2019)."
        )
    return {line["image_id"]: line["dataset"] for line in read_rows(table, columns=("image_id", "dataset"))}


RAW = "ISIC_2019_Training_Input"
PREPROCESSED = "ISIC_2019_Training_Input_preprocessed"
DOWNSAMPLED = "_downsampled"


@DATASET_SOURCES.register("fed-isic", summary="classification: eight kinds of skin lesion at up to six centres")
class FedIsic(DatasetSource):
    """Short side resized to 224 pixels and colour constancy as in FLamby, then the central square."""

    name = "fed-isic"
    task = "classification"
    classes = CLASSES
    size = 224
    fitting: ClassVar[Fitting] = Fitting(shape="centre", colour="constant")

    def scan(self, folder: Path) -> ScanResult:
        should_hold = (
            f"{RAW} with {GROUND_TRUTH}, {METADATA} and HAM10000_metadata, "
            f"or FLamby's {PREPROCESSED} with its train_test_split"
        )
        place = find_home(folder, [PREPROCESSED, RAW], should_hold=should_hold)
        images, split = find_entry(place, PREPROCESSED, RAW), find_entry(place, *SPLIT)
        table = split or find_entry(place, GROUND_TRUTH)
        if images is None or table is None:
            raise FealError(f"{place} should hold {should_hold}, but has no table of classes: put it there.")
        found, repeated = index_by_stem(list_images(images), folder)
        at, files = relative_path(images, folder), _add_short_names(found)
        scan = (_scan_isic if split is None else _scan_flamby)(table, place, files, at=at)
        chosen = [] if find_entry(place, RAW) in (None, images) else [f"{PREPROCESSED} is read, and {RAW} is not."]
        return replace(scan, findings=[*repeated, *scan.findings], remarks=[*chosen, *scan.remarks])

    def read(self, record: SourceRecord, *, size: int) -> Sequence[DecodedSample]:
        done = record.image.parent.name.lower() == PREPROCESSED.lower()
        fitting = Fitting(shape=self.fitting.shape) if done else self.fitting
        square = fitting.fit_image(to_rgb(decode_image(record.image)), size, size)
        return [DecodedSample(id=record.id, image=channels_first(square), label=record.label)]


def _add_short_names(found: dict[str, Path]) -> dict[str, Path]:
    """Add the images of MSK without their suffix `_downsampled`, which some tables omit."""
    return {stem.removesuffix(DOWNSAMPLED): path for stem, path in found.items()} | found


def _scan_isic(truth: Path, place: Path, files: dict[str, Path], *, at: str) -> ScanResult:
    scan = match_files(read_isic_tables(truth, place, at=at), files, sites=SITES, table=GROUND_TRUTH)
    without_lesion = {name for name, lesion in read_isic_lesions(place).items() if not lesion}
    known = {files[name] for line in read_rows(truth, columns=("image",)) if (name := line["image"]) in files}
    strangers = [
        Finding(file=f"{at}/{path.name}", problem=f"has no line in {GROUND_TRUTH}")
        for path in sorted(set(files.values()) - known)
    ]
    remarks = [f"Images without a lesion_id, left out as FLamby does: {len(without_lesion)}."]
    return replace(scan, findings=[*scan.findings, *strangers], remarks=remarks if without_lesion else ())


def _scan_flamby(table: Path, place: Path, files: dict[str, Path], *, at: str) -> ScanResult:
    scan = match_files(read_split_table(table, place, at=at), files, sites=SITES, table=table.name)
    remarks = []
    left_out = len(set(files.values()) - {record.image for record in scan.records})
    if left_out:
        remarks.append(f"Images left out, since {table.name} does not list them, or not rightly: {left_out}.")
    ungrouped = sum(record.group is None for record in scan.records)
    if ungrouped:
        remarks.append(f"Images of no known lesion, since no table here names it: {ungrouped}.")
    return replace(scan, remarks=remarks)
