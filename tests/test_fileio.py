import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from feal import fileio
from feal.errors import FealError


def test_a_failed_write_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    fileio.write_text(path, "old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FealError, match=r"No space left to write .*a\.txt"):
        fileio.write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_tensors_come_back_only_if_nothing_touched_them(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    sha256 = fileio.write_tensors(path, {"a": torch.arange(5)})
    assert torch.equal(fileio.read_tensors(path, sha256=sha256)["a"], torch.arange(5))
    whole = path.read_bytes()
    for damage in (whole[:-1], whole[:-1] + b"x", b""):
        path.write_bytes(damage)
        with pytest.raises(FealError, match=r"w\.safetensors is damaged"):
            fileio.read_tensors(path, sha256=sha256)
    path.unlink()
    with pytest.raises(FealError, match="damaged"):
        fileio.read_tensors(path, sha256=sha256)


def test_json_is_refused_when_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    fileio.write_json(path, {"a": [1, 2]})
    path.write_text(path.read_text()[:-4])
    with pytest.raises(FealError, match=r"a\.json is damaged"):
        fileio.read_json(path)
    with pytest.raises(FealError, match="missing"):
        fileio.read_json(tmp_path / "b.json")


def test_a_folder_is_held_by_one_process(tmp_path: Path) -> None:
    assert not fileio.is_locked(tmp_path)
    attempt = (
        "from pathlib import Path; from feal.fileio import lock_directory; "
        f"lock_directory(Path({str(tmp_path)!r})).__enter__()"
    )
    with fileio.lock_directory(tmp_path):
        assert fileio.is_locked(tmp_path)
        other = subprocess.run([sys.executable, "-c", attempt], capture_output=True, text=True, timeout=60)
    assert other.returncode == 1
    assert f"Process {os.getpid()} is working on" in other.stderr
    assert not fileio.is_locked(tmp_path)
    with fileio.lock_directory(tmp_path):
        pass


def test_an_unwritable_folder_is_said(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(FealError, match=r"a\.txt could not be written"):
        fileio.write_text(blocker / "a.txt", "x")


def test_a_whole_folder_appears_at_the_end(tmp_path: Path) -> None:
    final = tmp_path / "deep" / "folder"
    with fileio.atomic_directory(final) as partial:
        (partial / "a").write_text("a")
        assert not final.exists()
    assert [path.name for path in final.iterdir()] == ["a"]
    assert [path.name for path in final.parent.iterdir()] == ["folder"]


def test_a_whole_folder_that_fails_is_gone(tmp_path: Path) -> None:
    with (
        pytest.raises(FealError, match="No space left to write .*folder"),
        fileio.atomic_directory(tmp_path / "folder"),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fill() -> None:
        with fileio.atomic_directory(tmp_path / "folder") as partial:
            (partial / "a").write_text("a")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill()
    assert list(tmp_path.iterdir()) == []


def test_a_whole_folder_takes_no_place_that_is_taken(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for taken in (tmp_path, tmp_path / "file"):
        with pytest.raises(FealError, match="choose another --out"), fileio.atomic_directory(taken):
            pytest.fail("entered")
    assert (tmp_path / "file").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("has_links", [True, False])
def test_a_file_gets_another_name_or_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    def refused(self: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    if not has_links:
        monkeypatch.setattr(Path, "hardlink_to", refused)
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(b"new")
    target.write_bytes(b"old")
    fileio.link_or_copy(source, target)
    assert target.read_bytes() == b"new"
    assert target.samefile(source) == has_links


def test_a_copy_by_hard_links_keeps_what_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"before")
    os.link(tmp_path / "model", tmp_path / "copy")
    fileio.overwrite_bytes(tmp_path / "model", b"after")
    assert ((tmp_path / "model").read_bytes(), (tmp_path / "copy").read_bytes()) == (b"after", b"before")
