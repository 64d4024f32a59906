"""Opening, reading, and every way in which a prepared folder can be spoilt."""

import resource
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from feal.data.manifest import Manifest, SiteRecord
from feal.data.prepared import PreparedSet, open_labels, open_prepared
from feal.data.verify import verify
from feal.data.writer import PreparedWriter
from feal.errors import FealError


def _site_of(root: Path, dtype: str, images: np.ndarray) -> Path:
    with PreparedWriter(
        root, name="one", task="classification", classes=("a", "b"), channels=1, height=2, width=2, dtype=dtype
    ) as writer:
        ids = [f"s{index}" for index in range(len(images))]
        labels = np.zeros(len(images), dtype=np.int16)
        writer.site("alder").append(ids=ids, images=images, labels=labels, splits=["train"] * len(images))
    return root


def test_the_facts_of_a_set(plain: Path) -> None:
    prepared = open_prepared(plain)
    assert (prepared.name, prepared.task, prepared.classes) == ("plain", "classification", ("a", "b"))
    assert (prepared.channels, prepared.height, prepared.width) == (1, 2, 3)
    assert prepared.sites == ["alder"]


def test_columns_come_in_order_of_ids(plain: Path) -> None:
    site = open_prepared(plain).site("alder")
    assert site.ids().tolist() == ["s1", "s2", "s3", "s4"]
    assert site.ids("train").tolist() == ["s2", "s3", "s4"]
    assert site.ids("test").tolist() == ["s1"]
    assert site.is_initial("train").tolist() == [False, True, False]
    assert site.patients("train").tolist() == ["p", "p", "r"]
    assert site.sources().tolist() == ["y", "", "x", "z"]


def test_images_follow_the_ids_asked_for(plain: Path) -> None:
    site = open_prepared(plain).site("alder")
    images = site.images(["s4", "s1", "s4"])
    assert images.dtype == torch.float32
    assert images.shape == (3, 1, 2, 3)
    assert (images[:, 0, 0, 0] * 255).round().tolist() == [2, 1, 2]
    assert site.rows(np.array(["s3", "s2"])).tolist() == [0, 3]
    assert site.images([]).shape == (0, 1, 2, 3)


@pytest.mark.parametrize(("dtype", "most"), [("uint8", 255), ("uint16", 65535), ("float16", 1.0)])
def test_stored_values_become_the_unit_interval(tmp_path: Path, dtype: str, most: float) -> None:
    images = np.array([[0, most], [most, 0]], dtype=dtype).reshape(1, 1, 2, 2)
    site = open_prepared(_site_of(tmp_path / "set", dtype, images)).site("alder")
    assert site.images(["s0"]).flatten().tolist() == [0.0, 1.0, 1.0, 0.0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_pixel_that_is_no_number_names_sample_and_site(tmp_path: Path, bad: float) -> None:
    root = _site_of(tmp_path / "set", "float16", np.zeros((3, 1, 2, 2), dtype=np.float16))
    stored = np.load(root / "alder" / "images.npy", mmap_mode="r+")
    stored[1, 0, 1, 0] = bad
    stored.flush()
    site = open_prepared(root).site("alder")
    assert site.images(["s0", "s2"]).shape[0] == 2
    with pytest.raises(FealError, match="Sample 's1' of site 'alder'"):
        site.images(["s0", "s1"])


@pytest.mark.parametrize("wanted", ["s5", "", "s3 and a good deal more", "S1", "ß"])
def test_an_unknown_id_is_named(plain: Path, wanted: str) -> None:
    with pytest.raises(FealError, match=f"no sample '{wanted}'"):
        open_prepared(plain).site("alder").images(["s1", wanted])


def test_an_unknown_split(plain: Path) -> None:
    with pytest.raises(FealError, match="no split 'val'"):
        open_prepared(plain).site("alder").ids("val")


def test_the_truth_is_not_needed(plain: Path) -> None:
    (plain / "alder" / "truth.npy").unlink()
    site = open_prepared(plain).site("alder")
    assert len(site.images(site.ids("train"))) == 3


def test_an_unknown_site_and_a_missing_folder(plain: Path) -> None:
    with pytest.raises(FealError, match="did you mean 'alder'"):
        open_prepared(plain).site("adler")
    (plain / "alder").rename(plain / "elsewhere")
    with pytest.raises(FealError, match="of site 'alder' is missing"):
        open_prepared(plain).site("alder")


@pytest.mark.parametrize("file", ["images.npy", "samples/id.npy", "samples/row.npy"])
@pytest.mark.parametrize("size", [0, 5, 100, -1])
def test_a_cut_file_is_named(plain: Path, file: str, size: int) -> None:
    path = plain / "alder" / file
    content = path.read_bytes()
    path.write_bytes(content[:size] if size >= 0 else content + b"x")
    with pytest.raises(FealError, match=f"{file}.*prepare the data set again"):
        open_prepared(plain).site("alder")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((4, 2, 3), np.uint8), "has the shape"),
        (np.zeros((3, 1, 2, 3), np.uint8), "has the shape"),
        (np.zeros((4, 1, 2, 3), np.float32), "float32"),
        (np.asfortranarray(np.zeros((4, 1, 2, 3), np.uint8)), "column by column"),
    ],
)
def test_another_array_than_the_manifest_says(plain: Path, array: np.ndarray, message: str) -> None:
    np.save(plain / "alder" / "images.npy", array)
    with pytest.raises(FealError, match=message):
        open_prepared(plain).site("alder")


def test_pickled_objects_are_refused(plain: Path) -> None:
    np.save(
        plain / "alder" / "samples" / "id.npy", np.array(["a", "b", "c", "d"], dtype=object), allow_pickle=True
    )
    with pytest.raises(FealError, match="holds values of type object"):
        open_prepared(plain).site("alder")


@pytest.mark.parametrize(
    ("file", "column", "message"),
    [
        ("id", np.array([b"s1", b"s2", b"s2", b"s4"]), "the sample id 's2' twice"),
        ("id", np.array([b"s1", b"s3", b"s2", b"s4"]), "not in order"),
        ("row", np.array([0, 1, 1, 3]), "not in order"),
        ("row", np.array([0, 1, 2, 4]), "not in order"),
        ("split", np.array([b"test"] * 4), "no training sample"),
    ],
)
def test_a_spoilt_table(plain: Path, file: str, column: np.ndarray, message: str) -> None:
    np.save(plain / "alder" / "samples" / f"{file}.npy", column)
    with pytest.raises(FealError, match=message):
        open_prepared(plain).site("alder")


def test_verify_accepts_what_was_written_and_finds_one_changed_byte(plain: Path) -> None:
    verify(plain)
    path = plain / "alder" / "truth.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    open_prepared(plain).site("alder")
    with pytest.raises(FealError, match=r"truth.npy.*checksum"):
        verify(plain)
    path.unlink()
    with pytest.raises(FealError, match=r"truth.npy.*missing"):
        verify(plain)


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
    monkeypatch.setattr("feal.data.prepared._CHUNK", 64)
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


def _hollow(root: Path, samples: int) -> Path:
    """A set whose image file is a hole of the right size: 27 GB of patches that take no space."""
    folder = root / "alder" / "samples"
    folder.mkdir(parents=True)
    with (root / "alder" / "images.npy").open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (samples, 3, 96, 96)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + samples * 3 * 96 * 96)
    np.save(folder / "id.npy", np.array([b"alder-%07d" % index for index in range(samples)]))
    np.save(folder / "patient.npy", np.zeros(samples, dtype="S8"))
    np.save(folder / "source.npy", np.zeros(samples, dtype="S8"))
    np.save(folder / "split.npy", np.where(np.arange(samples) % 5, b"train", b"test"))
    np.save(folder / "given.npy", np.zeros(samples, dtype=np.bool_))
    np.save(folder / "row.npy", np.arange(samples))
    manifest = Manifest(
        name="hollow",
        task="classification",
        classes=("a", "b"),
        channels=3,
        height=96,
        width=96,
        dtype="uint8",
        sites={"alder": SiteRecord(samples=samples, checksums={})},
        source={},
    )
    (root / "manifest.json").write_bytes(manifest.encode())
    return root


def test_a_million_samples_open_at_once_and_stay_on_the_disk(tmp_path: Path) -> None:
    root = _hollow(tmp_path / "set", 1_000_000)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    site = open_prepared(root).site("alder")
    opened = time.process_time() - start
    rows = site.rows(site.ids("train")[::997])
    for part in np.array_split(np.tile(rows, 8), 100):
        assert site.read(part).shape[1:] == (3, 96, 96)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert opened < 1.0
    # Eight passes read 180 MB; the map lets its pages go after 64 MB.
    assert grown < 200 * 1024
