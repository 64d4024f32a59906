"""Arrays in files: rows come out as they went in, however large the file counts as."""

from pathlib import Path

import numpy as np
import pytest

from feal.data.arrays import ArrayWriter, StoredArray, count_rows, write_array


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float16", "int64", "bool", "S7"])
def test_a_whole_array_is_what_numpy_reads(tmp_path: Path, dtype: str) -> None:
    array = np.arange(12).reshape(4, 3).astype(dtype)
    write_array(tmp_path / "a.npy", array)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy", allow_pickle=False), array)


def test_parts_of_any_size_and_memory_layout(tmp_path: Path) -> None:
    array = np.random.default_rng(0).integers(0, 9, (11, 2, 5))
    with ArrayWriter(tmp_path / "a.npy", row=(2, 5), dtype="int64") as writer:
        for part in (array[:0], array[:1], np.asfortranarray(array[1:8]), array[::-1][:3][::-1]):
            writer.append(part)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), array)


@pytest.mark.parametrize("limit", [0, 2**30])
def test_rows_come_in_the_order_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    # With limits of zero every row is announced before and every page let go after reading.
    monkeypatch.setattr("feal.data.arrays._LARGE", limit)
    monkeypatch.setattr("feal.data.arrays._RESIDENT", limit)
    array = np.random.default_rng(0).integers(0, 256, (500, 3, 20, 20), dtype=np.uint8)
    write_array(tmp_path / "a.npy", array)
    stored = StoredArray(tmp_path / "a.npy", shape=array.shape, kinds=("uint8",))
    draw = np.random.default_rng(1)
    for rows in (np.arange(500), np.array([], dtype=np.int64), *draw.integers(0, 500, (20, 32))):
        np.testing.assert_array_equal(stored.read(rows), array[rows])


def test_what_was_read_is_a_copy(tmp_path: Path) -> None:
    write_array(tmp_path / "a.npy", np.zeros((3, 2), dtype=np.uint8))
    stored = StoredArray(tmp_path / "a.npy", shape=(3, 2), kinds=("uint8",))
    part = stored.read(np.array([0, 2]))
    part += 1
    assert stored.array.sum() == 0
    assert not stored.array.flags.writeable


def test_a_writer_that_was_stopped_goes_on_behind_the_rows_it_keeps(tmp_path: Path) -> None:
    path, values = tmp_path / "part.npy", np.arange(60, dtype=np.float32).reshape(10, 2, 3)
    facts = {"row": (2, 3), "dtype": "float32"}
    assert count_rows(path, **facts) == 0
    writer = ArrayWriter(path, **facts)
    writer.append(values[:6])
    writer.append(-values[6:8])
    writer.close(sync=False)
    path.write_bytes(path.read_bytes()[:-1])
    assert count_rows(path, **facts) == 7
    assert count_rows(path, row=(3, 2), dtype="float32") == count_rows(path, row=(2, 3), dtype="int32") == 0
    with ArrayWriter(path, **facts, keep=6) as writer:
        writer.append(values[6:])
    assert np.array_equal(np.load(path), values)
    path.write_bytes(b"half a header")
    assert count_rows(path, **facts) == 0
