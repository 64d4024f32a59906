"""Writing: what goes in comes out, whole or not at all."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feal.data import arrays
from feal.data.prepared import open_labels, open_prepared
from feal.data.verify import verify
from feal.data.writer import PreparedWriter
from feal.errors import FealError

FACTS: dict[str, Any] = {
    "name": "tiny",
    "task": "classification",
    "classes": ("a", "b", "c"),
    "channels": 2,
    "height": 3,
    "width": 4,
}


def _part(*ids: str, label: int = 0, seed: int = 0) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    return {
        "ids": list(ids),
        "images": draw.integers(0, 256, (len(ids), 2, 3, 4), dtype=np.uint8),
        "labels": np.full(len(ids), label),
        "splits": ["train"] * len(ids),
    }


def _write(root: Path, *parts: dict[str, Any], **facts: Any) -> None:
    with PreparedWriter(root, **(FACTS | facts)) as writer:
        site = writer.site("alder")
        for part in parts:
            site.append(**part)


def _begin(root: Path, *sites: str) -> None:
    with PreparedWriter(root, **FACTS) as writer:
        for site in sites:
            writer.site(site)


def _nothing_left(folder: Path) -> bool:
    return not any(folder.iterdir())


_ids = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=12)


@settings(max_examples=30, deadline=None)
@given(
    ids=st.lists(_ids, min_size=1, max_size=12, unique=True),
    cut=st.integers(0, 12),
    dtype=st.sampled_from(["uint8", "uint16", "float16"]),
    task=st.sampled_from(["classification", "segmentation"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_round_trip(
    tmp_path_factory: pytest.TempPathFactory, ids: list[str], cut: int, dtype: str, task: str, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    images = draw.integers(0, 200, (len(ids), 2, 3, 4)).astype(dtype)
    truth = draw.integers(0, 3, len(ids) if task == "classification" else (len(ids), 3, 4))
    splits = ["train", *draw.choice(["train", "test"], len(ids) - 1)]
    flags = draw.random(len(ids)) < 0.5
    root = tmp_path_factory.mktemp("trip") / "set"
    parts = [slice(None, cut), slice(cut, None)]
    _write(
        root,
        *(
            {
                "ids": ids[part],
                "images": images[part],
                "labels": truth[part],
                "splits": splits[part],
                "initial": flags[part].tolist(),
            }
            for part in parts
        ),
        dtype=dtype,
        task=task,
    )
    verify(root)
    site = open_prepared(root).site("alder")
    scale = {"uint8": 255, "uint16": 65535, "float16": 1}[dtype]
    assert site.ids().tolist() == sorted(ids)
    np.testing.assert_array_equal(site.images(ids).numpy(), images.astype(np.float32) / np.float32(scale))
    np.testing.assert_array_equal(open_labels(site).of(ids).numpy(), truth)
    by_id = dict(zip(ids, zip(splits, flags, strict=True), strict=True))
    assert site.ids("test").tolist() == [one for one in sorted(ids) if by_id[one][0] == "test"]
    assert site.is_initial().tolist() == [bool(by_id[one][1]) for one in sorted(ids)]


def test_two_writings_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        _write(tmp_path / name, _part("b", "a"), _part("c", seed=1))
    files = [sorted(path for path in (tmp_path / name).rglob("*") if path.is_file()) for name in ("one", "two")]
    assert [path.name for path in files[0]] == [path.name for path in files[1]]
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(*files, strict=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda part: part["images"].astype(np.float32), "float32"),
        (lambda part: part["images"][:, :1], r"shape \(2, 1, 3, 4\)"),
        (lambda part: part["images"][:1], r"shape \(1, 2, 3, 4\)"),
    ],
)
def test_images_of_another_kind(
    tmp_path: Path, change: Callable[[dict[str, Any]], np.ndarray], message: str
) -> None:
    part = _part("a", "b")
    with pytest.raises(FealError, match=message):
        _write(tmp_path / "set", part | {"images": change(part)})
    assert _nothing_left(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": np.array([0, 3])}, "Sample 'b' of site 'alder' has the class value 3"),
        ({"labels": np.array([-1, 0])}, "Sample 'a' of site 'alder' has the class value -1"),
        ({"labels": np.array([0.0, 1.0])}, "float64"),
        ({"labels": np.zeros((2, 3, 4), int)}, "shape"),
        ({"ids": ["a", "a"]}, "'a' twice"),
        ({"ids": ["a", ""]}, "is invalid"),
        ({"ids": ["a", "b\n"]}, "is invalid"),
        ({"ids": ["a", "b\udc80"]}, "is invalid"),
        ({"splits": ["train", "val"]}, "split 'val'"),
    ],
)
def test_bad_samples_leave_nothing_behind(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(FealError, match=message):
        _write(tmp_path / "set", _part("a", "b") | change)
    assert _nothing_left(tmp_path)


def test_a_pixel_that_is_no_number(tmp_path: Path) -> None:
    part = _part("a", "b")
    part["images"] = part["images"].astype(np.float16)
    part["images"][1, 0, 0, 0] = np.nan
    with pytest.raises(FealError, match="Sample 'b' of site 'alder'"):
        _write(tmp_path / "set", part, dtype="float16")


@pytest.mark.parametrize(
    ("facts", "message"),
    [({"dtype": "int32"}, "dtype"), ({"classes": ("a",)}, "two classes"), ({"name": "a b"}, "data set name")],
)
def test_impossible_facts_are_found_before_the_work(tmp_path: Path, facts: dict[str, Any], message: str) -> None:
    with pytest.raises(FealError, match=message):
        PreparedWriter(tmp_path / "set", **(FACTS | facts))
    assert _nothing_left(tmp_path)


def test_sites_missing_empty_twice_or_badly_named(tmp_path: Path) -> None:
    with pytest.raises(FealError, match="has no site"):
        PreparedWriter(tmp_path / "set", **FACTS).__exit__(None, None, None)
    with pytest.raises(FealError, match="'alder' has no training sample"):
        _write(tmp_path / "set")
    with pytest.raises(FealError, match="'alder' occurs twice"):
        _begin(tmp_path / "set", "alder", "alder")
    with pytest.raises(FealError, match="site name 'a/b'"):
        _begin(tmp_path / "set", "a/b")
    assert _nothing_left(tmp_path)


def test_any_exception_leaves_nothing_behind(tmp_path: Path) -> None:
    def interrupted() -> None:
        with PreparedWriter(tmp_path / "set", **FACTS) as writer:
            writer.site("alder").append(**_part("a"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert _nothing_left(tmp_path)


def test_a_full_disk_is_reported_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(arrays.os, "fsync", full)
    with pytest.raises(FealError, match="No space left"):
        _write(tmp_path / "set", _part("a"))
    assert _nothing_left(tmp_path)


def test_the_same_set_again_is_kept_and_another_refused(tmp_path: Path) -> None:
    _write(tmp_path / "set", _part("a"))
    stamp = (tmp_path / "set").stat().st_ino
    _write(tmp_path / "set", _part("a"))
    assert (tmp_path / "set").stat().st_ino == stamp
    with pytest.raises(FealError, match="another prepared data set"):
        _write(tmp_path / "set", _part("b"))
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
    verify(tmp_path / "set")


def test_a_good_copy_is_not_thrown_away_for_a_damaged_one(tmp_path: Path) -> None:
    _write(tmp_path / "set", _part("a"))
    np.load(tmp_path / "set" / "alder" / "images.npy", mmap_mode="r+")[:] = 9
    with pytest.raises(FealError, match=r"alder/images.npy is not the one .*remove the set's folder"):
        _write(tmp_path / "set", _part("a"))


def test_a_place_that_is_taken_is_found_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "notes.txt").write_text("mine")
    with pytest.raises(FealError, match="is not a prepared data set"):
        PreparedWriter(tmp_path / "set", **FACTS)
    assert (tmp_path / "set" / "notes.txt").read_text() == "mine"


def test_writers_at_the_same_time_agree(tmp_path: Path) -> None:
    failed: list[BaseException] = []

    def write() -> None:
        try:
            _write(tmp_path / "set", *(_part(f"s{index:03}", seed=index) for index in range(40)))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert [path.name for path in tmp_path.iterdir()] == ["set"]
    verify(tmp_path / "set")


def test_patients_default_to_one_each(tmp_path: Path) -> None:
    _write(tmp_path / "set", _part("b", "a"))
    assert open_prepared(tmp_path / "set").site("alder").patients().tolist() == ["a", "b"]


def test_unlabelled_samples_are_counted_and_only_train(tmp_path: Path) -> None:
    def write(name: str, splits: list[str], labels: list[int]) -> Path:
        with PreparedWriter(
            tmp_path / name, name="s", task="classification", classes=("a", "b"), channels=1, height=2, width=2
        ) as writer:
            writer.site("alder").append(
                ids=["x", "y"],
                images=np.zeros((2, 1, 2, 2), np.uint8),
                labels=np.array(labels),
                splits=splits,
                labelled=[False, True],
            )
        return tmp_path / name

    root = write("good", ["train", "test"], [7, 1])
    site = open_prepared(root).site("alder")
    assert site.unlabelled == 1
    assert np.load(root / "alder" / "truth.npy").tolist() == [-1, 1]
    with pytest.raises(FealError, match="The test sample 'x' of site 'alder' has no label"):
        write("tested", ["test", "train"], [0, 0])
    with pytest.raises(FealError, match="Sample 'y' of site 'alder' has the class value 2"):
        write("wrong", ["train", "train"], [0, 2])
    manifest = root / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"unlabelled": 1', '"unlabelled": 3'))
    with pytest.raises(FealError, match="invalid number of unlabelled samples"):
        open_prepared(root)
    manifest.write_text(manifest.read_text().replace('"unlabelled": 3', '"unlabelled": 2'))
    with pytest.raises(FealError, match="1 training samples without a label, but the manifest counts 2"):
        open_labels(open_prepared(root).site("alder")).check()
