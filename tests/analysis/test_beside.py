import statistics
from pathlib import Path

import pytest

from feal.analysis.arms import Arm, arms_of
from feal.analysis.beside import check_same_set, match, ours
from feal.analysis.runs import read_run, read_runs
from feal.config import load
from feal.errors import FealError
from feal.experiment import start
from tests.published_runs import pretend
from tests.runs import tiny

ISIC = {"balanced_accuracy": [0.5, 0.6]}


def _arm(folder: Path, values: list[list[float]], **options: object) -> Arm:
    for seed, figures in enumerate(values):
        pretend(folder / str(seed), "fed-isic", {"seed": seed}, figures={"balanced_accuracy": figures}, **options)
    return _only(folder)


def _only(place: Path) -> Arm:
    (arm,) = arms_of(read_runs([place]))
    return arm


def test_a_figure_is_the_mean_over_seeds_in_per_cent(tmp_path: Path) -> None:
    arm = _arm(tmp_path, [[0.5, 0.61], [0.5, 0.64], [0.5, 0.66]])
    found = ours(arm, figure="balanced_accuracy", round=2)
    assert found is not None
    assert found.mean == pytest.approx(statistics.mean([61, 64, 66]))
    assert found.sd == pytest.approx(statistics.stdev([61, 64, 66]))
    assert found.seeds == 3
    pooled = ours(arm, figure="balanced_accuracy", round=2, over="pooled")
    assert pooled is not None
    assert pooled.mean == pytest.approx(found.mean + 1)


def test_only_seeds_that_came_so_far_count(tmp_path: Path) -> None:
    arm = _arm(tmp_path, [[0.5, 0.61], [0.5]], stage="close")
    found = ours(arm, figure="balanced_accuracy", round=2)
    assert found is not None
    assert (found.seeds, found.sd) == (1, None)
    assert ours(arm, figure="balanced_accuracy", round=3) is None
    assert ours(arm, figure="dice", round=1) is None


def test_an_unfinished_seed_is_left_out_beside_finished_ones(tmp_path: Path) -> None:
    _arm(tmp_path, [[0.5, 0.61]])
    pretend(tmp_path / "open", "fed-isic", {"seed": 5}, figures=ISIC, stage="close")
    found = ours(_only(tmp_path), figure="balanced_accuracy", round=2)
    assert found is not None
    assert (found.seeds, found.mean) == (1, 61)


def test_pixels_are_no_shares(tmp_path: Path) -> None:
    pretend(tmp_path / "run", "fed-polyp", figures={"dice": [0.5], "hd95": [12.5]})
    arm = _only(tmp_path)
    figures = [ours(arm, figure=name, round=1) for name in ("dice", "hd95")]
    assert [figure and figure.mean for figure in figures] == [50, 12.5]


def test_the_time_of_a_selection_leaves_the_last_look_out(tmp_path: Path) -> None:
    arm = _arm(tmp_path, [[0.5, 0.6, 0.7]], seconds=[10.0, 14.0, 99.0])
    found = ours(arm, figure="seconds", round=None)
    assert found is not None
    assert found.mean == 12
    assert ours(_arm(tmp_path / "untimed", [[0.5]]), figure="seconds", round=None) is None


@pytest.mark.slow
def test_a_real_run_has_the_time_of_its_selection(tmp_path: Path) -> None:
    start(tiny(communication_rounds=1), out=tmp_path / "run")
    arm = _only(tmp_path)
    run = arm.runs[0]
    found = ours(arm, figure="seconds", round=None)
    assert found is not None
    assert found.mean == run.rounds[0]["seconds"]["select"]
    accuracy = ours(arm, figure="accuracy", round=2)
    assert accuracy is not None
    assert accuracy.mean == 100 * run.rounds[1]["metrics"]["accuracy"]["mean"]


def test_a_run_of_the_preset_has_its_settings_whatever_machine_it_was_on(tmp_path: Path) -> None:
    pretend(tmp_path / "run", "fed-polyp", {"threads": 2, "device": "cpu", "seed": 7}, figures={"dice": [0.5]})
    found = match(load("fed-polyp"), [_only(tmp_path)], told_by={"strategy"})
    assert found is not None
    assert found.unlike == {}


def test_an_arm_that_is_like_in_all_goes_first_and_others_are_told_apart(tmp_path: Path) -> None:
    for name, changes in {"as-it-is": {}, "fast": {"training.lr": 1e-3}, "local": {"loss": "plain"}}.items():
        pretend(tmp_path / name, "fed-isic", changes, figures=ISIC)
    groups = arms_of(read_runs([tmp_path]))
    wanted = load("fed-isic")
    found = match(wanted, groups, told_by={"strategy"})
    assert found is not None
    assert [run.path.name for run in found.arm.runs] == ["as-it-is"]
    others = [arm for arm in groups if arm.runs[0].path.name != "as-it-is"]
    with pytest.raises(FealError, match=r"both stand for one row, and differ in .*training\.lr"):
        match(wanted, others, told_by={"strategy"})
    found = match(wanted, others, told_by={"strategy", "loss"})
    assert found is not None
    assert found.unlike == {"training.lr": (1e-3, 5e-4)}
    assert match(load("fed-isic", {"strategy": "random"}), groups, told_by={"strategy"}) is None


def test_other_images_and_networks_are_refused(tmp_path: Path) -> None:
    pretend(tmp_path / "small", "fed-isic-small", figures=ISIC)
    run = read_run(tmp_path / "small")
    with pytest.raises(FealError, match=r"no run of fed-isic, which table-2 is about \(sites is "):
        check_same_set(run, load("fed-isic"), preset="fed-isic", about="table-2")
    check_same_set(run, load("fed-isic-small"), preset="fed-isic-small", about="table-2")
