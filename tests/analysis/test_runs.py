import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from feal.analysis.runs import arms, find_runs, read_run, read_runs
from feal.errors import FealError
from feal.experiment import start
from feal.experiment.folder import RunFolder
from tests.runs import tiny

Make = Callable[..., Path]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of one round: two seeds of random, entropy with two query models, feal twice but for a setting."""
    place = tmp_path_factory.mktemp("sweep")
    for name, changes in {
        "random/0": {"strategy": "random"},
        "random/1": {"strategy": "random", "seed": 1},
        "entropy": {"strategy": "entropy", "query_model": "local"},
        "plain": {"strategy": "entropy", "query_model": "global"},
        "balanced": {"strategy": "entropy", "query_model": "global", "loss": "balanced"},
        "n5": {"strategy": "feal"},
        "n3": {"strategy": "feal", "selection.n": 3},
    }.items():
        start(tiny(rounds=1, communication_rounds=1, **changes), out=place / name)
    return place


def test_runs_are_found_below_a_folder_and_each_once(sweep: Path) -> None:
    found = find_runs([sweep, sweep / "random", sweep / "n5"])
    assert [str(path.relative_to(sweep)) for path in found] == [
        "balanced", "entropy", "n3", "n5", "plain", "random/0", "random/1",
    ]  # fmt: skip


def test_an_arm_is_named_by_what_tells_it_apart(sweep: Path) -> None:
    found = arms(read_runs([sweep]))
    assert {name: [run.settings.seed for run in group] for name, group in found.items()} == {
        "entropy global balanced": [0],
        "entropy global plain": [0],
        "entropy local": [0],
        "feal evidential, selection.n=3": [0],
        "feal evidential, selection.n=5": [0],
        "random": [0, 1],
    }


def test_a_run_says_what_it_holds(sweep: Path) -> None:
    run = read_run(sweep / "random" / "1")
    assert (run.task, run.status, run.problems) == ("classification", "finished", ())
    assert len(run.rounds) == 1
    assert len(run.classes) == 5
    assert run.sites == ("alder", "birch")


def test_a_broken_line_is_told_by_its_number_and_the_rest_is_used(sweep: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(sweep / "n5", tmp_path / "copy")
    log = copy / "metrics.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    lines[1] = b"x" * (len(lines[1]) - 1) + b"\n"
    log.write_bytes(b"".join(lines))
    run = read_run(copy)
    assert len(run.problems) == 1
    assert run.problems[0].startswith(f"{log}, line 2: no record")
    assert len(run.events) == len(lines) - 1


def test_a_round_without_its_figures_is_a_broken_line(sweep: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(sweep / "n5", tmp_path / "copy")
    log = copy / "metrics.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    (at,) = (number for number, line in enumerate(lines) if b'"event": "round"' in line)
    lines[at] = b'{"event": "round", "round": 1}'.ljust(len(lines[at]) - 1) + b"\n"
    log.write_bytes(b"".join(lines))
    run = read_run(copy)
    assert run.rounds == ()
    assert run.problems[0].startswith(f"{log}, line {at + 1}: ")


def test_reading_runs_and_their_curves_needs_no_torch(sweep: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from feal.analysis.curves import curve_of; "
        f"from feal.analysis.runs import read_runs; [curve_of(run) for run in read_runs([Path({str(sweep)!r})])]; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_log_cut_short_is_told(sweep: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(sweep / "n5", tmp_path / "copy")
    log = copy / "metrics.jsonl"
    log.write_bytes(log.read_bytes()[:-10])
    run = read_run(copy)
    assert run.rounds == ()
    assert any("shorter than what was written" in problem for problem in run.problems)
    log.unlink()
    assert "cannot be read" in read_run(copy).problems[0]


def test_runs_of_different_experiments_are_refused_with_the_reason(sweep: Path, tmp_path: Path) -> None:
    start(
        tiny(rounds=1, communication_rounds=1, synthetic={**tiny().synthetic.model_dump(), "train": 30}),
        out=tmp_path / "other",
    )
    with pytest.raises(FealError, match=r"different experiments \(synthetic.train is 40 and 30\)"):
        read_runs([sweep / "n5", tmp_path])


def test_a_seed_twice_is_refused(sweep: Path, tmp_path: Path) -> None:
    shutil.copytree(sweep / "n5", tmp_path / "copy")
    with pytest.raises(FealError, match="both feal with seed 0"):
        arms(read_runs([sweep / "n5", tmp_path]))


def test_nothing_there_and_nothing_begun_are_told(tmp_path: Path) -> None:
    with pytest.raises(FealError, match="There is no folder"):
        find_runs([tmp_path / "absent"])
    with pytest.raises(FealError, match="holds no run"):
        find_runs([tmp_path])
    (tmp_path / "new").mkdir()
    RunFolder(tmp_path / "new").write_config(tiny())
    with pytest.raises(FealError, match="has begun"):
        read_runs([tmp_path])
    with pytest.raises(FealError, match="has not begun"):
        read_run(tmp_path / "new")
