"""Several processes, and those that are killed: the same bytes, and nobody left behind."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from feal.data.prepare import pipeline
from feal.data.prepare.base import DecodedSample, SourceRecord
from feal.data.prepare.pipeline import prepare_dataset
from feal.errors import FealError
from tests.data.prepare.conftest import Blobs, content, prepared
from tests.paths import PROJECT


@pytest.mark.slow
def test_the_number_of_processes_changes_no_byte(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "_CHUNK_RECORDS", 3)
    monkeypatch.setattr(pipeline, "_PARALLEL_SECONDS", 0.0)
    one = prepare_dataset(Blobs(), dataset, dataset.parent / "one", processes=1)
    two = prepare_dataset(Blobs(), dataset, dataset.parent / "two", processes=2)
    assert content(one.root) == content(two.root)


def test_a_second_try_decodes_only_what_is_missing(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "_CHUNK_RECORDS", 4)
    whole = content(prepare_dataset(Blobs(), dataset, dataset.parent / "whole", processes=1).root)
    read, seen = Blobs.read, []

    def interrupted(self: Blobs, record: SourceRecord, *, size: int) -> list[DecodedSample]:
        seen.append(record.id)
        if len(seen) == 10:
            raise KeyboardInterrupt
        return read(self, record, size=size)

    monkeypatch.setattr(Blobs, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepared(dataset)
    assert not (dataset.parent / "to").exists()
    assert content(prepared(dataset).root) == whole
    assert len(seen) == 10 + 12
    assert not list(dataset.parent.glob(".to*"))


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from feal.data.prepare import pipeline
    from tests.data.prepare.conftest import Blobs

    pipeline._CHUNK_RECORDS = 4
    if sys.argv[3] == "decoding":
        read = Blobs.read
        def dying(self, draft, *, size):
            if draft.site == "birch":
                os.kill(os.getpid(), signal.SIGKILL)
            return read(self, draft, size=size)
        Blobs.read = dying
    else:
        def dying(self):
            os.kill(os.getpid(), signal.SIGKILL)
        pipeline.PreparedWriter._finish = dying
    pipeline.prepare_dataset(Blobs(), Path(sys.argv[1]), Path(sys.argv[2]), processes=1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["decoding", "writing"])
def test_killed_and_resumed_gives_the_same_bytes(
    dataset: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "_CHUNK_RECORDS", 4)
    to = dataset.parent / "to"
    words = [sys.executable, "-c", textwrap.dedent(KILLED), dataset, to, moment]
    assert subprocess.run(words, cwd=PROJECT, check=False).returncode == -signal.SIGKILL
    assert not to.exists()
    assert list(dataset.parent.glob(".to.work/*.json"))
    resumed = content(prepared(dataset).root)
    assert not list(dataset.parent.glob(".to*"))
    assert resumed == content(prepare_dataset(Blobs(), dataset, dataset.parent / "whole", processes=1).root)


class Dying(Blobs):
    """Takes its process with it at one picture."""

    def read(self, record: SourceRecord, *, size: int) -> list[DecodedSample]:
        if (record.site, record.id) == ("alder", "07"):
            os._exit(9)
        return list(super().read(record, size=size))


class Waiting(Blobs):
    """Says that it works, and works for ever."""

    def read(self, record: SourceRecord, *, size: int) -> list[DecodedSample]:
        if (record.site, int(record.id)) < ("alder", 4):
            return list(super().read(record, size=size))
        record.image.with_suffix(f".{os.getpid()}").touch()
        time.sleep(600)
        return []


@pytest.mark.slow
def test_a_process_that_dies_is_a_sentence(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "_CHUNK_RECORDS", 4)
    monkeypatch.setattr(pipeline, "_PARALLEL_SECONDS", 0.0)
    with pytest.raises(FealError, match="A process that decodes images died, .*fewer --processes"):
        prepare_dataset(Dying(), dataset, dataset.parent / "to", processes=2)
    assert not (dataset.parent / "to").exists()


@pytest.mark.slow
def test_processes_end_with_the_one_that_started_them(dataset: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        from feal.data.prepare import pipeline
        from tests.data.prepare.test_pipeline_processes import Waiting
        pipeline._CHUNK_RECORDS = 4
        pipeline._PARALLEL_SECONDS = 0.0
        pipeline.prepare_dataset(Waiting(), Path(sys.argv[1]), Path(sys.argv[1]).parent / "to", processes=2)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), dataset], cwd=PROJECT) as parent:
        try:
            children = _until(lambda: [int(path.suffix[1:]) for path in dataset.rglob("*.[0-9]*")], count=2)
        finally:
            parent.kill()
    _until(lambda: [child for child in children if not _lives(child)], count=2)


def _until(found: Callable[[], list[int]], *, count: int) -> list[int]:
    end = time.monotonic() + 60
    while len(found()) < count:
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)
    return found()


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
