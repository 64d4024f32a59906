from pathlib import Path

import pytest

from feal.experiment import start
from tests.runs import tiny


@pytest.fixture(scope="session")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two rounds: two seeds of random and one of entropy."""
    place = tmp_path_factory.mktemp("sweep")
    for name, changes in {
        "random-0": {"strategy": "random"},
        "random-1": {"strategy": "random", "seed": 1},
        "entropy-0": {"strategy": "entropy", "strategy.query_model": "local"},
    }.items():
        start(tiny(communication_rounds=1, **changes), out=place / name)
    return place
