"""The study of label efficiency, as its command line: runs, tables, and what it says of mistakes."""

import csv
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.paths import PROJECT

pytestmark = pytest.mark.slow

TINY = (
    *("dataset.sites=2", "dataset.train=40", "dataset.test=16", "rounds=2", "communication_rounds=1"),
    *("budget=5", "training.local_epochs=1"),
)
ARMS = ("--arms", "random-plain", "random-evidential", "feal-*")


def study(out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    script = PROJECT / "benchmarks" / "label_efficiency.py"
    paths = os.pathsep.join(filter(None, (str(PROJECT / "src"), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, script, "synthetic-lesions", "--out", out, *words]
    return subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": paths},
    )


def read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def tables(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.glob("*.csv")}


def times(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in out.glob("runs/*/*/state.json")}


def test_a_study_from_beginning_to_end(tmp_path: Path) -> None:
    done = study(tmp_path, *TINY, *ARMS, "--seeds", "2", "-j", "2")
    assert done.returncode == 0, done.stderr
    assert "8 of 8 done" in done.stderr
    assert "feal-evidential is" in done.stdout
    written = tables(tmp_path)
    assert set(written) == {
        f"{name}.csv" for name in ("points", "curves", "classes", "runs", "arms", "differences")
    }
    assert len(read(tmp_path / "points.csv")) == 4 * 2 * 2
    assert len(read(tmp_path / "curves.csv")) == 4 * 2
    assert len(read(tmp_path / "classes.csv")) == 4 * 2 * 6
    # Seeds pair: the first round's labels are the same in every arm, and so are its figures on one loss.
    points = [row for row in read(tmp_path / "points.csv") if row["round"] == "1"]
    for seed in ("0", "1"):
        firsts = [row for row in points if row["seed"] == seed]
        assert len({tuple(row[key] for key in row if key.startswith("found_")) for row in firsts}) == 1
        evidential = {row["balanced_accuracy_pooled"] for row in firsts if row["arm"] != "random-plain"}
        assert len(evidential) == 1
    compared = {(row["arm"], row["reference"]) for row in read(tmp_path / "differences.csv")}
    assert compared == {
        ("random-evidential", "random-plain"),
        *product(("feal-evidential", "feal-unrelaxed"), ("random-evidential", "random-plain")),
    }

    before = times(tmp_path)
    assert len(before) == 8
    again = study(tmp_path, *TINY, *ARMS, "--seeds", "2")
    assert again.returncode == 0, again.stderr
    assert times(tmp_path) == before
    assert tables(tmp_path) == written

    one_round = [word for word in TINY if not word.startswith("rounds")]
    shorter = study(tmp_path, *one_round, "rounds=1", *ARMS, "--seeds", "2", "--only-tables")
    assert shorter.returncode == 0, shorter.stderr
    assert read(tmp_path / "points.csv") == points

    other = study(tmp_path, *TINY, *ARMS, "--seeds", "2", "budget=6")
    assert other.returncode == 2
    assert "holds a run with other settings" in other.stderr

    broken = tmp_path / "runs" / "feal-unrelaxed" / "seed-001"
    (broken / "summary.json").unlink()
    (broken / "metrics.jsonl").write_text("")
    mended = study(tmp_path, *TINY, *ARMS, "--seeds", "2")
    assert mended.returncode == 1
    assert f"{broken} is broken" in mended.stderr
    assert [row["seed"] for row in read(tmp_path / "runs.csv") if row["arm"] == "feal-unrelaxed"] == ["0"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--arms", "nobody"), "No arm is called nobody"),
        (("strategy=feal",), "strategy is set by the study itself"),
        (("budgets=3",), "did you mean 'budget'"),
        (("--only-tables", "--arms", "random-plain"), "holds no finished run"),
        (("--tune", "dataset=synthetic-nothing"), "There is no data set"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = study(tmp_path, *TINY, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
