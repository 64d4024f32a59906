import shutil
from pathlib import Path

import pytest

from feal.analysis.figures import FIGURES
from feal.analysis.runs import read_runs
from tests.records import record, run

COST = FIGURES.get("cost")


def step(number, place, **losses):
    return {"event": "step", "round": number, "step": place, "loss": losses}


def timed(number, *, asked, **seconds):
    selection = {site: {"asked": asked} for site in ("alder", "birch")}
    return record(number, seconds=seconds, diagnostics={"selection": selection})


def value(rows, part, arm="feal"):
    [row] = [row for row in rows if (row["arm"], row["part"]) == (arm, part)]
    return row["value"]


def test_seconds_are_means_over_rounds_and_selecting_over_those_that_chose() -> None:
    first, last = timed(1, asked=5, train=4.0, select=3.0), timed(2, asked=0, train=8.0, select=1.0)
    rows = COST.data([run("feal", [first, last]), run("feal", [timed(1, asked=5, train=2.0, select=5.0)], seed=1)])
    assert value(rows, "train") == (6.0 + 2.0) / 2
    assert value(rows, "select") == (3.0 + 5.0) / 2
    # Weights that are gone cannot be counted.
    assert {row["kind"] for row in rows} == {"seconds"}
    assert len(COST.web(rows).data) == 2
    assert len(COST.printed(rows).axes) == 1


def test_bytes_are_weights_to_every_site_and_back_from_those_that_trained(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "round-001.safetensors").write_bytes(b"x" * 1000)
    steps = [step(1, 0, alder=0.5, birch=None), step(1, 1, alder=0.4)]
    rows = COST.data([run("feal", [timed(1, asked=5, train=1.0)], path=tmp_path, events=steps)])
    # Down: two, then one, then both at the end; up: alder twice.
    assert (value(rows, "to sites"), value(rows, "to coordinator")) == (5000, 2000)
    web = COST.web(rows)
    assert {trace.name: list(trace.x) for trace in web.data} == {
        "train": [1.0], "to sites": [0.005], "to coordinator": [0.002],
    }  # fmt: skip
    left, right = COST.printed(rows).axes
    assert [bar.get_width() for bar in left.patches] == [1.0]
    assert [bar.get_width() for bar in right.patches] == [0.005, 0.002]
    assert right.get_xlabel() == "Megabytes per round, all sites"


def test_a_real_run_sends_its_weights_as_often_as_its_rounds_say(sweep: Path, tmp_path: Path) -> None:
    rows = COST.data(read_runs([sweep]))
    size = (sweep / "entropy-0" / "weights" / "round-001.safetensors").stat().st_size
    # Two sites, one communication round, and the end of the round.
    assert value(rows, "to sites", "entropy local") == pytest.approx(4 * size)
    assert value(rows, "to coordinator", "entropy local") == pytest.approx(2 * size)
    copy = shutil.copytree(sweep / "entropy-0", tmp_path / "copy")
    (copy / "weights" / "round-002.safetensors").unlink()
    assert {row["kind"] for row in COST.data(read_runs([copy]))} == {"seconds"}


def test_without_a_finished_round_there_is_nothing_to_show() -> None:
    assert COST.data([run("feal", stage="train")]) == []
