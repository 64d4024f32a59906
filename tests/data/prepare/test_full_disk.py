"""A disk that is full at any moment of preparing: one sentence, nothing half-written, a second try succeeds."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from feal.data.prepare import pipeline as preparing
from feal.errors import FealError
from tests.data.prepare.conftest import content, prepared


@contextmanager
def _full_from(size: int) -> Iterator[None]:
    """No file can grow beyond so many bytes: the system itself refuses, also when buffers are emptied late."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [0, 100, 500, 2_000, 20_000, 30_000])
def test_a_full_disk_at_any_file(dataset: Path, size: int) -> None:
    with _full_from(size), pytest.raises(FealError, match=r"^No space left to write .*: free some"):
        prepared(dataset)
    left = sorted(path.name for path in dataset.parent.iterdir())
    assert left in (["download"], [".to.work", "download"])
    assert len(content(prepared(dataset).root)) == 17
    assert sorted(path.name for path in dataset.parent.iterdir()) == ["download", "to"]


@pytest.mark.parametrize("size", [0, 100, 500, 1_000])
def test_a_full_disk_once_all_is_decoded(dataset: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    write = preparing._Job._write

    def late(self: object, *parts: object) -> None:
        with _full_from(size):
            write(self, *parts)

    with monkeypatch.context() as patch:
        patch.setattr(preparing._Job, "_write", late)
        with pytest.raises(FealError, match=r"^No space left to write .*: free some"):
            prepared(dataset)
    assert sorted(path.name for path in dataset.parent.iterdir()) == [".to.work", "download"]
    assert prepared(dataset).fresh
