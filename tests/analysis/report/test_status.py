import json
import os
import shutil
from pathlib import Path

from feal.analysis.report.status import MAX_LISTED, read_run_statuses
from feal.experiment import start
from feal.rundir.journal import write_config
from feal.rundir.layout import RunDirectory
from tests.copies import copied, cut
from tests.runs import tiny


def test_a_finished_run(finished: Path) -> None:
    found = read_run_statuses(finished)
    assert found.summary == "run (feal, seed 0): finished after 2 rounds"
    assert found.to_json()["done"] == 1.0


def test_a_run_at_work_says_where_it_is_and_whom_it_waits_for(finished: Path, tmp_path: Path) -> None:
    run = cut(copied(finished, tmp_path / "run"), rounds=1)
    before = read_run_statuses(tmp_path)
    assert before.runs[0].detail == f"stopped in round 2 of 2, communication round 1 of 1: feal resume {run}"
    assert before.to_json()["done"] == 0.5
    (run / ".lock").write_text(str(os.getpid()))
    assert read_run_statuses(tmp_path).runs[0].detail == "round 2 of 2, communication round 1 of 1"
    (run / "replies").mkdir()
    (run / "replies" / "birch").touch()
    after = read_run_statuses(tmp_path)
    assert after.summary.endswith("communication round 1 of 1, waiting for alder")
    assert after.version == before.version


def test_a_run_that_waits_for_people_says_for_how_many_labels(tmp_path: Path) -> None:
    run = start(tiny(annotator="folder", rounds=2), out=tmp_path / "run").folder
    assert read_run_statuses(run).summary == (
        "run (feal, seed 0): waiting for labels of round 1 of 2: 5 at alder, 5 at birch"
    )


def test_many_runs_are_counted_and_the_first_of_them_told(finished: Path, tmp_path: Path) -> None:
    for seed in range(MAX_LISTED + 2):
        cut(copied(finished, tmp_path / f"run-{seed:02}", seed=seed), rounds=1)
    copied(finished, tmp_path / "done", seed=99)
    (tmp_path / "new").mkdir()
    write_config(RunDirectory(tmp_path / "new"), tiny().dump())
    found = read_run_statuses(tmp_path)
    assert found.summary == f"1 of {MAX_LISTED + 4} runs finished, {MAX_LISTED + 2} stopped, 1 not started"
    content = json.loads(json.dumps(found.to_json()))
    assert (content["all"], content["done"]) == (MAX_LISTED + 4, 1 + (MAX_LISTED + 2) / 2)
    assert content["runs"][-1]["detail"] == "and 3 more"


def test_new_figures_change_the_version_and_steps_do_not(finished: Path, tmp_path: Path) -> None:
    run = cut(copied(finished, tmp_path / "run"), rounds=1)
    before = read_run_statuses(run).version
    state = json.loads((run / "state.json").read_text())
    (run / "state.json").write_text(json.dumps(state | {"step": 1}))
    assert read_run_statuses(run).version == before
    (run / "state.json").write_text(json.dumps(state | {"round_bytes": state["round_bytes"] + 9}))
    assert read_run_statuses(run).version != before


def test_a_folder_that_is_empty_gone_or_damaged_is_no_error(finished: Path, tmp_path: Path) -> None:
    assert "There is no run in" in read_run_statuses(tmp_path).summary
    assert read_run_statuses(tmp_path / "absent").summary.startswith(f"{tmp_path / 'absent'} is gone")
    run = copied(finished, tmp_path / "run")
    (run / "state.json").write_text("{")
    found = read_run_statuses(tmp_path)
    assert found.runs[0].stage == "unreadable"
    assert "is damaged" in found.summary
    shutil.rmtree(run)
    assert read_run_statuses(tmp_path).runs == ()
