"""Lymph node patches: metadata, a split of one's own, and the pickle that is not read."""

import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from feal.data.prepare.base import Finding, SourceRecord, UnusableFileError
from feal.data.prepare.datasets.camelyon import FedCamelyon
from feal.errors import FealError
from tests.data.prepare.datasets import fakes

SITES = [f"centre-{number}" for number in range(5)]
FIRST = "patch_patient_000_node_0_x_3328_y_21792"


class _Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (pytest.fail, ("a pickle was loaded",))


def test_patches_are_listed_by_centre_label_and_patient(tmp_path: Path) -> None:
    scan = FedCamelyon().scan(fakes.camelyon(tmp_path))
    assert not scan.findings
    assert not scan.absent
    assert not scan.remarks
    expected = {(site, label): 5 for site in SITES for label in (0, 1)}
    assert Counter((record.site, record.label) for record in scan.records) == expected
    record = next(record for record in scan.records if record.id == FIRST)
    assert (record.group, record.split, record.site) == ("000", None, "centre-0")
    assert record.image.is_file()


def test_a_patch_comes_as_it_is(tmp_path: Path) -> None:
    patch = fakes.photograph(1, 96, 96)
    path = fakes.save(tmp_path / "p.png", patch)
    record = SourceRecord(site="centre-0", id="p", image=path, label=1)
    (sample,) = FedCamelyon().read(record, size=96)
    assert np.array_equal(sample.image, patch.transpose(2, 0, 1))
    assert sample.label == 1
    assert FedCamelyon().read(record, size=32)[0].image.shape == (3, 32, 32)


def test_a_patch_of_another_size_is_refused(tmp_path: Path) -> None:
    path = fakes.save(tmp_path / "p.png", fakes.photograph(1, 96, 95))
    with pytest.raises(UnusableFileError, match="is 95 x 96 pixels instead of 96 x 96"):
        FedCamelyon().read(SourceRecord(site="centre-0", id="p", image=path, label=1), size=96)


def test_a_pickle_is_never_loaded_and_a_table_asked_for_instead(tmp_path: Path) -> None:
    fakes.camelyon(tmp_path)
    (tmp_path / "data.pkl").write_bytes(pickle.dumps(_Trap()))
    (remark,) = FedCamelyon().scan(tmp_path).remarks
    assert remark.startswith("data.pkl is not read")
    assert "split.csv" in remark


def test_a_split_of_ones_own_is_kept_and_leaves_out_the_rest(tmp_path: Path) -> None:
    fakes.camelyon(tmp_path)
    stems = sorted(path.stem for path in tmp_path.glob("patches/*/*.png"))
    rows = [[f"patches/{stem}.png", "test" if place % 5 == 0 else "train"] for place, stem in enumerate(stems[1:])]
    fakes.write_table(tmp_path / "split.csv", ("image", "split"), rows)
    scan = FedCamelyon().scan(tmp_path)
    assert not scan.findings
    assert scan.remarks == ["Patches left out, since split.csv does not list them: 1."]
    assert {record.id: record.split for record in scan.records} == {Path(image).stem: side for image, side in rows}


def test_everything_wrong_is_found(tmp_path: Path) -> None:
    fakes.camelyon(tmp_path)
    metadata = tmp_path / "metadata.csv"
    lines = metadata.read_text().splitlines()
    lines[1] = lines[1].replace(",0,0,0,0", ",2,0,0,0")
    lines[2] = lines[2].replace(",0,0,0", ",0,7,0")
    metadata.write_text("\n".join([*lines, lines[3]]))
    folder = tmp_path / "patches" / "patient_002_node_2"
    missing = sorted(folder.iterdir())[0]
    missing.unlink()
    fakes.save(folder / "other.png", fakes.photograph(1, 96, 96))
    problems = {finding.file: finding.problem for finding in FedCamelyon().scan(tmp_path).findings}
    start = "patches/patient_000_node_0/patch_patient_000_node_0"
    assert problems == {
        f"{start}_x_3328_y_21792.png": "has the label '2' in metadata.csv, neither 0 nor 1",
        f"{start}_x_3360_y_21792.png": "is of the centre '7' in metadata.csv, outside 0 to 4",
        "patches/patient_001_node_1/patch_patient_001_node_1_x_3328_y_21792.png": "has two lines in metadata.csv",
        f"patches/patient_002_node_2/{missing.name}": "is missing, but metadata.csv lists it",
        "patches/patient_002_node_2/other.png": "has no line in metadata.csv",
    }


def test_bad_lines_of_a_split_of_ones_own_are_found(tmp_path: Path) -> None:
    fakes.camelyon(tmp_path)
    second = FIRST.replace("3328", "3360")
    rows = [[f"{FIRST}.png", "val"], ["patch_of_nobody.png", "train"], [second, "train"], [second, "test"]]
    fakes.write_table(tmp_path / "split.csv", ("image", "split"), rows)
    assert FedCamelyon().scan(tmp_path).findings == [
        Finding(
            file=f"patches/patient_000_node_0/{FIRST}.png",
            problem="is in the split 'val' in split.csv, neither train nor test",
        ),
        Finding(
            file=f"patches/patient_000_node_0/{second}.png",
            problem="is in the split 'train and test' in split.csv, neither train nor test",
        ),
        Finding(file="patch_of_nobody.png", problem="has no line in metadata.csv"),
    ]


def test_a_centre_without_its_patches_is_absent(tmp_path: Path) -> None:
    fakes.camelyon(tmp_path)
    for folder in (tmp_path / "patches").glob("patient_04?_*"):
        for path in folder.iterdir():
            path.unlink()
    scan = FedCamelyon().scan(tmp_path)
    assert scan.absent == ["centre-2"]
    assert not scan.findings


def test_metadata_without_patches_is_refused(tmp_path: Path) -> None:
    fakes.camelyon(tmp_path)
    (tmp_path / "patches").rename(tmp_path / "elsewhere")
    with pytest.raises(FealError, match="has no folder patches"):
        FedCamelyon().scan(tmp_path)
