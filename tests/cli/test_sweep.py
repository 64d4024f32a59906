"""What `feal sweep` refuses, skips and says, without any process."""

from pathlib import Path

import pytest
from rich.console import Console

from feal.cli.sweep import SweepProgress
from feal.experiment import start
from feal.experiment.sweep import SweepRun, default_parallelism
from tests.command import Command
from tests.copies import copied
from tests.runs import tiny

WORDS = (
    *("dataset.sites=2", "dataset.train=40", "dataset.test=16", "dataset.classes=5", "rounds=1"),
    *("communication_rounds=2", "budget=5", "training.local_epochs=1", "training.batch_size=4"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return start(tiny(strategy="random", rounds=1), out=tmp_path_factory.mktemp("runs") / "one").folder


def test_what_is_finished_is_skipped(run: Path, tmp_path: Path, command: Command) -> None:
    for seed in range(2):
        copied(run, tmp_path / "random" / f"seed-{seed}", seed=seed)
    ended = command("sweep", "demo", *WORDS, "strategy=random", "seed=0,1", "--out", tmp_path, "-j", "5")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        f"2 runs in {tmp_path}, 2 finished already; 2 at a time",
        "All 2 runs are finished.",
        f"  compare them:  feal compare {tmp_path}",
    ]


def test_a_parameter_that_no_strategy_has_is_refused(tmp_path: Path, command: Command) -> None:
    ended = command("sweep", "demo", *WORDS, "strategy=random", "strategy.n=3,5,7", "--out", tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert "Strategy random has no parameter 'n': it has none." in ended.err


def test_other_settings_there_are_refused_by_name(run: Path, tmp_path: Path, command: Command) -> None:
    there = copied(run, tmp_path / "random" / "seed-1", seed=1)
    ended = command("sweep", "demo", *WORDS, "strategy=random", "seed=0,1", "participation=0.5", "--out", tmp_path)
    assert ended.code == 2
    assert f"{there} holds a run with other settings" in ended.err
    assert not (tmp_path / "random" / "seed-0").exists()


def test_a_place_that_is_no_place_for_runs(run: Path, tmp_path: Path, command: Command) -> None:
    assert "is a run itself" in command("sweep", "demo", "--out", run).err
    (tmp_path / "file").write_text("")
    assert "is not a directory" in command("sweep", "demo", "--out", tmp_path / "file").err


@pytest.mark.parametrize(
    ("cores", "gigabytes", "threads", "at_a_time"),
    [(8, 64, 1, 8), (8, 64, 4, 2), (8, 7, 1, 3), (2, 1, 1, 1), (1, 64, 2, 1)],
)
def test_as_many_at_a_time_as_there_is_room_for(
    cores: int, gigabytes: int, threads: int, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("feal.processes.count_cores", lambda: cores)
    monkeypatch.setattr("feal.processes.free_memory", lambda: gigabytes * 2**30)
    assert default_parallelism([SweepRun(Path("run"), tiny(threads=threads, device="cpu"))]) == at_a_time


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["strategy=feal,entropi"], "did you mean 'entropy'"),
        (["seed=0,,1"], "lacks a value"),
        (["seed=0", "-j", "0"], "-j"),
    ],
)
def test_a_mistake_begins_nothing(tmp_path: Path, command: Command, words: list[str], said: str) -> None:
    ended = command("sweep", "demo", *words, "--out", tmp_path / "out")
    assert ended.code == 2
    assert said in ended.err
    assert not (tmp_path / "out").exists()


def test_the_bar_on_a_terminal_and_lines_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [SweepRun(Path("random") / f"seed-{seed}", tiny()) for seed in range(2)]
    with SweepProgress(Console(force_terminal=True, width=120)) as bar:
        bar.announce(jobs, Path("here"), 2)
        bar.on_progress(0.5, 2, jobs[:1])
        bar.on_run_end(jobs[0], "broken")
        bar.on_progress(1.5, 2, jobs[1:])
    shown = capsys.readouterr().out
    assert "1 not finished · random/seed-1" in shown
    with SweepProgress(Console(force_terminal=False)) as bar:
        bar.announce(jobs, Path("here"), 2)
        bar.on_progress(0.5, 2, jobs)
        bar.on_run_end(jobs[0], "broken")
        bar.on_run_end(jobs[1], None)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == ["random/seed-0 not finished, 1 of 2 done", "random/seed-1 finished, 2 of 2 done"]
