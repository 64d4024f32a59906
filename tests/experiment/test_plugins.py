"""A run with a user's network and metric: one file each, computed at every site and checked by the coordinator."""

from pathlib import Path

import pytest

from feal.analysis.arms import make_arms
from feal.analysis.runs import open_run
from feal.analysis.tables import make_round_grid, tabulate_rounds
from feal.config import revise
from feal.errors import FealError
from feal.experiment import resume, start
from feal.inference import load_model
from feal.rundir.journal import read_settings
from tests.command import Command
from tests.metrics.test_registry import BRIER
from tests.models.test_plugin import NET
from tests.runs import tiny, tiny_polyps


def test_a_user_s_network_and_metric_in_one_run(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "brier.py").write_text(BRIER)
    names = {"model": f"{tmp_path}/net.py:Net", "metrics": [f"{tmp_path}/brier.py:Brier"]}
    result = start(tiny(**names, **{"model.width": 5, "evaluate_every": 1}), out=tmp_path / "run")
    assert result.status == "finished"
    for record in result.rounds:
        brier = record.metrics["brier"]
        assert brier.lower_is_better is True
        assert brier.pooled is not None
        assert 0 < brier.pooled < 2
        assert len(brier.sites) == 2
    settings = read_settings(result.folder)
    assert settings.metrics == (f"{tmp_path}/brier.py:Brier",)
    assert load_model(result.folder).network.head.in_features == 5


def test_a_run_with_one_metric_is_extended(tmp_path: Path) -> None:
    path = tmp_path / "brier.py"
    path.write_text(BRIER)
    result = start(tiny(metrics=f"{path}:Brier", rounds=1), out=tmp_path / "run")
    extended = resume(result.folder, settings=revise(read_settings(result.folder), {"rounds": 2}))
    assert [sorted(record.metrics) for record in extended.rounds] == [
        ["accuracy", "balanced_accuracy", "brier", "calibration_error"]
    ] * 2


def test_a_metric_that_is_missing_is_named() -> None:
    with pytest.raises(FealError, match=r"There is no file .*gone.py for a metric: check the path"):
        tiny(metrics=["gone.py:Brier"])


def test_a_metric_for_the_other_task_is_refused_before_the_run(tmp_path: Path) -> None:
    path = tmp_path / "other.py"
    path.write_text(BRIER.replace("classification", "segmentation"))
    with pytest.raises(FealError, match="is for segmentation, not for classification: leave it out"):
        tiny(metrics=[f"{path}:Brier"])


def test_a_user_s_metric_has_parameters(tmp_path: Path) -> None:
    path = tmp_path / "half.py"
    path.write_text(
        """
from feal.metrics import Metric

class Part(Metric):
    name = "part"

    class Params(Metric.Params):
        factor: float = 1.0

    def compute(self, statistics, sums):
        return self.params.factor * statistics.correct / statistics.predictions
"""
    )
    changes = {"metrics": f"{path}:Part", "metric.part.factor": 0.5, "rounds": 1}
    result = start(tiny(**changes), out=tmp_path / "run")
    metrics = result.rounds[0].metrics
    assert metrics["part"].pooled == pytest.approx(0.5 * metrics["accuracy"].pooled)
    assert metrics["part"].variant == "factor 0.5"
    assert read_settings(result.folder).metric == {"part": {"factor": 0.5}}


def test_hd95_by_the_rule_of_the_run(tmp_path: Path, command: Command) -> None:
    plain = start(tiny_polyps(rounds=1), out=tmp_path / "largest")
    pooled = start(tiny_polyps(rounds=1, **{"metric.hd95.rule": "pooled"}), out=tmp_path / "pooled")
    one, other = (result.rounds[0].metrics for result in (plain, pooled))
    assert one["dice"] == other["dice"]
    assert 0 < other["hd95"].pooled < one["hd95"].pooled
    assert (one["hd95"].variant, other["hd95"].variant) == ("", "rule pooled")
    assert "variant" not in (tmp_path / "largest" / "metrics.jsonl").read_text()
    assert "rule: pooled" in (tmp_path / "pooled" / "config.yaml").read_text()
    heading = make_round_grid(tabulate_rounds(make_arms([open_run(pooled.folder)]), metric="hd95")).title
    assert heading.startswith("HD95 (rule pooled, lower is better)")
    assert "(rule pooled)" in " ".join(command("show", pooled.folder).out.split())
