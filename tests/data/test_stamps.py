"""A set is compared with its checksums in every run, and read for it once."""

import json
import os
import shutil
from pathlib import Path

import pytest

from feal.data import prepared, stamps
from feal.data.prepared import open_prepared
from feal.data.stamps import check_once
from feal.errors import FealError
from feal.experiment import resume, start
from tests.runs import tiny


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were read, in order."""
    names: list[str] = []

    def reading(path: Path) -> str:
        names.append(path.name)
        return prepared.file_checksum(path)

    monkeypatch.setattr(stamps, "file_checksum", reading)
    return names


def _spoil(path: Path) -> None:
    """Another pixel; size and shape stay."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_a_file_is_read_once(plain: Path, read: list[str]) -> None:
    check_once(open_prepared(plain), "alder")
    assert sorted(read) == sorted(path.name for path in (plain / "alder").rglob("*.npy"))
    read.clear()
    check_once(open_prepared(plain), "alder")
    assert read == []


def test_a_touched_file_is_read_again_and_an_altered_one_refused(plain: Path, read: list[str]) -> None:
    check_once(open_prepared(plain), "alder")
    read.clear()
    os.utime(plain / "alder" / "images.npy")
    check_once(open_prepared(plain), "alder")
    assert read == ["images.npy"]
    _spoil(plain / "alder" / "images.npy")
    for _ in range(2):
        with pytest.raises(
            FealError, match=r"alder/images.npy is not the one that was prepared .*copy it again, or"
        ):
            check_once(open_prepared(plain), "alder")


def test_another_set_in_the_same_place_is_read(plain: Path, read: list[str]) -> None:
    check_once(open_prepared(plain), "alder")
    manifest = json.loads((plain / "manifest.json").read_text())
    manifest["sites"]["alder"]["checksums"]["images.npy"] = "0" * 64
    (plain / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(FealError, match=r"images.npy is not the one"):
        check_once(open_prepared(plain), "alder")


@pytest.mark.parametrize("left", ["", "[]", '{"images.npy": 7}', '{"images.npy": [1, 2]}'])
def test_damaged_notes_count_for_nothing(plain: Path, read: list[str], left: str) -> None:
    notes = plain.with_name(".plain.checked") / "alder.json"
    notes.parent.mkdir()
    notes.write_text(left)
    check_once(open_prepared(plain), "alder")
    assert "images.npy" in read
    assert json.loads(notes.read_text())["images.npy"][2] == prepared.file_checksum(plain / "alder" / "images.npy")


def test_notes_of_a_set_that_cannot_be_written_beside_are_in_the_cache(
    plain: Path, read: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    plain.with_name(".plain.checked").touch()  # a file in the place of the folder: nobody can write there
    check_once(open_prepared(plain), "alder")
    read.clear()
    check_once(open_prepared(plain), "alder")
    assert read == []
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "cache").touch()
    check_once(open_prepared(plain), "alder")
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
