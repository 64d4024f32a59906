"""One deployment for all tests that need a real one, and the run it is compared with."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from feal.data import locate
from feal.experiment import Result, start
from feal.settings import Settings
from tests.federation.engines.consortium import Consortium
from tests.runs import tiny

SITES = {"sites": 3, "train": 40, "test": 16, "classes": 5}


def settings_for(consortium: Consortium | None, **changes: Any) -> Settings:
    """The run of three sites, in one process or by the deployment."""
    where = {"engine": "flower", "deployment.coordinator": str(consortium.coordinator)} if consortium else {}
    return tiny(**{"synthetic": SITES, **where, **changes})


def data_folder() -> Path:
    """The prepared set that the sites hold parts of."""
    settings = settings_for(None)
    return locate(settings.dataset, synthetic=settings.synthetic.model_dump())


@pytest.fixture(scope="package")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The run in one process."""
    return start(settings_for(None), out=tmp_path_factory.mktemp("reference") / "run")


@pytest.fixture(scope="package")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consortium]:
    """Coordinator and sites at work; birch can be ordered to misbehave."""
    machines = Consortium(tmp_path_factory.mktemp("machines"), data=data_folder())
    try:
        machines.start(sabotaged=["birch"])
        yield machines
    finally:
        machines.close()
