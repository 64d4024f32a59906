"""Polyps: both layouts, letterbox, masks from 128 on."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from feal.data.prepare.base import Finding, SourceRecord, UnusableFileError, check_records
from feal.data.prepare.datasets.polyp import FedPolyp
from tests.data.prepare.datasets import fakes

FRAME = np.full((3, 6, 3), (10, 20, 30), dtype=np.uint8)


def _piece(folder: Path, frame: np.ndarray, mask: np.ndarray, *, size: int) -> tuple[np.ndarray, np.ndarray]:
    image, drawn = fakes.save(folder / "image.png", frame), fakes.save(folder / "mask.png", mask)
    (sample,) = FedPolyp().read(SourceRecord(site="etis", id="1", image=image, mask=drawn), size=size)
    assert sample.id == "1"
    return sample.image, sample.label


def test_the_papers_layout_pairs_by_stem_whatever_the_endings(tmp_path: Path) -> None:
    scan = FedPolyp().scan(fakes.polyps(tmp_path))
    assert not scan.findings
    assert not scan.absent
    assert Counter(record.site for record in scan.records) == dict.fromkeys(
        ["kvasir", "etis", "cvc-colondb", "cvc-clinicdb"], 5
    )
    assert all(record.image.stem == record.mask.stem == record.id for record in scan.records)
    assert all(record.group is None and record.split is None for record in scan.records)


def test_every_frame_of_the_fake_is_read(tmp_path: Path) -> None:
    scan = FedPolyp().scan(fakes.polyps(tmp_path, frames=1))
    for record in scan.records:
        (sample,) = FedPolyp().read(record, size=48)
        assert sample.image.shape == (3, 48, 48)
        expected = np.zeros((48, 48), dtype=np.uint8)
        expected[6:42] = fakes.disc(36, 48)
        # A JPEG's mask is right up to its soft edge.
        assert (sample.label != expected).mean() < 0.01


def test_a_frame_is_letterboxed_and_its_mask_with_it(tmp_path: Path) -> None:
    mask = np.zeros((3, 6), dtype=np.uint8)
    mask[0, :2] = [128, 127]
    image, truth = _piece(tmp_path, FRAME, mask, size=12)
    expected = np.zeros((3, 12, 12), dtype=np.uint8)
    expected[:, 3:9] = np.array([10, 20, 30])[:, None, None]
    assert np.array_equal(image, expected)
    drawn = np.zeros((12, 12), dtype=np.uint8)
    drawn[3:5, :2] = 1
    assert np.array_equal(truth, drawn)
    assert truth.dtype == image.dtype == np.uint8


def test_a_tall_frame_has_its_rims_left_and_right(tmp_path: Path) -> None:
    image, truth = _piece(tmp_path, FRAME.transpose(1, 0, 2), np.full((6, 3), 255, dtype=np.uint8), size=6)
    assert image[0].max(axis=0).tolist() == [0, 10, 10, 10, 0, 0]
    assert truth[0].tolist() == [0, 1, 1, 1, 0, 0]


def test_an_empty_mask_is_one_but_zeros_and_ones_are_refused(tmp_path: Path) -> None:
    _, truth = _piece(tmp_path, FRAME, np.zeros((3, 6), dtype=np.uint8), size=6)
    assert not truth.any()
    with pytest.raises(UnusableFileError, match="no value of 128 or more .the largest is 1."):
        _piece(tmp_path, FRAME, np.ones((3, 6), dtype=np.uint8), size=6)


def test_a_mask_of_another_size_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(UnusableFileError, match="6 x 4") as refused:
        _piece(tmp_path, FRAME, np.zeros((4, 6), dtype=np.uint8), size=6)
    assert refused.value.file == tmp_path / "mask.png"


def test_missing_and_stray_files_are_all_found(tmp_path: Path) -> None:
    fakes.polyps(tmp_path)
    (tmp_path / "ETIS" / "mask" / "2.png").unlink()
    (tmp_path / "Kvasir" / "image" / "3.jpg").unlink()
    (tmp_path / "Kvasir" / "image" / ".4.jpg").write_text("hidden")
    (tmp_path / "Kvasir" / "image" / "Thumbs.db").write_text("no picture")
    fakes.save(tmp_path / "CVC-ColonDB" / "image" / "1.png", FRAME)
    for path in (tmp_path / "CVC-ClinicDB" / "image").iterdir():
        path.unlink()
    scan = FedPolyp().scan(tmp_path)
    twice = "has the same name as CVC-ColonDB/image/1.JPG: keep one of them"
    assert Finding(file="ETIS/image/2.jpg", problem="has no mask in ETIS/mask") in scan.findings
    assert (
        Finding(file="Kvasir/mask/3.jpg", problem="is a mask without its image in Kvasir/image") in scan.findings
    )
    assert Finding(file="CVC-ColonDB/image/1.png", problem=twice) in scan.findings
    assert Finding(file="CVC-ClinicDB/image", problem="holds no image") in scan.findings
    twice = "has the same name as CVC-ColonDB/image/1.png: keep one of them"
    assert Finding(file="CVC-ColonDB/image/1.JPG", problem=twice) in scan.findings
    assert len(scan.findings) == 5 + 5
    kept, _ = check_records(scan.records, tmp_path, known=scan.findings)
    assert Counter(record.site for record in kept) == {"kvasir": 4, "etis": 4, "cvc-colondb": 4}


def test_an_absent_site_is_named_and_a_site_without_masks_found(tmp_path: Path) -> None:
    fakes.polyps(tmp_path)
    (tmp_path / "ETIS").rename(tmp_path / "elsewhere")
    (tmp_path / "Kvasir" / "mask").rename(tmp_path / "Kvasir" / "drawings")
    scan = FedPolyp().scan(tmp_path)
    assert scan.absent == ["etis"]
    assert scan.findings == [Finding(file="Kvasir", problem="has no folder 'mask'")]


def test_pranets_split_is_kept_where_a_centre_has_both_sides(tmp_path: Path) -> None:
    scan = FedPolyp().scan(fakes.polyps_pranet(tmp_path))
    assert not scan.findings
    assert not scan.absent
    assert Counter((record.site, record.split) for record in scan.records) == {
        ("kvasir", "train"): 3,
        ("kvasir", "test"): 1,
        ("cvc-clinicdb", "train"): 3,
        ("cvc-clinicdb", "test"): 1,
        ("cvc-colondb", None): 3,
        ("etis", None): 3,
    }
    assert not any("CVC-300" in record.image.parts for record in scan.records)
    assert sorted(scan.remarks) == [
        "CVC-300 is left out: its frames are from the sequences of CVC-ColonDB, which is a site.",
        "Site 'cvc-colondb' is shipped with one split only (test), so it is split again.",
        "Site 'etis' is shipped with one split only (test), so it is split again.",
    ]


def test_pranets_frames_of_no_known_centre_and_on_both_sides_are_found(tmp_path: Path) -> None:
    fakes.polyps_pranet(tmp_path)
    train, test = tmp_path / "TrainDataset", tmp_path / "TestDataset" / "Kvasir"
    for folder in ("images", "masks"):
        Image.open(train / folder / "1.png").save(train / folder / "x1.png")
        Image.open(train / folder / "cju1.png").save(test / folder / "cju1.png")
    scan = FedPolyp().scan(tmp_path)
    assert [finding.file for finding in scan.findings] == ["TrainDataset/images/x1.png"]
    kept, repeats = check_records(scan.records, tmp_path, known=scan.findings)
    assert {finding.file for finding in repeats} == {
        "TrainDataset/images/cju1.png",
        "TestDataset/Kvasir/images/cju1.png",
    }
    assert "cju1" not in [record.id for record in kept]


def test_pranets_testing_part_alone_is_split_anew(tmp_path: Path) -> None:
    fakes.polyps_pranet(tmp_path)
    (tmp_path / "TrainDataset").rename(tmp_path.parent / f"{tmp_path.name}-away")
    scan = FedPolyp().scan(tmp_path)
    assert {record.split for record in scan.records} == {None}
    assert Counter(record.site for record in scan.records)["kvasir"] == 1
