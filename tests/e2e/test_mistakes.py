"""What people get wrong, and what happens to machines: one sentence, exit code 2, nothing lost."""

import errno
import os
import shutil
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
import torch
import yaml

from feal import fileio as files
from feal.experiment import start
from feal.federation.coordinator import loop as coordinator
from feal.federation.site import training as learning
from feal.fileio import lock_directory
from feal.models import Network
from tests.command import Command, Ended
from tests.prepared import Spoil, write_prepared
from tests.runs import differences, fingerprint, tiny

SMALL = ["rounds=1", "communication_rounds=1", "budget=4"]
FEW = ["dataset.train=20", "dataset.test=4"]
"""A data set that is drawn in no time."""


def _refused(ended: Ended, *words: str) -> None:
    assert ended.code == 2, (ended.out, ended.err)
    lines = ended.err.strip().splitlines()
    assert len(lines) == 1, ended.err
    assert lines[0].startswith("Error: ")
    for word in words:
        assert word in lines[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["demmo"], ["'demmo'", "'demo'"]),
        (["demo", "strategy=fael"], ["'fael'", "'feal'"]),
        (["demo", "training.lrr=1"], ["'training.lrr'", "'training.lr'"]),
        (["demo", "budget=0"], ["budget=0"]),
        (["demo", "strategy.tau=2"], ["strategy.tau=2"]),
        (["demo", "rounds=-1"], ["rounds=-1"]),
        (["demo", *FEW, "quorum=9"], ["quorum of 9", "4 sites"]),
        (["demo", *FEW, "model=unet"], ["unet", "segmentation", "tiny-cnn"]),
    ],
)
def test_bad_words(command: Command, tmp_path: Path, words: list[str], said: list[str]) -> None:
    out = tmp_path / "run"
    _refused(command("run", *words, "--out", out), *said)
    assert not out.exists()


def _all_one_class(images: np.ndarray, labels: np.ndarray) -> None:
    labels[:] = 2


def _label(value: int) -> Spoil:
    def spoil(images: np.ndarray, labels: np.ndarray) -> None:
        labels[5] = value

    return spoil


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_all_one_class, ["site birch", "'blue'", "allow_single_class"]),
        (_label(-1), ["birch-0005", "-1"]),
        (_label(3), ["birch-0005", "3"]),
    ],
)
def test_labels_that_nothing_can_be_learned_from(
    command: Command, tmp_path: Path, spoil: Spoil, said: list[str]
) -> None:
    data = write_prepared(tmp_path / "data", spoil={"birch": spoil})
    out = tmp_path / "run"
    _refused(command("run", "demo", f"dataset={data}", *SMALL, "--out", out), *said)
    assert not out.exists()


def test_a_site_without_a_training_sample(command: Command, tmp_path: Path) -> None:
    data = write_prepared(tmp_path / "data")
    splits = np.load(data / "birch" / "samples" / "split.npy", mmap_mode="r+")
    splits[:] = "test"
    splits.flush()
    ended = command("run", "demo", f"dataset={data}", *SMALL, "--out", tmp_path / "run")
    _refused(ended, "birch", "no training sample")
    assert not (tmp_path / "run").exists()


def test_a_single_class_can_be_allowed(command: Command, tmp_path: Path) -> None:
    data = write_prepared(tmp_path / "data", spoil={"birch": _all_one_class})
    words = [f"dataset={data}", *SMALL, "allow_single_class=true", "--out", tmp_path / "run"]
    assert command("run", "demo", *words).code == 0


def test_nan_in_an_image_names_the_sample(command: Command, tmp_path: Path) -> None:
    def spoil(images: np.ndarray, labels: np.ndarray) -> None:
        images[7, 0, 3, 3] = np.nan

    data = write_prepared(tmp_path / "data", dtype="float16", spoil={"birch": spoil})
    out = tmp_path / "run"
    ended = command("run", "demo", f"dataset={data}", *SMALL, "rounds=2", "--out", out)
    _refused(ended, "birch-0007", "birch")
    assert "birch-0007" in (out / "sites" / "birch" / "problem.txt").read_text()
    assert (out / "state.json").exists()


def test_all_evidence_zero_is_said_and_selection_still_works(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = coordinator.build_initial_model

    def dead(name: str, **options: object) -> Network:
        network = build(name, **options)
        torch.nn.init.zeros_(network.head.weight)
        torch.nn.init.constant_(network.head.bias, -5.0)
        return network

    monkeypatch.setattr(coordinator, "build_initial_model", dead)
    data = write_prepared(tmp_path / "data")
    words = ["loss.lambda=0", "rounds=2", "communication_rounds=1", "budget=4"]
    ended = command("run", "demo", f"dataset={data}", *words, "--out", tmp_path / "run")
    assert ended.code == 0
    assert ended.out.count("assigns zero evidence to every test sample of alder, birch") == 2
    assert "100 %" in ended.out
    assert len((tmp_path / "run/sites/alder/selections/round-002.csv").read_text().splitlines()) == 5


def test_a_budget_above_the_pool_is_capped_and_said_once(command: Command, tmp_path: Path) -> None:
    data = write_prepared(tmp_path / "data", samples=20)
    words = ["budget=500", "rounds=2", "communication_rounds=1"]
    ended = command("run", "demo", f"dataset={data}", *words, "--out", tmp_path / "run")
    assert ended.code == 0
    for site in ("alder", "birch"):
        assert ended.out.count(f"Site {site} can be asked for") == 1


def test_a_budget_that_comes_to_nothing(command: Command, tmp_path: Path) -> None:
    data = write_prepared(tmp_path / "data", samples=20)
    _refused(
        command("run", "demo", f"dataset={data}", "budget=0.01", "--out", tmp_path / "run"),
        "budget=0.01 gives 0 labels at site alder",
    )


def test_a_folder_that_holds_another_run(command: Command, finished: Path) -> None:
    before = fingerprint(finished)
    _refused(command("run", "demo", *FEW, "--out", finished), "holds a run already", "feal resume")
    assert differences(before, fingerprint(finished)) == []


def test_a_folder_that_holds_something_else(command: Command, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    _refused(command("run", "demo", *FEW, "--out", tmp_path), "is not empty")
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_resume_where_there_is_no_run(command: Command, tmp_path: Path) -> None:
    _refused(command("resume", tmp_path), "holds no run")
    _refused(command("show", tmp_path / "nowhere"), "holds no run")


@pytest.fixture(scope="module")
def one_round(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of one round, to be copied."""
    return start(tiny(rounds=1), out=tmp_path_factory.mktemp("runs") / "one").folder


@pytest.fixture(scope="module")
def two_rounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two rounds, to be looked at."""
    return start(tiny(), out=tmp_path_factory.mktemp("runs") / "two").folder


@pytest.fixture
def finished(one_round: Path, tmp_path: Path) -> Path:
    """A finished run of one round."""
    return shutil.copytree(one_round, tmp_path / "run")


def test_only_rounds_may_change(command: Command, finished: Path) -> None:
    _refused(command("resume", finished, "seed=2"), "seed", "only rounds")
    _refused(command("resume", finished, "rounds=0"), "rounds=0")
    _refused(command("resume", finished, "rounds=many"), "rounds=many")
    assert command("resume", finished, "rounds=2").code == 0
    _refused(command("resume", finished, "rounds=1"), "has 2 rounds: a run can be extended, not shortened to 1")


def test_a_config_edited_between_run_and_resume(command: Command, finished: Path) -> None:
    path = finished / "config.yaml"
    content = path.read_text()
    settings = yaml.safe_load(content)
    settings["training"]["lr"] = 0.5
    path.write_text(yaml.safe_dump(settings))
    _refused(command("resume", finished, "rounds=2"), "training.lr", "0.5", "restore it")
    path.write_text(content.replace("seed: 0", "seed: many"))
    _refused(command("resume", finished, "rounds=2"), "'seed'", "undo the edit")
    path.write_text("{")
    _refused(command("resume", finished, "rounds=2"), "config.yaml", "YAML")
    path.write_text(content)
    assert command("resume", finished, "rounds=2").code == 0


@pytest.mark.parametrize("how", ["cut", "altered", "gone"])
@pytest.mark.parametrize("which", ["weights/round-001", "weights/initial", "sites/*/models/local"])
def test_a_damaged_checkpoint(command: Command, finished: Path, which: str, how: str) -> None:
    path = next(finished.glob(f"{which}*"))
    whole = path.read_bytes()
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(whole[: len(whole) // 2] if how == "cut" else whole[:-1] + bytes([whole[-1] ^ 1]))
    ended = command("resume", finished, "rounds=2")
    _refused(ended, path.name, "damaged")
    path.write_bytes(whole)
    assert command("resume", finished).code == 0


def test_a_damaged_state_or_log(command: Command, finished: Path) -> None:
    for name in ("state.json", "metrics.jsonl"):
        path = finished / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-20])
        _refused(command("resume", finished, "rounds=2"), name, "damaged")
        path.write_bytes(whole)
    assert command("resume", finished, "rounds=2").code == 0


def test_a_damaged_site_database(command: Command, finished: Path) -> None:
    path = next(finished.glob("sites/*/site.sqlite"))
    whole = path.read_bytes()
    path.write_bytes(b"\0" * len(whole))
    _refused(command("resume", finished, "rounds=2"), "site.sqlite")
    path.write_bytes(whole)
    assert command("resume", finished, "rounds=2").code == 0


@pytest.mark.parametrize("how", ["empty", "gone"])
def test_a_site_database_that_lost_its_labels(command: Command, finished: Path, how: str) -> None:
    path = next(finished.glob("sites/*/site.sqlite"))
    whole = path.read_bytes()
    path.unlink() if how == "gone" else path.write_bytes(b"")
    _refused(command("resume", finished, "rounds=2"), "has 0 labels where 5 were counted", "site.sqlite")
    path.write_bytes(whole)
    assert command("resume", finished, "rounds=2").code == 0


def test_a_log_that_is_gone(command: Command, finished: Path) -> None:
    path = finished / "metrics.jsonl"
    whole = path.read_bytes()
    path.unlink()
    for words in ([], ["rounds=2"]):
        _refused(command("resume", finished, *words), "metrics.jsonl", "damaged")
    path.write_bytes(whole)
    assert command("resume", finished, "rounds=2").code == 0


def test_training_that_diverges(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _refused(command("run", "demo", "training.lr=1e30", "--out", tmp_path / "other"), "training.lr=1e+30")
    monkeypatch.setattr(learning, "learning_rate", lambda *_, **__: 1e30)
    data = write_prepared(tmp_path / "data")
    ended = command("run", "demo", f"dataset={data}", *SMALL, "--out", tmp_path / "run")
    _refused(ended, "Site alder", "diverged", "lower training.lr")


def test_files_in_place_of_folders(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"\xff\xfe\x00")
    _refused(command("show", file), str(file))
    _refused(command("resume", file), str(file))
    _refused(command("run", file), str(file))
    _refused(command("run", "demo", *FEW, "--out", file / "run"), str(file))
    _refused(command("data", "show", "synthetic-lesions", "train=8", "test=0", "--out", file), str(file))
    _refused(command("run", "demo", *FEW, "--out", tmp_path / ("x" * 300)), "cannot be used")
    _refused(command("run", "y" * 300), "There is no preset")
    _refused(command("run", "demo", "seed=2024-13-45"), "seed=2024-13-45")


def test_a_relative_data_folder_is_found_from_anywhere(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_prepared(tmp_path / "mine")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    assert command("run", "demo", "dataset=mine", *SMALL, "--out", "run").code == 0
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert command("resume", "../run", "rounds=2").code == 0


def test_brackets_and_spaces_in_a_folders_name(command: Command, tmp_path: Path) -> None:
    data = write_prepared(tmp_path / "data")
    out = tmp_path / "a [red] run[/]"
    ended = command("run", "demo", f"dataset={data}", *SMALL, "--out", out)
    assert ended.code == 0
    assert f"feal show '{out}'" in ended.out
    assert str(out) in command("show", out).out


def test_two_processes_on_one_folder(command: Command, finished: Path) -> None:
    with lock_directory(finished):
        _refused(command("resume", finished), f"Process {os.getpid()}")
        assert "working on it now" in command("show", finished).out


def test_data_that_changed_since(command: Command, tmp_path: Path) -> None:
    data = write_prepared(tmp_path / "data")
    out = tmp_path / "run"
    assert command("run", "demo", f"dataset={data}", *SMALL, "--out", out).code == 0
    for path in sorted(data.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    data.rmdir()
    write_prepared(data, samples=25)
    _refused(command("resume", out, "rounds=2"), "changed since the run started")


@pytest.mark.parametrize("write", [1, 4, 9, 17])
def test_a_full_disk(
    command: Command, two_rounds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: int
) -> None:
    count = 0
    sync = files.sync_file

    def full(file: BinaryIO) -> None:
        nonlocal count
        count += 1
        if count >= write:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(file)

    words = [f"{key}={value}" for key, value in _flat_tiny().items()]
    monkeypatch.setattr(files, "sync_file", full)
    _refused(command("run", "demo", *words, "--out", tmp_path / "run"), "No space left", "repeat the command")
    monkeypatch.setattr(files, "sync_file", sync)
    again = command("resume" if (tmp_path / "run").exists() else "run", *_again(tmp_path / "run", words))
    assert again.code == 0, again.err
    assert differences(fingerprint(two_rounds), fingerprint(tmp_path / "run")) == []


def _again(folder: Path, words: list[str]) -> list[object]:
    return [folder] if folder.exists() else ["demo", *words, "--out", folder]


def _flat_tiny() -> dict[str, object]:
    from feal.settings import flatten
    from tests.runs import TINY

    return flatten(TINY)
