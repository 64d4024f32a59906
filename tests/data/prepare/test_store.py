"""Stored samples: an interrupted or killed preparation goes on to the same bytes, and pixels are written once."""

import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from feal.data.arrays import ArrayWriter
from feal.data.prepare import pipeline
from feal.data.prepare.base import DecodedSample, FindingsError, SourceRecord
from feal.data.prepare.pipeline import prepare_dataset
from feal.errors import FealError
from tests.data.prepare.conftest import Blobs, content, picture, prepared
from tests.paths import PROJECT


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "_CHUNK_RECORDS", 4)


def whole(dataset: Path) -> dict[str, bytes]:
    """The set without any interruption."""
    return content(prepare_dataset(Blobs(), dataset, dataset.parent / "whole", threads=1).root)


def test_the_number_of_threads_changes_no_byte(dataset: Path) -> None:
    expected = whole(dataset)
    for threads in (2, 3, 30):
        root = prepare_dataset(Blobs(), dataset, dataset.parent / str(threads), threads=threads).root
        assert content(root) == expected


def test_threads_decode_at_the_same_time(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting, read = threading.Barrier(3, timeout=60), Blobs.read

    def together(self: Blobs, record: SourceRecord, *, size: int) -> list[DecodedSample]:
        if record.id in ("00", "01", "02"):
            meeting.wait()
        return read(self, record, size=size)

    monkeypatch.setattr(Blobs, "read", together)
    assert prepare_dataset(Blobs(), dataset, dataset.parent / "to", threads=3).fresh


def test_a_mistake_of_a_class_in_a_thread_is_a_sentence_and_keeps_what_was_decoded(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, read, seen = whole(dataset), Blobs.read, []

    def failing(self: Blobs, record: SourceRecord, *, size: int) -> list[DecodedSample]:
        if (record.site, record.id) == ("birch", "05"):
            raise IndexError("beyond")
        return read(self, record, size=size)

    monkeypatch.setattr(Blobs, "read", failing)
    with pytest.raises(FealError, match=r"Blobs fails to read .*05.png \(IndexError: beyond\): correct the class"):
        prepare_dataset(Blobs(), dataset, dataset.parent / "to", threads=2)

    def noted(self: Blobs, record: SourceRecord, *, size: int) -> list[DecodedSample]:
        seen.append((record.site, record.id))
        return read(self, record, size=size)

    monkeypatch.setattr(Blobs, "read", noted)
    assert content(prepare_dataset(Blobs(), dataset, dataset.parent / "to", threads=2).root) == expected
    assert sorted(seen) == [("birch", f"{number:02}") for number in range(4, 10)]


def test_warnings_are_ignored_meanwhile_and_heard_afterwards(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Blobs.read

    def warning(self: Blobs, record: SourceRecord, *, size: int) -> list[DecodedSample]:
        warnings.warn("an oddity", UserWarning, stacklevel=1)
        return read(self, record, size=size)

    monkeypatch.setattr(Blobs, "read", warning)
    before = list(warnings.filters)
    for threads in (1, 3):
        prepare_dataset(Blobs(), dataset, dataset.parent / str(threads), threads=threads)
        assert warnings.filters == before


def test_a_second_try_decodes_only_what_is_missing(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, read, seen = whole(dataset), Blobs.read, []

    def interrupted(self: Blobs, record: SourceRecord, *, size: int) -> list[DecodedSample]:
        seen.append(record.id)
        if len(seen) == 11:
            raise KeyboardInterrupt
        return read(self, record, size=size)

    monkeypatch.setattr(Blobs, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepared(dataset)
    assert not (dataset.parent / "to").exists()
    assert content(prepared(dataset).root) == expected
    assert len(seen) == 11 + 10  # the chunks of alder have 4, 4 and 2 records
    assert not list(dataset.parent.glob(".to*"))


def test_pixels_are_written_once(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append, written = ArrayWriter.append, []

    def noted(self: ArrayWriter, part: np.ndarray) -> None:
        written.append(part.shape)
        append(self, part)

    monkeypatch.setattr(ArrayWriter, "append", noted)
    prepared(dataset)
    assert written.count((1, 3, 32, 32)) == written.count((1, 32, 32)) == 20


def test_a_mended_file_between_others_gives_the_set_of_good_files(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, read, seen = whole(dataset), Blobs.read, []
    good = (dataset / "alder" / "05.png").read_bytes()
    (dataset / "alder" / "05.png").write_bytes(good[:200])
    with pytest.raises(FindingsError, match=r"1 problem was found .*decoded samples are kept in .*\.to\.work"):
        prepared(dataset)
    (dataset / "alder" / "05.png").write_bytes(good)

    def noted(self: Blobs, record: SourceRecord, *, size: int) -> list[DecodedSample]:
        seen.append(record.id)
        return read(self, record, size=size)

    monkeypatch.setattr(Blobs, "read", noted)
    assert content(prepared(dataset).root) == expected
    assert seen == ["04", "05", "06", "07"]


def test_a_file_that_was_decoded_and_is_gone_leaves_no_row(dataset: Path) -> None:
    (dataset / "alder" / "masks" / "00.png").unlink()
    with pytest.raises(FindingsError):
        prepared(dataset)
    for name in ("00.png", "08.png", "masks/08.png", "09.png", "masks/09.png"):
        (dataset / "alder" / name).unlink()
    shutil.rmtree(dataset / "birch")
    assert content(prepared(dataset).root) == whole(dataset)


def test_a_file_system_without_links(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = whole(dataset)

    def refused(self: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted", str(target))

    monkeypatch.setattr(Path, "hardlink_to", refused)
    assert content(prepared(dataset).root) == expected


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_set_that_was_completed_before_a_kill_is_not_written_to(
    dataset: Path, monkeypatch: pytest.MonkeyPatch, is_changed: bool
) -> None:
    first = dataset / "alder" / "00.png"
    Image.fromarray(picture(78)).save(first, format="BMP")
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "write_json", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            prepared(dataset)
    root = dataset.parent / "to"
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert list(dataset.parent.glob(".to.work/*.json"))
    if is_changed:
        Image.fromarray(picture(79)).save(first, format="BMP")  # of the same size, so that the set seems the same
        with pytest.raises(FealError, match="already holds another prepared data set"):
            prepared(dataset)
    else:
        assert prepared(dataset).fresh
    assert {path: path.read_bytes() for path in before} == before


def test_a_damaged_store_is_named(dataset: Path) -> None:
    (dataset / "alder" / "masks" / "00.png").unlink()
    with pytest.raises(FindingsError):
        prepared(dataset)
    images = dataset.parent / ".to.work" / "birch" / "images.npy"
    images.write_bytes(images.read_bytes()[:200])
    with pytest.raises(
        FealError, match=r"birch/images.npy is damaged: remove .*\.to\.work and repeat the command"
    ):
        prepared(dataset, skip_bad=True)


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from feal.data.prepare import pipeline
    from tests.data.prepare.conftest import Blobs

    pipeline._CHUNK_RECORDS = 4
    if sys.argv[3] == "decoding":
        read = Blobs.read
        def dying(self, draft, *, size):
            if (draft.site, draft.id) == ("birch", "02"):
                os.kill(os.getpid(), signal.SIGKILL)
            return read(self, draft, size=size)
        Blobs.read = dying
    else:
        def dying(self):
            os.kill(os.getpid(), signal.SIGKILL)
        pipeline.PreparedWriter._finish = dying
    pipeline.prepare_dataset(Blobs(), Path(sys.argv[1]), Path(sys.argv[2]), threads=1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["decoding", "writing"])
def test_killed_and_resumed_gives_the_same_bytes(dataset: Path, moment: str) -> None:
    to = dataset.parent / "to"
    words = [sys.executable, "-c", textwrap.dedent(KILLED), dataset, to, moment]
    assert subprocess.run(words, cwd=PROJECT, check=False).returncode == -signal.SIGKILL
    assert not to.exists()
    assert list(dataset.parent.glob(".to.work/*.json"))
    resumed = content(prepared(dataset).root)
    assert not list(dataset.parent.glob(".to*"))
    assert resumed == whole(dataset)
