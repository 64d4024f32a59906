"""Prostates: slices of volumes, clipped one by one, and MiDSS's pictures."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from feal.data.prepare.base import Finding, SourceRecord, UnusableFileError
from feal.data.prepare.datasets.prostate import FedProstate
from feal.data.resize import clip_quantile
from tests.data.prepare.datasets import fakes

SITES = ["bidmc", "bmc", "hk", "i2cvb", "runmc", "ucl"]


def _draft(folder: Path, image: np.ndarray, mask: np.ndarray) -> SourceRecord:
    shown = fakes.save_volume(folder / "Case00.nii.gz", image)
    drawn = fakes.save_volume(folder / "Case00_segmentation.nii.gz", mask)
    return SourceRecord(site="hk", id="Case00", image=shown, mask=drawn, group="Case00")


def _expected(image: np.ndarray) -> np.ndarray:
    """Clipping in plain steps, without numpy's partition."""
    ordered = sorted(image.ravel().tolist())
    low, high = ordered[0], ordered[int(len(ordered) * 0.99)]
    return np.array([[round((min(x, high) - low) / (high - low) * 65535) for x in row] for row in image.tolist()])


def test_cases_are_paired_whatever_the_case_of_their_ending(tmp_path: Path) -> None:
    scan = FedProstate().scan(fakes.prostate(tmp_path, cases=2))
    assert not scan.findings
    assert not scan.absent
    assert Counter(record.site for record in scan.records) == dict.fromkeys(SITES, 2)
    assert all(record.group == record.id == record.image.name.removesuffix(".nii.gz") for record in scan.records)
    assert {record.split for record in scan.records} == {None}


def test_only_slices_with_a_prostate_come_and_zones_are_one(tmp_path: Path) -> None:
    for record in FedProstate().scan(fakes.prostate(tmp_path, cases=1)).records:
        samples = FedProstate().read(record, size=48)
        assert [sample.id for sample in samples] == ["Case00-001", "Case00-002", "Case00-003"]
        assert all(np.array_equal(sample.label, fakes.disc(48, 48)) for sample in samples)
        assert all(sample.image.dtype == np.uint16 and sample.image.shape == (1, 48, 48) for sample in samples)


def test_a_slice_stands_as_its_rows_lie_and_is_clipped_by_itself(tmp_path: Path) -> None:
    image = np.zeros((20, 10, 2), dtype=np.float32)
    image[..., 0] = np.arange(200).reshape(20, 10)
    image[..., 1] = 1e6 * np.arange(200)[::-1].reshape(20, 10)
    mask = np.zeros((20, 10, 2), dtype=np.uint8)
    mask[15, 2] = 1
    samples = FedProstate().read(_draft(tmp_path, image, mask), size=20)
    for sample, plane in zip(samples, (image[..., 0], image[..., 1]), strict=True):
        assert sample.label[4:6, 15].all()
        assert sample.label.sum() == 2
        # Ten rows became twenty: the outermost are as they were, to the filter's rounding.
        assert np.abs(sample.image[0, 0].astype(int) - _expected(plane.T)[0]).max() <= 1


def test_clipping_equals_a_sorted_list() -> None:
    random = np.random.default_rng(0)
    for image in (
        random.normal(size=(13, 17)),
        random.integers(-500, 3000, (40, 30)),
        np.arange(100).reshape(10, 10),
    ):
        assert np.array_equal(clip_quantile(image, 0.99), _expected(image))


def test_the_brightest_hundredth_is_white_and_a_constant_slice_black() -> None:
    image = np.ones((10, 20))
    image[0, 0] = 0
    image[0, 1:3] = [1e9, 5]
    assert clip_quantile(image, 0.99)[0, :4].tolist() == [0, 65535, 65535, 65535 // 5]
    assert not clip_quantile(np.full((4, 4), 7), 0.99).any()


@pytest.mark.parametrize(
    ("mask", "problem"),
    [
        (np.zeros((8, 8, 3), np.uint8), "shows no prostate"),
        (np.full((8, 8, 3), 0.5, np.float32), "negative or fractional mask values"),
        (np.full((8, 8, 3), -1, np.int16), "negative or fractional mask values"),
        (np.ones((8, 8, 2), np.uint8), "is a mask of size 8 x 8 x 2"),
    ],
    ids=["empty", "fractions", "negative", "size"],
)
def test_a_mask_that_does_not_fit_is_refused_by_its_name(tmp_path: Path, mask: np.ndarray, problem: str) -> None:
    record = _draft(tmp_path, np.ones((8, 8, 3), dtype=np.int16), mask)
    with pytest.raises(UnusableFileError, match=problem) as refused:
        FedProstate().read(record, size=8)
    assert refused.value.file == record.mask


def test_a_volume_cut_short_is_refused(tmp_path: Path) -> None:
    record = _draft(tmp_path, np.ones((8, 8, 3), dtype=np.int16), np.ones((8, 8, 3), dtype=np.uint8))
    record.image.write_bytes(record.image.read_bytes()[:60])
    with pytest.raises(UnusableFileError, match="cannot be read"):
        FedProstate().read(record, size=8)


def test_missing_halves_and_empty_sites_are_found(tmp_path: Path) -> None:
    fakes.prostate(tmp_path, cases=2)
    (tmp_path / "HK" / "Case00_segmentation.nii.gz").unlink()
    (tmp_path / "BMC" / "Case01.nii.gz").unlink()
    for path in (tmp_path / "UCL").iterdir():
        path.unlink()
    (tmp_path / "RUNMC").rename(tmp_path / "away")
    fakes.save_volume(tmp_path / "I2CVB" / "Case00.nii", np.zeros((4, 4, 4), dtype=np.int16))
    scan = FedProstate().scan(tmp_path)
    assert scan.absent == ["runmc"]
    assert scan.findings == [
        Finding(file="BMC/Case01_Segmentation.nii.gz", problem="is a mask without its image in BMC"),
        Finding(file="HK/Case00.nii.gz", problem="has no mask in HK"),
        Finding(
            file="I2CVB/Case00.nii",
            problem="has the same name as I2CVB/Case00.nii.gz: keep one of them",
        ),
        Finding(
            file="I2CVB/Case00.nii.gz",
            problem="has the same name as I2CVB/Case00.nii: keep one of them",
        ),
        Finding(file="UCL", problem="holds no volume"),
    ]


def test_slices_as_pictures_keep_their_split_and_cases_apart(tmp_path: Path) -> None:
    scan = FedProstate().scan(fakes.prostate_slices(tmp_path))
    assert not scan.findings
    assert Counter((record.site, record.split) for record in scan.records) == {
        (site, split): 3 for site in SITES for split in ("train", "test")
    }
    groups = {(record.id, record.group) for record in scan.records if record.site == "hk"}
    assert ("train-00_01", "train-00") in groups
    assert ("test-00_01", "test-00") in groups
    for record in scan.records[:3]:
        (sample,) = FedProstate().read(record, size=48)
        assert np.array_equal(sample.label, fakes.disc(48, 48))
        assert sample.image.max() == 65535


def test_a_picture_without_a_prostate_gives_no_sample(tmp_path: Path) -> None:
    record = FedProstate().scan(fakes.prostate_slices(tmp_path)).records[0]
    fakes.save(record.mask, np.full((48, 48), 255, dtype=np.uint8))
    assert FedProstate().read(record, size=48) == []
