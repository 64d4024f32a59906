"""What the tables of ISIC 2019, HAM10000 and FLamby say about each image: class, centre, lesion and side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from feal.data.preparation.contract import Finding
from feal.data.preparation.downloads.folders import named
from feal.data.preparation.downloads.listed import Listed
from feal.data.preparation.downloads.tables import lines, split_named, whole_number
from feal.errors import FealError

CLASSES = ("MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC")
SITES = ("bcn", "vidir-molemax", "vidir-modern", "rosendahl", "msk", "vienna-dias")
"""In the order of FLamby's centres 0 to 5."""
SPLIT = ("train_test_split", "train_test_split.csv", "train_test_split.tsv", "train_test_split.txt")
TRUTH = "ISIC_2019_Training_GroundTruth.csv"
METADATA = "ISIC_2019_Training_Metadata.csv"
HAM10000 = ("HAM10000_metadata", "HAM10000_metadata.csv", "HAM10000_metadata.tab")


def from_split(table: Path, place: Path, *, at: str) -> Iterator[Listed | Finding]:
    """The images of a shipped split; lesions come from the tables beside it, as far as there are any."""
    lesions = {**_lesions_of_ham10000(place), **lesions_of_isic(place)}
    for line in lines(table, columns=("image", "target", "center", "fold")):
        name, file = line["image"], f"{at}/{line['image']}.jpg"
        centre, label, split = (
            whole_number(line["center"]),
            whole_number(line["target"]),
            split_named(line["fold"]),
        )
        if label is None or not 0 <= label < len(CLASSES):
            problem = f"has the target '{line['target']}': there are 0 to {len(CLASSES) - 1}"
        elif whole_number(line.get(CLASSES[label], "1")) != 1:
            problem = f"has the target {label}, but not a 1 in the column {CLASSES[label]}"
        elif centre is None or not 0 <= centre < len(SITES):
            problem = f"is of centre '{line['center']}': there are 0 to {len(SITES) - 1}"
        elif split is None:
            problem = f"is on the side '{line['fold']}': there are train and test"
        else:
            group = lesions.get(name) or None
            yield Listed(site=SITES[centre], id=name, file=file, label=label, group=group, split=split)
            continue
        yield Finding(file=file, problem=f"{problem} (in {table.name})")


def from_truth(truth: Path, place: Path, *, at: str) -> Iterator[Listed | Finding]:
    """The images that ISIC's own tables list with a lesion, centres told as FLamby tells them."""
    lesions, sources = lesions_of_isic(place), _sources_of_ham10000(place)
    if not lesions:
        raise FealError(f"{place} has no {METADATA} that names lesions: put it there, or a train_test_split.")
    for line in lines(truth, columns=("image", *CLASSES)):
        name, file = line["image"], f"{at}/{line['image']}.jpg"
        if name not in lesions:
            yield Finding(file=file, problem=f"has no line in {METADATA}")
        elif lesions[name]:
            yield _true(line, file, lesions[name], sources)


def lesions_of_isic(place: Path) -> dict[str, str]:
    """The lesion of each image in ISIC's metadata, empty where it names none; nothing without the table."""
    table = named(place, METADATA)
    columns = ("image", "lesion_id")
    return {} if table is None else {line["image"]: line["lesion_id"] for line in lines(table, columns=columns)}


def _true(line: Mapping[str, str], file: str, lesion: str, sources: Mapping[str, str]) -> Listed | Finding:
    marked = [name for name in (*CLASSES, "UNK") if whole_number(line.get(name, "0")) == 1]
    if len(marked) != 1 or marked[0] not in CLASSES:
        named_classes = " and ".join(marked) or "none"
        return Finding(file=file, problem=f"needs one of the classes, and {TRUTH} says {named_classes}")
    of_ham10000 = lesion.startswith("HAM_")
    source = sources.get(line["image"], "").replace("_", "-") if of_ham10000 else lesion[:3].lower()
    if source not in SITES:
        return Finding(file=file, problem=f"is of the lesion {lesion}, whose centre is not known")
    label = CLASSES.index(marked[0])
    return Listed(site=source, id=line["image"], file=file, label=label, group=lesion, split=None)


def _lesions_of_ham10000(place: Path) -> dict[str, str]:
    table = named(place, *HAM10000)
    columns = ("image_id", "lesion_id")
    return {} if table is None else {line["image_id"]: line["lesion_id"] for line in lines(table, columns=columns)}


def _sources_of_ham10000(place: Path) -> dict[str, str]:
    table = named(place, *HAM10000)
    if table is None:
        raise FealError(
            f"{place} has no HAM10000_metadata, whose column 'dataset' tells the centres of HAM10000 apart: "
            "put it there (FLamby has it in flamby/datasets/fed_isic2019)."
        )
    return {line["image_id"]: line["dataset"] for line in lines(table, columns=("image_id", "dataset"))}
