import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from feal.analysis.arms import group_by_arm
from feal.analysis.runs import find_runs, open_run, read_runs
from feal.errors import FealError
from feal.experiment import start
from feal.rundir.journal import write_config
from feal.rundir.layout import RunDirectory
from tests.analysis.made import made
from tests.copies import copied, cut
from tests.runs import tiny

Make = Callable[..., Path]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of one round: two seeds of random, entropy with two query models, feal twice but for a setting."""
    place = tmp_path_factory.mktemp("sweep")
    for name, changes in {
        "random/0": {"strategy": "random"},
        "random/1": {"strategy": "random", "seed": 1},
        "entropy": {"strategy": "entropy", "strategy.query_model": "local"},
        "plain": {"strategy": "entropy", "strategy.query_model": "global"},
        "balanced": {"strategy": "entropy", "strategy.query_model": "global", "loss": "balanced"},
        "n5": {"strategy": "feal"},
        "n3": {"strategy": "feal", "strategy.n": 3},
    }.items():
        start(tiny(rounds=1, communication_rounds=1, **changes), out=place / name)
    return place


def test_runs_are_found_below_a_folder_and_each_once(sweep: Path) -> None:
    found = find_runs([sweep, sweep / "random", sweep / "n5"])
    assert [str(path.relative_to(sweep)) for path in found] == [
        "balanced", "entropy", "n3", "n5", "plain", "random/0", "random/1",
    ]  # fmt: skip


def test_an_arm_is_named_by_what_tells_it_apart(sweep: Path) -> None:
    found = group_by_arm(read_runs([sweep]))
    assert {arm.name: arm.seeds for arm in found} == {
        "entropy global balanced": [0],
        "entropy global plain": [0],
        "entropy local": [0],
        "feal evidential, strategy.n=3": [0],
        "feal evidential, strategy.n=5": [0],
        "random": [0, 1],
    }


def test_values_and_labels_are_what_the_summary_says(sweep: Path) -> None:
    run = open_run(sweep / "random" / "1")
    rounds = json.loads((run.path / "summary.json").read_text())["rounds"]
    assert run.is_complete
    for name, over in (("balanced_accuracy", "pooled"), ("accuracy", "mean")):
        assert run.values(name, over=over).tolist() == [record["metrics"][name][over] for record in rounds]
    assert run.values().tolist() == run.values("balanced_accuracy").tolist()
    assert run.labels_per_site().tolist() == [np.mean(list(record["labels"].values())) for record in rounds]
    assert np.isnan(run.values("unknown")).tolist() == [True]


def test_a_run_can_be_cut_to_its_first_rounds() -> None:
    run = made("random", 0, (0.2, 0.3, 0.4))
    assert run.cut(2).values().tolist() == [0.2, 0.3]
    assert run.cut(2).labels_per_site().tolist() == [10, 20]
    assert run.cut(9).events == run.events


def test_a_run_says_what_it_holds(sweep: Path) -> None:
    run = open_run(sweep / "random" / "1")
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
    run = open_run(copy)
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
    run = open_run(copy)
    assert run.rounds == ()
    assert run.problems[0].startswith(f"{log}, line {at + 1}: ")


def test_comparing_runs_needs_no_torch(sweep: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from feal.analysis.tables import compare; "
        f"sweep = Path({str(sweep)!r}); compare(sweep / 'random', sweep / 'entropy', sweep / 'n5'); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_log_cut_short_is_told(sweep: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(sweep / "n5", tmp_path / "copy")
    log = copy / "metrics.jsonl"
    log.write_bytes(log.read_bytes()[:-10])
    run = open_run(copy)
    assert run.rounds == ()
    assert any("shorter than what was written" in problem for problem in run.problems)
    log.unlink()
    assert "cannot be read" in open_run(copy).problems[0]


def test_runs_of_different_experiments_are_refused_with_the_reason(sweep: Path, tmp_path: Path) -> None:
    start(
        tiny(rounds=1, communication_rounds=1, dataset={**tiny().dataset.model_dump(), "train": 30}),
        out=tmp_path / "other",
    )
    with pytest.raises(FealError, match=r"different experiments \(dataset.train is 40 and 30\)"):
        read_runs([sweep / "n5", tmp_path])


def test_a_seed_twice_is_used_once_and_said(sweep: Path, tmp_path: Path) -> None:
    copy = copied(sweep / "n5", tmp_path / "copy")
    both = read_runs([sweep / "n5", tmp_path])
    assert [run.path for run in both] == [sweep / "n5"] or [run.path for run in both] == [copy]
    (said,) = both.left_out
    assert "repeats" in said
    assert said.endswith(" (same settings, seed and metrics): left out.")
    assert both.unused == 1
    other = copied(sweep / "n5", tmp_path / "other", change=lambda *_: 0.25)
    assert any("but their metrics differ" in sentence for sentence in read_runs([copy, other]).left_out)
    with pytest.raises(FealError, match="both feal with seed 0"):
        group_by_arm([open_run(copy), open_run(other)])


def test_of_two_runs_of_a_seed_the_finished_one_is_kept(sweep: Path, tmp_path: Path) -> None:
    cut(copied(sweep / "n5", tmp_path / "a"), rounds=1)
    copied(sweep / "n5", tmp_path / "b")
    assert [run.path.name for run in read_runs([tmp_path])] == ["b"]


def test_many_repeats_are_one_sentence(sweep: Path, tmp_path: Path) -> None:
    for number in range(6):
        copied(sweep / "n5", tmp_path / str(number))
    found = read_runs([tmp_path])
    assert found.unused == 5
    (said,) = found.left_out
    assert said.count(" repeats ") == 3
    assert said.endswith("(same settings, seed and metrics), and 2 more: left out.")


def test_the_same_place_by_another_way_is_seen_once(sweep: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    shutil.copytree(sweep / "random", place / "random")
    (place / "latest").symlink_to(place / "random")
    (place / "random" / "above").symlink_to(place)
    roundabout = place / "random" / ".." / "random"
    assert len(find_runs([place, roundabout, place / "latest"])) == 2


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("config.yaml", None, "config.yaml is damaged (it is missing)"),
        ("config.yaml", "dataset: [", "is not valid YAML"),
        ("config.yaml", "", "it holds no settings"),
        ("config.yaml", "later: 1\n", "was edited"),
        ("state.json", None, "state.json is damaged (it is missing)"),
        ("state.json", "", "state.json is damaged"),
        ("state.json", "[]", "state.json is damaged"),
        ("state.json", '{"facts": {}}', "classes and sizes of the images are missing"),
        ("state.json", '{"facts": []}', "facts is not valid"),
        ("state.json", '{"log_bytes": "many"}', "log_bytes is not valid"),
        ("state.json", '{"labels": 3}', "labels is not valid"),
        ("state.json", '{"configuration": null}', "configuration is not valid"),
    ],
)
def test_a_damaged_run_is_told_and_the_others_are_used(
    sweep: Path, tmp_path: Path, file: str, content: str | None, said: str
) -> None:
    copied(sweep / "random" / "0", tmp_path / "whole")
    broken = copied(sweep / "random" / "1", tmp_path / "broken") / file
    if content is None:
        broken.unlink()
    elif content.startswith("{"):
        broken.write_text(json.dumps({**json.loads(broken.read_text()), **json.loads(content)}))
    else:
        broken.write_text(content)
    found = read_runs([tmp_path])
    assert [run.path.name for run in found] == ["whole"]
    (sentence,) = found.left_out
    assert said in sentence
    assert sentence.startswith(str(tmp_path / "broken"))
    assert sentence.endswith("It is left out.")
    with pytest.raises(FealError, match=re.escape(said)):
        read_runs([tmp_path / "broken"])


def test_a_folder_that_cannot_be_read_is_told(
    sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(sweep / "random", tmp_path / "random")
    (tmp_path / "closed").mkdir()
    listed = Path.iterdir

    def refused(path: Path) -> Iterator[Path]:
        if path.name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", refused)
    found = read_runs([tmp_path])
    assert len(found) == 2
    assert found.left_out == (f"{tmp_path / 'closed'} cannot be read (Permission denied): it is left out.",)


def test_nothing_there_and_nothing_begun_are_told(tmp_path: Path) -> None:
    with pytest.raises(FealError, match="There is no directory"):
        find_runs([tmp_path / "absent"])
    with pytest.raises(FealError, match="holds no run"):
        find_runs([tmp_path])
    (tmp_path / "new").mkdir()
    write_config(RunDirectory(tmp_path / "new"), tiny().dump())
    with pytest.raises(FealError, match="has started"):
        read_runs([tmp_path])
    with pytest.raises(FealError, match="has not started"):
        open_run(tmp_path / "new")
