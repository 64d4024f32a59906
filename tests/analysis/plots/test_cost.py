import shutil
from pathlib import Path

import pytest

from feal.analysis.plots import PLOTS
from feal.analysis.runs import read_runs
from feal.rundir.records import Step
from tests.analysis.plots.specs import axis_titles, drawn
from tests.records import record, run

COST = PLOTS.get("cost")


def step(number, place, **losses):
    return Step(round=number, step=place, loss=losses)


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
    chart = COST.draw(rows)
    assert axis_titles(chart, "x") == ["Seconds per round, all sites"]
    assert {row["part"]: row["value"] for row in drawn(chart)} == {"train": 4.0, "select": 4.0}


def test_bytes_are_weights_to_every_site_and_back_from_those_that_trained(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "round-001.safetensors").write_bytes(b"x" * 1000)
    steps = [step(1, 0, alder=0.5, birch=None), step(1, 1, alder=0.4)]
    rows = COST.data([run("feal", [timed(1, asked=5, train=1.0)], path=tmp_path, events=steps)])
    # Down: two, then one, then both at the end; up: alder twice.
    assert (value(rows, "to sites"), value(rows, "to coordinator")) == (5000, 2000)
    chart = COST.draw(rows)
    assert axis_titles(chart, "x") == ["Seconds per round, all sites", "Megabytes per round, all sites"]
    assert [(row["kind"], row["part"], row["value"], row["order"]) for row in drawn(chart)] == [
        ("seconds", "train", 1.0, 0),
        ("bytes", "to sites", 0.005, 1),
        ("bytes", "to coordinator", 0.002, 2),
    ]
    assert drawn(chart, part="to sites")[0]["text"] == "0.005 MB"


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
