"""The hidden truth: what it gives, and values that are no class."""

from pathlib import Path

import numpy as np
import pytest
import torch

from feal.data.labels import open_labels
from feal.data.prepared import PreparedSet, open_prepared
from feal.data.writer import PreparedWriter
from feal.errors import FealError


def test_labels_follow_the_ids(plain: Path) -> None:
    truth = open_labels(open_prepared(plain).site("alder"))
    assert truth.of(["s1", "s2", "s3", "s4"]).tolist() == [1, 0, 0, 1]
    assert truth.of(["s4"]).dtype == torch.int64
    truth.check()


def test_masks_are_bytes_of_the_images_size(polyps: PreparedSet) -> None:
    site = polyps.site("alder")
    truth = open_labels(site)
    masks = truth.of(site.ids("test"))
    assert masks.dtype == torch.uint8
    assert masks.shape == (len(site.ids("test")), 48, 48)
    truth.check()


@pytest.mark.parametrize("value", [-1, 2, 300])
def test_a_label_out_of_range_names_sample_site_and_value(plain: Path, value: int) -> None:
    stored = np.load(plain / "alder" / "truth.npy", mmap_mode="r+")
    stored[3] = value
    stored.flush()
    with pytest.raises(FealError, match=f"Sample 's2' of site 'alder' has the class value {value}, .* 0 to 1"):
        open_labels(open_prepared(plain).site("alder")).check()


@pytest.mark.parametrize(("dtype", "value"), [("uint8", 2), ("uint8", 255), ("int16", -1)])
def test_a_mask_value_out_of_range_is_found_in_any_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, value: int
) -> None:
    monkeypatch.setattr("feal.data.labels._CHUNK", 64)
    root = tmp_path / "masks"
    with PreparedWriter(
        root, name="masks", task="segmentation", classes=("a", "b"), channels=1, height=4, width=4
    ) as writer:
        ids = [f"s{index:02}" for index in range(11)]
        zeros = np.zeros((11, 4, 4), dtype=np.uint8)
        writer.site("elm").append(ids=ids, images=zeros[:, None], labels=zeros, splits=["train"] * 11)
    masks = zeros.astype(dtype)
    masks[9, 3, 2] = value
    np.save(root / "elm" / "truth.npy", masks)
    with pytest.raises(FealError, match=f"Sample 's09' of site 'elm' has the class value {value}"):
        open_labels(open_prepared(root).site("elm")).check()


def test_a_cut_or_missing_truth(plain: Path) -> None:
    path = plain / "alder" / "truth.npy"
    path.write_bytes(path.read_bytes()[:-1])
    site = open_prepared(plain).site("alder")
    with pytest.raises(FealError, match=r"truth.npy has 135 bytes instead of 136"):
        open_labels(site)
    path.unlink()
    with pytest.raises(FealError, match=r"truth.npy cannot be read"):
        open_labels(site)
