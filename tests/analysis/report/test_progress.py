import json
import os
import shutil
from pathlib import Path

from feal.analysis.report.progress import MOST, progress
from feal.experiment import start
from feal.experiment.folder import RunFolder
from tests.copies import copied, cut
from tests.runs import tiny


def test_a_finished_run(finished: Path) -> None:
    found = progress(finished)
    assert found.where == "run (feal, seed 0): finished after 2 rounds"
    assert found.content()["done"] == 1.0


def test_a_run_at_work_says_where_it_is_and_whom_it_waits_for(finished: Path, tmp_path: Path) -> None:
    run = cut(copied(finished, tmp_path / "run"), rounds=1)
    before = progress(tmp_path)
    assert before.runs[0].doing == f"stopped in round 2 of 2, communication round 1 of 1: feal resume {run}"
    assert before.content()["done"] == 0.5
    (run / ".lock").write_text(str(os.getpid()))
    assert progress(tmp_path).runs[0].doing == "round 2 of 2, communication round 1 of 1"
    (run / "spool").mkdir()
    (run / "spool" / "birch.weights").touch()
    after = progress(tmp_path)
    assert after.where.endswith("communication round 1 of 1, waits for alder")
    assert after.version == before.version


def test_a_run_that_waits_for_people_says_for_how_many_labels(tmp_path: Path) -> None:
    run = start(tiny(annotator="folder", rounds=2), out=tmp_path / "run").folder
    assert progress(run).where == ("run (feal, seed 0): waits for labels of round 1 of 2: 5 at alder, 5 at birch")


def test_many_runs_are_counted_and_the_first_of_them_told(finished: Path, tmp_path: Path) -> None:
    for seed in range(MOST + 2):
        cut(copied(finished, tmp_path / f"run-{seed:02}", seed=seed), rounds=1)
    copied(finished, tmp_path / "done", seed=99)
    (tmp_path / "new").mkdir()
    RunFolder(tmp_path / "new").write_config(tiny())
    found = progress(tmp_path)
    assert found.where == f"1 of {MOST + 4} runs finished, {MOST + 2} stopped, 1 not begun"
    content = json.loads(json.dumps(found.content()))
    assert (content["all"], content["done"]) == (MOST + 4, 1 + (MOST + 2) / 2)
    assert content["runs"][-1]["doing"] == "and 3 more"


def test_new_figures_change_the_version_and_steps_do_not(finished: Path, tmp_path: Path) -> None:
    run = cut(copied(finished, tmp_path / "run"), rounds=1)
    before = progress(run).version
    state = json.loads((run / "state.json").read_text())
    (run / "state.json").write_text(json.dumps(state | {"step": 1}))
    assert progress(run).version == before
    (run / "state.json").write_text(json.dumps(state | {"round_bytes": state["round_bytes"] + 9}))
    assert progress(run).version != before


def test_a_folder_that_is_empty_gone_or_damaged_is_no_error(finished: Path, tmp_path: Path) -> None:
    assert "There is no run in" in progress(tmp_path).where
    assert progress(tmp_path / "absent").where.startswith(f"{tmp_path / 'absent'} is gone")
    run = copied(finished, tmp_path / "run")
    (run / "state.json").write_text("{")
    found = progress(tmp_path)
    assert found.runs[0].standing == "unreadable"
    assert "is damaged" in found.where
    shutil.rmtree(run)
    assert progress(tmp_path).runs == ()
