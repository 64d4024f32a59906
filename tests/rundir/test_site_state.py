"""Models beside a site's database: what is written over, what is hashed again, and what stays."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from feal import fileio
from feal.errors import FealError
from feal.rundir.layout import SiteDirectory
from feal.rundir.site_state import ModelFiles, RoundModels, SiteState

WEIGHTS = {"conv.weight": torch.arange(6.0).reshape(2, 3), "count": torch.tensor(3)}
MOMENTS = {"step": torch.tensor([1.0]), "exp_avg": torch.rand(6)}


@pytest.fixture
def directory(tmp_path: Path) -> SiteDirectory:
    return SiteDirectory(tmp_path)


def _same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_weights_and_moments_come_back_apart(directory: SiteDirectory) -> None:
    for files in (models := ModelFiles(directory)), ModelFiles(directory):
        file = models.write("local", WEIGHTS, state=SiteState(), moments=MOMENTS)
        assert _same(files.read_weights(file), WEIGHTS)
        assert _same(files.read_moments(file), MOMENTS)


def test_a_file_of_the_committed_state_is_never_written_over(directory: SiteDirectory) -> None:
    models = ModelFiles(directory)
    state = SiteState(key="k")
    for number in range(6):
        weights = {"w": torch.full((3,), float(number))}
        local = models.write("local", weights, state=state)
        assert local.name not in state.files()
        state = replace(state, local=local)
        if number % 2:
            state = state.with_closed(RoundModels(number, models.write("global", weights, state=state), local))
        for end in state.closed:
            assert _same(models.read_weights(end.local), {"w": torch.full((3,), float(end.round))})
        assert _same(models.read_weights(local), weights)
    # Two rounds' models, the last one trained, and of each kind one to write over.
    assert len(list(directory.models.iterdir())) == 4 + 3


def test_a_shorter_model_leaves_nothing_of_the_longer_one(directory: SiteDirectory) -> None:
    models = ModelFiles(directory)
    models.write("local", {"w": torch.ones(1000)}, state=SiteState())
    file = models.write("local", {"w": torch.ones(2)}, state=SiteState())
    assert _same(ModelFiles(directory).read_weights(file), {"w": torch.ones(2)})


def _alter(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def _replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes()[:-1] + b"x")
    seen = path.stat()
    os.utime(other, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize("how", [_alter, _replace, Path.unlink, lambda path: os.truncate(path, 9)])
@pytest.mark.parametrize("is_own", [True, False])
def test_damage_is_said(directory: SiteDirectory, how: Callable[[Path], None], is_own: bool) -> None:
    models = ModelFiles(directory)
    file = models.write("local", WEIGHTS, state=SiteState(), moments=MOMENTS)
    how(directory.models / file.name)
    with pytest.raises(FealError, match=r"local-0\.safetensors is damaged"):
        (models if is_own else ModelFiles(directory)).read_weights(file)


def test_only_another_process_hashes_a_file_again(
    directory: SiteDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[object] = []
    digest = fileio.hashlib.file_digest
    monkeypatch.setattr(fileio.hashlib, "file_digest", lambda *args: hashed.append(args) or digest(*args))
    models = ModelFiles(directory)
    file = models.write("local", WEIGHTS, state=SiteState())
    models.read_weights(file)
    assert hashed == []
    ModelFiles(directory).read_weights(file)
    assert len(hashed) == 1


def test_a_file_is_durable_before_it_is_returned(
    directory: SiteDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    sync = os.fsync

    def noted(number: int) -> None:
        synced.append(Path(f"/proc/self/fd/{number}").readlink())
        sync(number)

    monkeypatch.setattr(os, "fsync", noted)
    models = ModelFiles(directory)
    path = directory.models / models.write("local", WEIGHTS, state=SiteState()).name
    assert synced == [path, path.parent]
    models.write("local", WEIGHTS, state=SiteState())
    assert synced == [path, path.parent, path]
    # Another process may have been killed before it synced the name.
    ModelFiles(directory).write("local", WEIGHTS, state=SiteState())
    assert synced == [path, path.parent, path, path, path.parent]
    # What was deleted has to get its name anew.
    models.remove_unused(SiteState(key="k"))
    models.write("local", WEIGHTS, state=SiteState())
    assert synced[-2:] == [path, path.parent]
