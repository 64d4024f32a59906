import statistics
from pathlib import Path
from typing import Any

import pytest

from feal.analysis.arms import Arm, make_arms
from feal.analysis.runs import read_runs
from feal.config import load
from feal.errors import FealError
from feal.experiment import start
from reproduce.compare import compare_runs, describe_data, find_match, result_of
from reproduce.paper import find_entry
from reproduce.tests.pretend import write_run
from tests.runs import tiny


def _arm(folder: Path, values: list[list[float]], **options: Any) -> Arm:
    for seed, means in enumerate(values):
        write_run(folder / str(seed), "fed-isic", {"seed": seed}, metrics={"balanced_accuracy": means}, **options)
    return _only_arm(folder)


def _only_arm(place: Path) -> Arm:
    (arm,) = make_arms(read_runs([place]))
    return arm


def test_result_is_the_mean_over_seeds_in_per_cent(tmp_path: Path) -> None:
    arm = _arm(tmp_path, [[0.5, 0.61], [0.5, 0.64], [0.5, 0.66]])
    found = result_of(arm, metric="balanced_accuracy", round=2)
    assert found is not None
    assert found.mean == pytest.approx(statistics.mean([61, 64, 66]))
    assert found.sd == pytest.approx(statistics.stdev([61, 64, 66]))
    assert found.seeds == 3
    pooled = result_of(arm, metric="balanced_accuracy", round=2, over="pooled")
    assert pooled is not None
    assert pooled.mean == pytest.approx(found.mean + 1)


def test_only_seeds_that_reached_the_round_count(tmp_path: Path) -> None:
    arm = _arm(tmp_path, [[0.5, 0.61], [0.5]], stage="close")
    found = result_of(arm, metric="balanced_accuracy", round=2)
    assert found is not None
    assert (found.seeds, found.sd) == (1, None)
    assert result_of(arm, metric="balanced_accuracy", round=3) is None
    assert result_of(arm, metric="dice", round=1) is None


def test_unfinished_seed_is_left_out_if_others_are_finished(tmp_path: Path) -> None:
    _arm(tmp_path, [[0.5, 0.61]])
    write_run(tmp_path / "open", "fed-isic", {"seed": 5}, metrics={"balanced_accuracy": [0.5, 0.6]}, stage="close")
    found = result_of(_only_arm(tmp_path), metric="balanced_accuracy", round=2)
    assert found is not None
    assert (found.seeds, found.mean) == (1, 61)


def test_distances_are_not_percentages(tmp_path: Path) -> None:
    write_run(tmp_path / "run", "fed-polyp", metrics={"dice": [0.5], "hd95": [12.5]})
    arm = _only_arm(tmp_path)
    results = [result_of(arm, metric=name, round=1) for name in ("dice", "hd95")]
    assert [result and result.mean for result in results] == [50, 12.5]


def test_selection_time_excludes_the_last_round(tmp_path: Path) -> None:
    arm = _arm(tmp_path, [[0.5, 0.6, 0.7]], seconds=[10.0, 14.0, 99.0])
    found = result_of(arm, metric="seconds", round=None)
    assert found is not None
    assert found.mean == 12
    assert result_of(_arm(tmp_path / "untimed", [[0.5]]), metric="seconds", round=None) is None


@pytest.mark.slow
def test_real_run_has_selection_time_and_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEAL_DATA", str(tmp_path / "data"))
    start(tiny(communication_rounds=1), out=tmp_path / "run")
    arm = _only_arm(tmp_path / "run")
    run = arm.runs[0]
    found = result_of(arm, metric="seconds", round=None)
    assert found is not None
    assert found.mean == run.rounds[0].seconds["select"]
    accuracy = result_of(arm, metric="accuracy", round=2)
    assert accuracy is not None
    assert accuracy.mean == 100 * run.rounds[1].metrics["accuracy"].mean


def test_seed_and_machine_are_no_differences(tmp_path: Path) -> None:
    write_run(tmp_path / "run", "fed-polyp", {"threads": 2, "device": "cpu", "seed": 7}, metrics={"dice": [0.5]})
    found = find_match(load("fed-polyp"), [_only_arm(tmp_path)], keys={"strategy"})
    assert found is not None
    assert found.differences == {}


def test_exact_arm_is_preferred_and_ambiguity_is_refused(tmp_path: Path) -> None:
    for name, changes in {"exact": {}, "fast": {"training.lr": 1e-3}, "plain": {"loss": "plain"}}.items():
        write_run(tmp_path / name, "fed-isic", changes, metrics={"balanced_accuracy": [0.5, 0.6]})
    arms = make_arms(read_runs([tmp_path]))
    wanted = load("fed-isic")
    found = find_match(wanted, arms, keys={"strategy"})
    assert found is not None
    assert [run.path.name for run in found.arm.runs] == ["exact"]
    others = [arm for arm in arms if arm.runs[0].path.name != "exact"]
    with pytest.raises(FealError, match=r"match one row and differ in .*training\.lr"):
        find_match(wanted, others, keys={"strategy"})
    found = find_match(wanted, others, keys={"strategy", "loss"})
    assert found is not None
    assert found.differences == {"training.lr": (1e-3, 5e-4)}
    assert find_match(load("fed-isic", {"strategy": "random"}), arms, keys={"strategy"}) is None


def test_other_sites_and_networks_are_accepted_and_described(tmp_path: Path) -> None:
    write_run(tmp_path / "small", "fed-isic-small", metrics={"balanced_accuracy": [0.5, 0.6]})
    (pair, *_) = compare_runs(find_entry("table-6"), [tmp_path]).pairs
    assert pair.ours is not None
    note = describe_data(pair.match.differences)
    assert "sites rosendahl, vidir-modern, vidir-molemax, vienna-dias instead of bcn, rosendahl, " in note
    assert "efficientnet-lite0 instead of efficientnet-b0" in note
    assert "dataset.size 128 instead of the default" in note
    write_run(tmp_path / "two", "fed-isic", {"sites": ["bcn"]}, metrics={"balanced_accuracy": [0.5, 0.6]})
    (pair, *_) = compare_runs(find_entry("table-6"), [tmp_path / "two"]).pairs
    assert describe_data(pair.match.differences) == "sites bcn only"
    with pytest.raises(FealError, match="runs of different experiments"):
        compare_runs(find_entry("table-6"), [tmp_path])
