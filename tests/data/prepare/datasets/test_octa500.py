"""Angiographic projections: both releases on one canvas, pixel for pixel."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from feal.data.prepare.base import Finding, SourceRecord, UnusableFileError
from feal.data.prepare.datasets.octa500 import Octa500
from tests.data.prepare.datasets import fakes


def _draft(folder: Path, image: np.ndarray, mask: np.ndarray, *, site: str = "octa-3m") -> SourceRecord:
    shown, drawn = fakes.save(folder / "image.bmp", image), fakes.save(folder / "mask.bmp", mask)
    return SourceRecord(site=site, id="10301", image=shown, mask=drawn)


@pytest.mark.parametrize("old", [False, True], ids=["new", "old"])
def test_both_releases_give_the_same(tmp_path: Path, old: bool) -> None:
    scan = Octa500().scan(fakes.octa(tmp_path, cases=2, old=old))
    assert not scan.findings
    assert not scan.absent
    assert Counter(record.site for record in scan.records) == {"octa-3m": 2, "octa-6m": 2}
    assert all(record.group == record.id and record.split is None for record in scan.records)
    for record in scan.records:
        (sample,) = Octa500().read(record, size=400)
        side = {"octa-3m": 304, "octa-6m": 400}[record.site]
        rim = (400 - side) // 2
        inner = np.s_[rim : rim + side, rim : rim + side]
        assert np.array_equal(sample.label[inner], fakes.disc(side, side, 0.1))
        assert sample.label.sum() == fakes.disc(side, side, 0.1).sum()
        assert np.array_equal(sample.image[0][inner], fakes.photograph(int(record.id), side, side, 1))
        assert sample.image.sum() == sample.image[0][inner].sum()


def test_another_size_keeps_the_relation_of_both_fields_of_view(tmp_path: Path) -> None:
    white, zone = np.full((304, 304), 200, dtype=np.uint8), np.full((304, 304), 255, dtype=np.uint8)
    (sample,) = Octa500().read(_draft(tmp_path, white, zone), size=100)
    expected = np.zeros((100, 100), dtype=np.uint8)
    expected[12:88, 12:88] = 1
    assert np.array_equal(sample.label, expected)
    assert np.array_equal(sample.image, 200 * expected[None])


@pytest.mark.parametrize(
    ("image", "mask", "problem"),
    [
        (np.zeros((400, 400), np.uint8), np.zeros((400, 400), np.uint8), "is 400 x 400 pixels, but .* 304 x 304"),
        (np.zeros((304, 304), np.uint8), np.zeros((304, 303), np.uint8), "is a mask of size 303 x 304"),
        (np.zeros((304, 304), np.uint8), np.full((304, 304), 7, np.uint8), r"outside the mapping \(7;"),
        (np.full((304, 304, 3), (1, 2, 3), np.uint8), np.zeros((304, 304), np.uint8), "has colours"),
    ],
    ids=["size", "mask size", "values", "colours"],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, image: np.ndarray, mask: np.ndarray, problem: str) -> None:
    with pytest.raises(UnusableFileError, match=problem):
        Octa500().read(_draft(tmp_path, image, mask), size=400)


def test_missing_folders_and_files_are_found(tmp_path: Path) -> None:
    fakes.octa(tmp_path, cases=2)
    (tmp_path / "OCTA_3M" / "GT_FAZ").rename(tmp_path / "away")
    (tmp_path / "OCTA_6M" / "GT_FAZ" / "10002.bmp").unlink()
    layer = "OCTA_6M/ProjectionMaps/OCTA(ILM_OPL)"
    scan = Octa500().scan(tmp_path)
    assert scan.findings == [
        Finding(file="OCTA_3M", problem="has no folder GT_FAZ or GroundTruth"),
        Finding(file=f"{layer}/10002.bmp", problem="has no mask in OCTA_6M/GT_FAZ"),
    ]
    (tmp_path / "OCTA_3M").rename(tmp_path / "elsewhere")
    assert Octa500().scan(tmp_path).absent == ["octa-3m"]
