"""One small run for all tests of the report."""

from pathlib import Path

import pytest

from feal.analysis.plots import PLOTS
from feal.experiment import start
from tests.runs import tiny


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rounds of feal at two sites; not to be changed."""
    return start(tiny(rounds=2, communication_rounds=1), out=tmp_path_factory.mktemp("runs") / "run").folder


@pytest.fixture
def curves_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets there be no plot but the learning curves: most of a report's time is for the others."""
    monkeypatch.setattr(PLOTS, "_entries", {"curves": PLOTS.get("curves")})
