"""One deployment for all tests that need a real one, and the run it is compared with."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feal.data import locate, open_prepared, open_truth
from feal.experiment import Result, start
from feal.settings import Settings
from tests.federation.engines.consortium import PROXIES, Consortium
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


def assert_no_data_passed(consortium: Consortium, *, model: Path) -> None:
    """Of all that went between the machines, which a model did, nothing is of the sites' data."""
    seen = bytes(consortium.recorder.up) + bytes(consortium.recorder.down)
    assert model.read_bytes()[-4096:] in seen, "the recorder sees what passes"
    assert str(consortium.coordinator).encode() not in seen
    data = open_prepared(data_folder())
    for name in data.sites:
        site = data.site(name)
        for text in {*site.ids(), *site.patients(), *site.sources(), str(consortium.place(name))}:
            assert str(text).encode() not in seen
        images = np.load(data.root / name / "images.npy", mmap_mode="r")
        for image in images.reshape(len(images), -1):
            assert image[len(image) // 2 :][:24].tobytes() not in seen
        labels = open_truth(site).of(site.ids("train")).numpy()
        for kind in (np.int8, np.int16, np.int32, np.int64, np.float32):
            assert labels.astype(kind).tobytes() not in seen
        assert json.dumps(labels[:8].tolist())[1:-1].encode() not in seen


@pytest.fixture(scope="package")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The run in one process."""
    return start(settings_for(None), out=tmp_path_factory.mktemp("reference") / "run")


@pytest.fixture(scope="package")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consortium]:
    """Coordinator and sites at work; birch can be ordered to misbehave."""
    with pytest.MonkeyPatch.context() as patched:
        for name, proxy in PROXIES.items():
            patched.setenv(name, proxy)
        machines = Consortium(tmp_path_factory.mktemp("machines"), data=data_folder())
        try:
            machines.start(sabotaged=["birch"])
            yield machines
        finally:
            machines.close()
