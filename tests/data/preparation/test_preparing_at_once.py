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

from feal.data.preparation import chunks, workers
from feal.data.preparation.contract import Draft, Piece
from feal.data.preparation.preparing import prepare
from feal.errors import FealError
from tests.data.preparation.conftest import Blobs, content, prepared
from tests.paths import PROJECT


@pytest.mark.slow
def test_the_number_of_processes_changes_no_byte(download: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_DRAFTS", 3)
    monkeypatch.setattr(workers, "_WORTH", 0.0)
    one = prepare(Blobs(), download, download.parent / "one", processes=1)
    two = prepare(Blobs(), download, download.parent / "two", processes=2)
    assert content(one.root) == content(two.root)


def test_a_second_try_decodes_only_what_is_missing(download: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_DRAFTS", 4)
    whole = content(prepare(Blobs(), download, download.parent / "whole", processes=1).root)
    read, seen = Blobs.read, []

    def interrupted(self: Blobs, draft: Draft, *, size: int) -> list[Piece]:
        seen.append(draft.id)
        if len(seen) == 10:
            raise KeyboardInterrupt
        return read(self, draft, size=size)

    monkeypatch.setattr(Blobs, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepared(download)
    assert not (download.parent / "to").exists()
    assert content(prepared(download).root) == whole
    assert len(seen) == 10 + 12
    assert not list(download.parent.glob(".to*"))


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from feal.data.preparation import chunks, preparing
    from tests.data.preparation.conftest import Blobs

    chunks._DRAFTS = 4
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
        preparing.PreparedWriter._finish = dying
    preparing.prepare(Blobs(), Path(sys.argv[1]), Path(sys.argv[2]), processes=1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["decoding", "writing"])
def test_killed_and_resumed_gives_the_same_bytes(
    download: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "_DRAFTS", 4)
    to = download.parent / "to"
    words = [sys.executable, "-c", textwrap.dedent(KILLED), download, to, moment]
    assert subprocess.run(words, cwd=PROJECT, check=False).returncode == -signal.SIGKILL
    assert not to.exists()
    assert list(download.parent.glob(".to.work/*.json"))
    resumed = content(prepared(download).root)
    assert not list(download.parent.glob(".to*"))
    assert resumed == content(prepare(Blobs(), download, download.parent / "whole", processes=1).root)


class Dying(Blobs):
    """Takes its process with it at one picture."""

    def read(self, draft: Draft, *, size: int) -> list[Piece]:
        if (draft.site, draft.id) == ("alder", "07"):
            os._exit(9)
        return list(super().read(draft, size=size))


class Waiting(Blobs):
    """Says that it works, and works for ever."""

    def read(self, draft: Draft, *, size: int) -> list[Piece]:
        if (draft.site, int(draft.id)) < ("alder", 4):
            return list(super().read(draft, size=size))
        draft.image.with_suffix(f".{os.getpid()}").touch()
        time.sleep(600)
        return []


@pytest.mark.slow
def test_a_process_that_dies_is_a_sentence(download: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_DRAFTS", 4)
    monkeypatch.setattr(workers, "_WORTH", 0.0)
    with pytest.raises(FealError, match="A process that decodes pictures died, .*fewer --processes"):
        prepare(Dying(), download, download.parent / "to", processes=2)
    assert not (download.parent / "to").exists()


@pytest.mark.slow
def test_processes_end_with_the_one_that_started_them(download: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        from feal.data.preparation import chunks, preparing, workers
        from tests.data.preparation.test_preparing_at_once import Waiting
        chunks._DRAFTS = 4
        workers._WORTH = 0.0
        preparing.prepare(Waiting(), Path(sys.argv[1]), Path(sys.argv[1]).parent / "to", processes=2)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), download], cwd=PROJECT) as parent:
        try:
            children = _until(lambda: [int(path.suffix[1:]) for path in download.rglob("*.[0-9]*")], count=2)
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
