"""Everything that is wrong with a prepared set, and its counts against numpy's."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from feal.data import verify as verify_module
from feal.data.prepared import PreparedSet, open_labels, open_prepared
from feal.data.verify import check_files, compute_checksum, find_problems, verify
from feal.errors import FealError
from feal.experiment import resume, start
from tests.prepared import write_prepared
from tests.runs import tiny


def test_a_whole_set_has_no_problem(plain: Path) -> None:
    assert list(find_problems(open_prepared(plain))) == []


def test_all_problems_are_named(tmp_path: Path) -> None:
    root = write_prepared(tmp_path / "set")
    truth = np.load(root / "birch" / "truth.npy", mmap_mode="r+")
    truth[3] = 9
    truth.flush()
    (root / "alder" / "images.npy").unlink()
    (root / "alder" / "samples" / "given.npy").write_bytes(b"x")
    found = [(path.relative_to(root).as_posix(), problem) for path, problem in find_problems(open_prepared(root))]
    assert [file for file, _ in found] == [
        "alder/images.npy",
        "alder/samples/given.npy",
        "alder",
        "birch/truth.npy",
        "birch",
    ]
    assert found[0][1] == "is missing"
    assert "differs from its checksum" in found[1][1]
    assert "Sample 'birch-0003' of site 'birch' has the class value 9" in found[4][1]


def test_a_file_without_a_checksum_is_named(plain: Path) -> None:
    manifest = plain / "manifest.json"
    content = json.loads(manifest.read_text())
    listed = content["sites"]["alder"]["checksums"]
    content["sites"]["alder"]["checksums"] = {}
    manifest.write_text(json.dumps(content))
    found = [path.relative_to(plain / "alder").as_posix() for path, _ in find_problems(open_prepared(plain))]
    assert found == sorted(listed)
    with pytest.raises(FealError, match="is not the one that was prepared"):
        verify(plain)


@pytest.mark.parametrize("kind", ["lesions", "polyps"])
def test_counts(kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("feal.data.prepared._CHUNK", 5000)
    data: PreparedSet = request.getfixturevalue(kind)
    site = data.site("alder")
    counts = open_labels(site).count_classes()
    for split in ("train", "test"):
        truths = open_labels(site).of(site.ids(split)).numpy().reshape(len(site.ids(split)), -1)
        expected = [int((truths == number).any(axis=1).sum()) for number in range(len(data.classes))]
        assert counts[split].tolist() == [*expected, 0]
    assert np.concatenate(list(counts.values())).dtype == np.int64


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were read, in order."""
    names: list[str] = []

    def reading(path: Path) -> str:
        names.append(path.name)
        return compute_checksum(path)

    monkeypatch.setattr(verify_module, "compute_checksum", reading)
    return names


def _spoil(path: Path) -> None:
    """Another pixel; size and shape stay."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_a_file_is_read_once(plain: Path, read: list[str]) -> None:
    check_files(open_prepared(plain), "alder", cached=True)
    assert sorted(read) == sorted(path.name for path in (plain / "alder").rglob("*.npy"))
    read.clear()
    check_files(open_prepared(plain), "alder", cached=True)
    assert read == []


def test_a_touched_file_is_read_again_and_an_altered_one_refused(plain: Path, read: list[str]) -> None:
    check_files(open_prepared(plain), "alder", cached=True)
    read.clear()
    os.utime(plain / "alder" / "images.npy")
    check_files(open_prepared(plain), "alder", cached=True)
    assert read == ["images.npy"]
    _spoil(plain / "alder" / "images.npy")
    for _ in range(2):
        with pytest.raises(
            FealError, match=r"alder/images.npy is not the one that was prepared .*copy it again, or"
        ):
            check_files(open_prepared(plain), "alder", cached=True)


def test_another_set_in_the_same_place_is_read(plain: Path, read: list[str]) -> None:
    check_files(open_prepared(plain), "alder", cached=True)
    manifest = json.loads((plain / "manifest.json").read_text())
    manifest["sites"]["alder"]["checksums"]["images.npy"] = "0" * 64
    (plain / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(FealError, match=r"images.npy is not the one"):
        check_files(open_prepared(plain), "alder", cached=True)


@pytest.mark.parametrize("left", ["", "[]", '{"images.npy": 7}', '{"images.npy": [1, 2]}'])
def test_damaged_notes_count_for_nothing(plain: Path, read: list[str], left: str) -> None:
    notes = plain.with_name(".plain.checked") / "alder.json"
    notes.parent.mkdir()
    notes.write_text(left)
    check_files(open_prepared(plain), "alder", cached=True)
    assert "images.npy" in read
    assert json.loads(notes.read_text())["images.npy"][2] == compute_checksum(plain / "alder" / "images.npy")


def test_notes_of_a_set_that_cannot_be_written_beside_are_in_the_cache(
    plain: Path, read: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    plain.with_name(".plain.checked").touch()  # a file in the place of the folder: nothing can be written there
    check_files(open_prepared(plain), "alder", cached=True)
    read.clear()
    check_files(open_prepared(plain), "alder", cached=True)
    assert read == []
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "cache").touch()
    check_files(open_prepared(plain), "alder", cached=True)
    assert "images.npy" in read


def test_a_run_on_an_altered_set_is_refused_and_begins_nothing(tmp_path: Path) -> None:
    run = start(tiny(data=str(tmp_path / "data")), out=tmp_path / "run").folder
    [root] = (path for path in (tmp_path / "data").iterdir() if (path / "manifest.json").is_file())
    images = root / "birch" / "images.npy"
    good = images.read_bytes()
    _spoil(images)
    with pytest.raises(FealError, match=r"birch/images.npy is not the one that was prepared"):
        start(tiny(data=str(tmp_path / "data")), out=tmp_path / "second")
    assert not (tmp_path / "second").exists()
    more = tiny(data=str(tmp_path / "data"), rounds=9)
    with pytest.raises(FealError, match=r"birch/images.npy is not the one that was prepared"):
        resume(run, settings=more)
    images.write_bytes(good)
    start(tiny(data=str(tmp_path / "data")), out=tmp_path / "second")
