"""`feal compare` on run directories as they lie there."""

import csv
import io
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from feal.experiment import start
from tests.command import Command
from tests.copies import copied, cut
from tests.runs import tiny

BONUS = {"random": 0.0, "entropy": 0.1, "full": 0.2}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return start(tiny(strategy="random", rounds=3), out=tmp_path_factory.mktemp("runs") / "one").folder


@pytest.fixture
def sweep(run: Path, tmp_path: Path) -> Path:
    """Two seeds of random, entropy and full, whose figures are 0.1 apart a round, a seed and a strategy."""
    for strategy, bonus in BONUS.items():
        for seed in range(2):
            base = 0.1 * seed + bonus

            def figure(number: int, name: str, value: float, base: float = base) -> float:
                return base + 0.1 * number if name == "balanced_accuracy" else value

            settings = {"budget": "all"} if strategy == "full" else {}
            name = {"name": "entropy", "query_model": "local"} if strategy == "entropy" else strategy
            place = tmp_path / "sweep" / strategy / str(seed)
            copied(run, place, change=figure, strategy=name, seed=seed, **settings)
    return tmp_path / "sweep"


def test_the_table_the_differences_and_what_to_know(sweep: Path, command: Command) -> None:
    ended = command("compare", sweep)
    assert (ended.code, ended.err) == (0, "")
    lines = [line.split() for line in ended.out.splitlines()]
    assert ended.out.startswith("6 runs (6 finished) of synthetic-lesions with tiny-cnn\n")
    assert ["full", "0.550", "±", "0.071"] in lines
    assert ["random", "0.150", "±", "0.071", "0.250", "±", "0.071²", "0.350", "±", "0.071²"] in lines
    assert ["entropy", "local", "0.250", "±", "0.071", "0.350", "±", "0.071¹", "0.450", "±", "0.071¹"] in lines
    assert "entropy local is 0.100 above random (95 % interval 0.100 to 0.100, 2 pairs)" in ended.out
    assert "Note: Intervals of fewer than 5 pairs" in ended.out


def test_other_formats(sweep: Path, command: Command) -> None:
    markdown = command("compare", sweep, "--format", "markdown").out
    assert "| entropy | local | 0.250 ± 0.071 | **0.350 ± 0.071** | **0.450 ± 0.071** |" in markdown
    assert "| random |  | 0.150 ± 0.071 | <u>0.250 ± 0.071</u> |" in markdown
    assert "\n- entropy local is 0.100 above random" in markdown
    latex = command("compare", sweep, "--format", "latex").out
    assert "entropy & local & 0.250 $\\pm$ 0.071 & \\textbf{0.350 $\\pm$ 0.071}" in latex
    assert all(line.startswith(("%", "\\")) or line.endswith("\\\\") or not line for line in latex.splitlines())
    printed = command("compare", sweep, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(printed.out)))
    (cell,) = (row for row in rows if row["arm"] == "entropy local" and row["round"] == "3")
    assert (cell["metric"], cell["value"], cell["n"], cell["rank"]) == ("balanced_accuracy", "0.45", "2", "1")
    assert "Intervals of fewer than 5 pairs" in printed.err


def test_another_metric_share_and_reference(sweep: Path, command: Command) -> None:
    words = ("--metric", "accuracy", "--over", "mean", "--to", "entropy local", "--share", "0.5")
    ended = command("compare", sweep, *words, "--format", "markdown")
    assert "Accuracy, mean of the sites' values" in ended.out
    assert "difference to entropy local" in ended.out
    assert "to 50 % of full" in ended.out


def test_what_is_unfinished_broken_or_not_begun_is_said(run: Path, sweep: Path, command: Command) -> None:
    cut(copied(run, sweep / "running", strategy="random", seed=5), rounds=2)
    new = copied(run, sweep / "new", strategy="random", seed=6)
    for name in ("state.json", "metrics.jsonl", "summary.json"):
        (new / name).unlink()
    log = sweep / "entropy" / "1" / "metrics.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if json.loads(line).get("round") == 2)
    at = next(n for n, line in enumerate(lines) if n >= at and json.loads(line)["event"] == "round")
    lines[at] = b"?" * (len(lines[at]) - 1) + b"\n"
    log.write_bytes(b"".join(lines))
    ended = command("compare", sweep)
    assert ended.code == 0
    assert ended.out.startswith("8 runs (6 finished, 1 unfinished, 1 not started)")
    assert "random is unfinished: seed 5 (2 of 3 rounds); left out" in ended.out
    assert f"{log}, line {at + 1}: no record can be read there" in ended.out
    assert "0.300 (n=1)" in ended.out
    assert "entropy local: paired with random over the common seeds 0 (only random has 1)" in ended.out


def test_damaged_runs_stop_nothing_and_are_told(run: Path, sweep: Path, command: Command) -> None:
    """Of many folders some are broken, copied twice, or hold figures that are none: the rest is compared."""
    whole = command("compare", sweep).out
    (copied(run, sweep / "no-state", strategy="random", seed=5) / "state.json").unlink()
    (copied(run, sweep / "no-config", strategy="random", seed=6) / "config.yaml").unlink()
    (copied(run, sweep / "empty-log", strategy="random", seed=7) / "metrics.jsonl").write_text("")
    copied(sweep / "entropy" / "0", sweep / "entropy" / "zero again")
    log = copied(run, sweep / "nan", strategy="random", seed=8, change=lambda *_: math.nan) / "metrics.jsonl"
    ended = command("compare", sweep)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("11 runs (8 finished, 3 left out) of")
    for said in (
        f"{sweep / 'no-state' / 'state.json'} is damaged (it is missing)",
        f"{sweep / 'no-config' / 'config.yaml'} is damaged (it is missing)",
        f"{sweep / 'empty-log' / 'metrics.jsonl'} is shorter than what was written",
        f"{sweep / 'entropy' / 'zero again'} repeats {sweep / 'entropy' / '0'} (same settings, seed and metrics)",
        f"{log}, line ",
        "mean is not valid (Input should be a finite number), so it is left out",
    ):
        assert said in ended.out
    table = [line for line in whole.splitlines() if line.startswith((" full", " random", " entropy"))]
    assert table
    assert set(table) <= set(ended.out.splitlines())


def test_a_single_seed(sweep: Path, command: Command) -> None:
    ended = command("compare", sweep / "random" / "0", sweep / "entropy" / "0")
    assert "of one seed, which has no deviation" in ended.out
    assert "(one pair): too few to tell from noise." in ended.out
    assert "A single seed has no interval" in ended.out
    assert "There is no finished run of full" in ended.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--metric", "balanced"], "did you mean 'balanced_accuracy'"),
        (["--to", "entropy"], "did you mean 'entropy local'"),
        (["--share", "2"], "such as 0.95"),
    ],
)
def test_a_mistake_is_one_sentence(sweep: Path, command: Command, words: list[str], said: str) -> None:
    ended = command("compare", sweep, *words)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert len(ended.err.strip().splitlines()) == 1


def test_places_without_runs_or_with_different_ones(
    run: Path, sweep: Path, tmp_path: Path, command: Command
) -> None:
    (tmp_path / "empty").mkdir()
    assert "empty holds no run" in command("compare", tmp_path / "empty").err
    copied(run, tmp_path / "other", model="densenet121")
    mixed = command("compare", sweep, tmp_path / "other")
    assert mixed.code == 2
    assert "are runs of different experiments (model.name is densenet121 and tiny-cnn)" in mixed.err


def test_a_narrow_screen_gets_the_table_in_parts(
    sweep: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("feal.cli.compare.LINE_WIDTH", 60)
    lines = command("compare", sweep).out.splitlines()
    assert [line.split() for line in lines if "entropy" in line][:2] == [
        ["entropy", "local", "0.250", "±", "0.071", "0.350", "±", "0.071¹"],
        ["entropy", "local", "0.450", "±", "0.071¹"],
    ]


def test_comparing_waits_for_no_heavy_library() -> None:
    program = "import sys, feal.cli.compare; sys.exit(any(name in sys.modules for name in ('torch', 'scipy')))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
