"""Optic disc and cup: the shipped split, plain resizing, three mask values."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from feal.data.prepare.base import Finding, SourceRecord, UnusableFileError, check_records
from feal.data.prepare.datasets.fundus import FedFundus
from tests.data.prepare.datasets import fakes


def _draft(folder: Path, image: np.ndarray, mask: np.ndarray) -> SourceRecord:
    shown, drawn = fakes.save(folder / "image.png", image), fakes.save(folder / "mask.png", mask)
    return SourceRecord(site="drishti-gs", id="g", image=shown, mask=drawn, split="train")


def test_the_shipped_split_is_kept(tmp_path: Path) -> None:
    scan = FedFundus().scan(fakes.fundus(tmp_path))
    assert not scan.findings
    assert not scan.absent
    sites = ["drishti-gs", "rim-one-r3", "refuge-train", "refuge-val"]
    expected = {(site, split): count for site in sites for split, count in (("train", 3), ("test", 2))}
    assert Counter((record.site, record.split) for record in scan.records) == expected


def test_image_and_mask_are_resized_plainly_and_values_mapped(tmp_path: Path) -> None:
    image = fakes.photograph(1, 8, 16)
    mask = np.full((8, 16, 3), 255, dtype=np.uint8)
    mask[:4, :8], mask[:2, :4] = 128, 0
    (sample,) = FedFundus().read(_draft(tmp_path, image, mask), size=4)
    expected = np.asarray(Image.fromarray(image).resize((4, 4), Image.Resampling.BILINEAR))
    assert np.array_equal(sample.image, expected.transpose(2, 0, 1))
    assert sample.label.tolist() == [[2, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert [FedFundus.classes[number] for number in (2, 1, 0)] == ["cup", "rim", "background"]


def test_the_disc_is_rim_and_cup() -> None:
    named = {
        name: {FedFundus.classes[member] for member in members} for name, members in FedFundus.regions.items()
    }
    assert named == {"disc": {"rim", "cup"}, "cup": {"cup"}}


def test_values_outside_the_mapping_are_named(tmp_path: Path) -> None:
    mask = np.full((8, 8), 255, dtype=np.uint8)
    mask[0, 0] = 127
    with pytest.raises(UnusableFileError, match="127") as refused:
        FedFundus().read(_draft(tmp_path, fakes.photograph(1, 8, 8), mask), size=8)
    assert refused.value.file == tmp_path / "mask.png"


def test_a_picture_on_both_sides_and_a_missing_side_are_found(tmp_path: Path) -> None:
    fakes.fundus(tmp_path)
    domain = tmp_path / "Fundus" / "Domain2"
    for kind in ("image", "mask"):
        path = domain / "train" / "ROIs" / kind / "g0000.png"
        path.with_name("g0003.png").write_bytes(path.read_bytes())
    (tmp_path / "Fundus" / "Domain3" / "test").rename(tmp_path / "away")
    (tmp_path / "Fundus" / "Domain4").rename(tmp_path / "gone")
    scan = FedFundus().scan(tmp_path)
    assert scan.findings == [Finding(file="Fundus/Domain3", problem="has no folder test/ROIs")]
    kept, repeats = check_records(scan.records, tmp_path)
    assert {finding.file for finding in repeats} == {
        f"Fundus/Domain2/{split}/ROIs/image/g0003.png" for split in ("train", "test")
    }
    assert not [record for record in kept if (record.site, record.id) == ("rim-one-r3", "g0003")]
    assert scan.absent == ["refuge-val"]
