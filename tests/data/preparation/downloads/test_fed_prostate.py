"""Prostates: slices of volumes, clipped one by one, and MiDSS's pictures."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from feal.data.fitting import clipped
from feal.data.preparation.contract import Draft, Finding, UnfitError
from feal.data.preparation.downloads.fed_prostate import FedProstate
from tests.data.preparation.downloads import fakes

SITES = ["bidmc", "bmc", "hk", "i2cvb", "runmc", "ucl"]


def _draft(folder: Path, image: np.ndarray, mask: np.ndarray) -> Draft:
    shown = fakes.save_volume(folder / "Case00.nii.gz", image)
    drawn = fakes.save_volume(folder / "Case00_segmentation.nii.gz", mask)
    return Draft(site="hk", id="Case00", image=shown, mask=drawn, group="Case00")


def _expected(image: np.ndarray) -> np.ndarray:
    """Clipping in plain steps, without numpy's partition."""
    ordered = sorted(image.ravel().tolist())
    low, high = ordered[0], ordered[int(len(ordered) * 0.99)]
    return np.array([[round((min(x, high) - low) / (high - low) * 65535) for x in row] for row in image.tolist()])


def test_cases_are_paired_whatever_the_case_of_their_ending(tmp_path: Path) -> None:
    scan = FedProstate().scan(fakes.prostate(tmp_path, cases=2))
    assert not scan.findings
    assert not scan.absent
    assert Counter(draft.site for draft in scan.drafts) == dict.fromkeys(SITES, 2)
    assert all(draft.group == draft.id == draft.image.name.removesuffix(".nii.gz") for draft in scan.drafts)
    assert {draft.split for draft in scan.drafts} == {None}


def test_only_slices_with_a_prostate_come_and_zones_are_one(tmp_path: Path) -> None:
    for draft in FedProstate().scan(fakes.prostate(tmp_path, cases=1)).drafts:
        pieces = FedProstate().read(draft, size=48)
        assert [piece.id for piece in pieces] == ["Case00-001", "Case00-002", "Case00-003"]
        assert all(np.array_equal(piece.truth, fakes.disc(48, 48)) for piece in pieces)
        assert all(piece.image.dtype == np.uint16 and piece.image.shape == (1, 48, 48) for piece in pieces)


def test_a_slice_stands_as_its_rows_lie_and_is_clipped_by_itself(tmp_path: Path) -> None:
    image = np.zeros((20, 10, 2), dtype=np.float32)
    image[..., 0] = np.arange(200).reshape(20, 10)
    image[..., 1] = 1e6 * np.arange(200)[::-1].reshape(20, 10)
    mask = np.zeros((20, 10, 2), dtype=np.uint8)
    mask[15, 2] = 1
    pieces = FedProstate().read(_draft(tmp_path, image, mask), size=20)
    for piece, plane in zip(pieces, (image[..., 0], image[..., 1]), strict=True):
        assert piece.truth[4:6, 15].all()
        assert piece.truth.sum() == 2
        # Ten rows became twenty: the outermost are as they were, to the filter's rounding.
        assert np.abs(piece.image[0, 0].astype(int) - _expected(plane.T)[0]).max() <= 1


def test_clipping_equals_a_sorted_list() -> None:
    random = np.random.default_rng(0)
    for image in (
        random.normal(size=(13, 17)),
        random.integers(-500, 3000, (40, 30)),
        np.arange(100).reshape(10, 10),
    ):
        assert np.array_equal(clipped(image, 0.99), _expected(image))


def test_the_brightest_hundredth_is_white_and_a_constant_slice_black() -> None:
    image = np.ones((10, 20))
    image[0, 0] = 0
    image[0, 1:3] = [1e9, 5]
    assert clipped(image, 0.99)[0, :4].tolist() == [0, 65535, 65535, 65535 // 5]
    assert not clipped(np.full((4, 4), 7), 0.99).any()


@pytest.mark.parametrize(
    ("mask", "problem"),
    [
        (np.zeros((8, 8, 3), np.uint8), "shows no prostate"),
        (np.full((8, 8, 3), 0.5, np.float32), "no class numbers"),
        (np.full((8, 8, 3), -1, np.int16), "no class numbers"),
        (np.ones((8, 8, 2), np.uint8), "is a mask of size 8 x 8 x 2"),
    ],
    ids=["empty", "fractions", "negative", "size"],
)
def test_a_mask_that_does_not_fit_is_refused_by_its_name(tmp_path: Path, mask: np.ndarray, problem: str) -> None:
    draft = _draft(tmp_path, np.ones((8, 8, 3), dtype=np.int16), mask)
    with pytest.raises(UnfitError, match=problem) as refused:
        FedProstate().read(draft, size=8)
    assert refused.value.file == draft.mask


def test_a_volume_cut_short_is_refused(tmp_path: Path) -> None:
    draft = _draft(tmp_path, np.ones((8, 8, 3), dtype=np.int16), np.ones((8, 8, 3), dtype=np.uint8))
    draft.image.write_bytes(draft.image.read_bytes()[:60])
    with pytest.raises(UnfitError, match="cannot be read"):
        FedProstate().read(draft, size=8)


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
            problem="has the same name as I2CVB/Case00.nii.gz, and only one of them can be meant",
        ),
        Finding(
            file="I2CVB/Case00.nii.gz",
            problem="has the same name as I2CVB/Case00.nii, and only one of them can be meant",
        ),
        Finding(file="UCL", problem="holds no volume"),
    ]


def test_slices_as_pictures_keep_their_split_and_cases_apart(tmp_path: Path) -> None:
    scan = FedProstate().scan(fakes.prostate_slices(tmp_path))
    assert not scan.findings
    assert Counter((draft.site, draft.split) for draft in scan.drafts) == {
        (site, split): 3 for site in SITES for split in ("train", "test")
    }
    groups = {(draft.id, draft.group) for draft in scan.drafts if draft.site == "hk"}
    assert ("train-00_01", "train-00") in groups
    assert ("test-00_01", "test-00") in groups
    for draft in scan.drafts[:3]:
        (piece,) = FedProstate().read(draft, size=48)
        assert np.array_equal(piece.truth, fakes.disc(48, 48))
        assert piece.image.max() == 65535


def test_a_picture_without_a_prostate_gives_no_sample(tmp_path: Path) -> None:
    draft = FedProstate().scan(fakes.prostate_slices(tmp_path)).drafts[0]
    fakes.save(draft.mask, np.full((48, 48), 255, dtype=np.uint8))
    assert FedProstate().read(draft, size=48) == []
