"""What the screen shows of a round's figures."""

from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from rich.table import Table

from feal.analysis.runs import open_run
from feal.cli.console import make_curve_table, make_round_table, print_forecast
from feal.data import PreparedWriter
from feal.experiment import start
from feal.rundir.records import GainForecast, MetricValue, Round
from tests.command import Command
from tests.runs import events, tiny_polyps


def _text(table: Table) -> list[list[str]]:
    written = StringIO()
    Console(width=160, file=written).print(table)
    return [line.split() for line in written.getvalue().splitlines()]


def _record(**metrics: MetricValue) -> Round:
    return Round(round=1, labels={"alder": 3, "birch": 4}, metrics=metrics)


def _figure(alder: float | None, birch: float | None, mean: float, pooled: float) -> MetricValue:
    return MetricValue(sites={"alder": alder, "birch": birch}, mean=mean, pooled=pooled)


def test_segmentation_shows_dice_and_hd95_by_site_as_mean_and_pooled() -> None:
    record = _record(dice=_figure(0.5, 0.7, 0.6, 0.65), hd95=_figure(3.25, None, 3.25, 3.5))
    lines = _text(make_round_table(record, task="segmentation", rounds=2))
    assert lines[1][:4] == ["site", "labels", "dice", "HD95"]
    assert lines[2][:4] == ["alder", "3", "0.500", "3.250"]
    assert lines[3][:4] == ["birch", "4", "0.700", "-"]
    assert lines[4][:5] == ["total,", "mean", "7", "0.600", "3.250"]
    assert lines[5] == ["pooled", "0.650", "3.500"]
    assert _text(make_curve_table([record], task="segmentation"))[1] == [
        "1",
        "7",
        "0.600",
        "0.650",
        "3.250",
        "3.500",
    ]


def test_a_run_of_before_there_was_hd95_is_shown_without_it() -> None:
    old, new = _record(dice=_figure(0.5, 0.7, 0.6, 0.65)), _record(hd95=_figure(1, 2, 1.5, 1.6))
    assert "HD95" not in str(_text(make_round_table(old, task="segmentation", rounds=2)))
    assert _text(make_curve_table([old], task="segmentation"))[1] == ["1", "7", "0.600", "0.650"]
    extended = new.model_copy(update={"metrics": {**old.metrics, **new.metrics}})
    lines = _text(make_curve_table([old, extended], task="segmentation"))
    assert lines[1:] == [["1", "7", "0.600", "0.650", "-", "-"], ["1", "7", "0.600", "0.650", "1.500", "1.600"]]


def test_classification_shows_the_pooled_figure_beside_the_mean_of_sites() -> None:
    record = _record(balanced_accuracy=_figure(0.5, 0.25, 0.375, 0.4), accuracy=_figure(1, 1, 1, 1))
    lines = _text(make_round_table(record, task="classification", rounds=1))
    assert lines[4][:4] == ["total,", "mean", "7", "0.375"]
    assert lines[5] == ["pooled", "0.400"]


@pytest.fixture
def fundus(tmp_path: Path) -> Path:
    """A disc with a cup in it at two sites, bright on dark."""
    regions = {"disc": (1, 2), "cup": (2,)}
    with PreparedWriter(
        tmp_path / "fundus",
        name="eyes",
        task="segmentation",
        classes=("background", "rim", "cup"),
        channels=1,
        height=32,
        width=32,
        regions=regions,
    ) as writer:
        for site in ("alder", "birch"):
            masks = np.zeros((10, 32, 32), dtype=np.uint8)
            masks[:, 6:26, 6:26] = 1
            masks[:, 12:20, 12:20] = 2
            writer.site(site).append(
                ids=[f"{site}-{number}" for number in range(10)],
                images=(masks[:, None] * 100 + 20).astype(np.uint8),
                labels=masks,
                splits=["train"] * 7 + ["test"] * 3,
            )
    return tmp_path / "fundus"


@pytest.mark.slow
def test_regions_have_their_own_figures_in_a_run(fundus: Path, tmp_path: Path, command: Command) -> None:
    settings = tiny_polyps(dataset=str(fundus), strategy="random", rounds=1, budget=2, evaluate_every=1)
    run = start(settings, out=tmp_path / "run")
    (record,) = events(run.folder, "round")
    assert record["metrics"].keys() == {
        *("dice", "hd95", "accuracy", "calibration_error", "dice_disc", "dice_cup", "hd95_disc", "hd95_cup")
    }
    for score in ("dice", "hd95"):
        parts = [record["metrics"][f"{score}_{region}"]["pooled"] for region in ("disc", "cup")]
        assert record["metrics"][score]["pooled"] == pytest.approx(sum(parts) / 2)
    assert events(run.folder, "step")[1]["metrics"].keys() == record["metrics"].keys()
    assert open_run(run.folder).values("hd95_cup").tolist() == [record["metrics"]["hd95_cup"]["pooled"]]
    shown = command("show", run.folder)
    assert shown.code == 0
    assert "HD95 (mean)" in shown.out


def test_only_the_last_forecast_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    forecast = GainForecast(metric="dice", labels=12.0, gain=0.021, low=0.004, high=0.038, bound=0.03)
    plain = Round(round=2, labels={"alder": 5}, metrics={})
    print_forecast([plain])
    print_forecast([])
    assert capsys.readouterr().out == ""
    print_forecast([plain, plain.model_copy(update={"forecast": forecast})])
    line = "Another 12 labels a site are expected to bring +0.021 [+0.004, +0.038] dice.\n"
    assert capsys.readouterr().out.lower() == line.lower()
