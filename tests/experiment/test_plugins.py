"""A run with a user's network and metric: one file each, computed at every site and checked by the coordinator."""

from pathlib import Path

import pytest

from feal.config import revise
from feal.errors import FealError
from feal.experiment import resume, start
from feal.inference import load_model
from feal.rundir.journal import read_settings
from tests.metrics.test_registry import BRIER
from tests.models.test_plugin import NET
from tests.runs import tiny


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
