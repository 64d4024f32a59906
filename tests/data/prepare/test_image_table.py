"""Pictures of one's own by a table, and every mistake in it."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from feal.data import open_labels
from feal.data.prepare.image_folder import open_image_folder
from feal.errors import FealError
from feal.settings import Task
from tests.data.prepare.own_set import findings_in, prepared_own, save


def _table(root: Path, rows: Sequence[Mapping[str, object]], *, delimiter: str = ",") -> None:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with (root / "mine.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


def _rows(root: Path, count: int = 10) -> list[dict[str, object]]:
    for number in range(count):
        save(root / f"{number}.png", number)
    return [
        {"site": "alder", "image": f"{number}.png", "label": number % 2, "patient": f"p{number // 2}", "split": ""}
        for number in range(count)
    ]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_table(root: Path, delimiter: str) -> None:
    _table(root, _rows(root), delimiter=delimiter)
    data = prepared_own(root, "classification")
    site = data.site("alder")
    assert data.classes == ("0", "1")
    assert site.patients().tolist() == [f"p{number // 2}" for number in range(10)]
    assert site.patients("test").tolist() in [[f"p{number}"] * 2 for number in range(5)]
    assert data.manifest.source["split"] == {"alder": "8:2 by patient"}


def test_mistakes_in_a_table(root: Path) -> None:
    rows = _rows(root)
    for row in rows:
        row["split"] = "test" if row["patient"] == "p4" else "train"
    rows[1]["split"] = "test"  # p0 is on both sides
    rows[2]["image"] = "gone.png"
    rows[3]["label"] = "7"
    rows[4]["split"] = "validation"
    rows[5]["site"] = ""
    rows[8]["label"] = ""
    rows.append(rows[9])
    _table(root, rows)
    assert findings_in(root, "classification", classes=["benign", "malignant"]) == {
        "0.png": "is of patient p0, who is in both splits",
        "1.png": "is of patient p0, who is in both splits",
        "gone.png": "is missing",
        "3.png": "has the label '7', which is none of benign, malignant",
        "mine.csv line 6": "has the split 'validation': use train, test or leave it empty",
        "mine.csv line 7": "names no site",
        "8.png": "is in the test split and has no label or mask",
        "9.png": "has the id '9', which another file of site alder has too",
    }
    assert _prepared_ids(root) == ["6", "7"]


def _prepared_ids(root: Path) -> list[str]:
    data = prepared_own(root, "classification", classes=["benign", "malignant"], skip_bad=True)
    ids: list[str] = data.site("alder").ids().tolist()
    return ids


def test_tables_that_cannot_be_used(root: Path, tmp_path: Path) -> None:
    rows = _rows(root)
    _table(root, rows)
    (tmp_path / "other.csv").write_text("hospital,file\n")
    with pytest.raises(FealError, match=r"other.csv has no column site and image"):
        open_image_folder(root, task="classification", name="mine", table=tmp_path / "other.csv")
    (tmp_path / "other.csv").write_bytes(b"site,image\n\xff\xfe,a\n")
    with pytest.raises(FealError, match=r"cannot be read .*UTF-8"):
        open_image_folder(root, task="classification", name="mine", table=tmp_path / "other.csv")
    (root / "second.csv").write_text("site,image\n")
    with pytest.raises(FealError, match="holds 2 tables of images: choose one by --csv"):
        open_image_folder(root, task="classification", name="mine")


@pytest.mark.parametrize(
    ("image", "problem"),
    [
        (".", "names a folder instead of an image (.)"),
        ("/", "names a folder instead of an image (/)"),
        ("a\0.png", "has a character that cannot be printed"),
    ],
)
def test_a_line_whose_image_is_no_file(root: Path, image: str, problem: str) -> None:
    rows = _rows(root)
    rows[4]["image"] = image
    _table(root, rows)
    assert findings_in(root, "classification") == {"mine.csv line 6": problem}


def test_a_table_with_an_endless_heading(root: Path) -> None:
    save(root / "alder" / "nevus" / "1.png")
    (root / "mine.csv").write_text("site,image," + "x" * 140_000)
    with pytest.raises(FealError, match=r"mine.csv cannot be read \(field larger than field limit"):
        open_image_folder(root, task="classification", name="mine")


@pytest.mark.parametrize("task", ["classification", "segmentation"])
def test_a_table_with_labels_and_masks_serves_both_tasks(root: Path, task: Task) -> None:
    rows = _rows(root)
    for number, row in enumerate(rows):
        save(root / "masks" / f"{number}.png", pixels=np.full((40, 40), 255, np.uint8))
        row["mask"] = f"masks/{number}.png"
    _table(root, rows)
    site = prepared_own(root, task).site("alder")
    truth = open_labels(site).of(site.ids())
    if task == "classification":
        assert truth.tolist() == [number % 2 for number in range(10)]
    else:
        assert truth.unique().tolist() == [1]


def test_labels_alone_are_nothing_to_segment_by(root: Path) -> None:
    _table(root, _rows(root))
    problem = "has a label, but the task is segmentation: name a mask"
    found = findings_in(root, "segmentation")
    assert [found[f"{number}.png"] for number in range(10)] == [problem] * 10


def _labels(root: Path, *labels: object) -> None:
    rows = _rows(root)
    for row, label in zip(rows, labels, strict=False):
        row["label"] = label
    _table(root, rows)


def test_a_number_is_not_taken_for_the_place_of_a_class_that_is_called_by_another(root: Path) -> None:
    _labels(root, 1, 0, 3, *[1, 2] * 4)
    assert findings_in(root, "classification", classes=["1", "2"]) == {
        f"{number}.png": f"has the label '{label}', which is none of 1, 2" for number, label in ((1, 0), (2, 3))
    }


@pytest.mark.parametrize("label", ["-1", "-1.0", "2", "1.5", "nan", "inf"])
def test_labels_out_of_range(root: Path, label: str) -> None:
    _labels(root, 0, label)
    whole = label.removesuffix(".0")
    found = findings_in(root, "classification", classes=["benign", "malignant"])
    assert found == {"1.png": f"has the label '{whole}', which is none of benign, malignant"}


def test_a_number_below_zero_is_no_class(root: Path) -> None:
    _labels(root, -1)
    assert findings_in(root, "classification") == {"0.png": "has the label '-1', which is none of 0, 1"}
    assert prepared_own(root, "classification", classes=["-1", "0", "1"]).classes == ("-1", "0", "1")


def test_fractions_that_a_program_made_of_labels(root: Path) -> None:
    _labels(root, "0.0", "1.0", 0, 1, "")
    data = prepared_own(root, "classification")
    site = data.site("alder")
    assert data.classes == ("0", "1")
    assert open_labels(site).of([str(number) for number in range(5)]).tolist() == [0, 1, 0, 1, -1]


def test_no_label_at_all(root: Path) -> None:
    _labels(root, *[""] * 10)
    with pytest.raises(FealError, match=r"There is no label in .*: name two or more classes by"):
        open_image_folder(root, task="classification", name="mine")
    data = prepared_own(root, "classification", classes=["a", "b"])
    assert data.site("alder").unlabelled == 10
    assert data.manifest.source["remarks"] == ["Site alder has no test sample: nothing is measured there."]


def test_a_patient_at_two_sites_is_told(root: Path) -> None:
    rows = _rows(root)
    for number, row in enumerate(rows):
        row["site"] = "alder" if number % 2 else "birch"
    rows[9]["patient"] = "q"
    _table(root, rows)
    assert prepared_own(root, "classification").manifest.source["remarks"] == [
        "Patient names at more than one site: 4 (p0, p1, p2, p3); if they are the same patients, one may "
        "be in the training split of one site and in the test split of another."
    ]


def test_a_table_that_is_not_there(root: Path) -> None:
    save(root / "alder" / "nevus" / "1.png")
    with pytest.raises(FealError, match=r"none.csv cannot be read \(No such file or directory\): check the path"):
        open_image_folder(root, task="classification", name="mine", table=root / "none.csv")
