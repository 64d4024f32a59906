"""One deployment for all tests that need one, and the reference run."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feal.data import locate, open_labels, open_prepared
from feal.experiment import Result, start
from feal.settings import Settings
from tests.federation.transport.consortium import PROXIES, Consortium
from tests.runs import tiny

SITES = {"sites": 3, "train": 40, "test": 16, "classes": 5}


def settings_for(consortium: Consortium | None, **changes: Any) -> Settings:
    """Return the settings of a run with three sites, in one process or deployed."""
    where = {"transport": "flower", "transport.coordinator": str(consortium.coordinator)} if consortium else {}
    return tiny(**{"dataset": SITES, **where, **changes})


def data_folder() -> Path:
    """Return the prepared set whose parts the sites have."""
    settings = settings_for(None)
    return locate(settings.dataset)


def assert_no_data_passed(consortium: Consortium, *, model: Path) -> None:
    """Check that the recorded traffic contains a model and nothing of the sites' data."""
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
        labels = open_labels(site).of(site.ids("train")).numpy()
        for kind in (np.int8, np.int16, np.int32, np.int64, np.float32):
            assert labels.astype(kind).tobytes() not in seen
        assert json.dumps(labels[:8].tolist())[1:-1].encode() not in seen


@pytest.fixture(scope="package")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Run in one process."""
    return start(settings_for(None), out=tmp_path_factory.mktemp("reference") / "run")


@pytest.fixture(scope="package")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consortium]:
    """Start the coordinator and the sites; birch takes faults from a file."""
    with pytest.MonkeyPatch.context() as patched:
        for name, proxy in PROXIES.items():
            patched.setenv(name, proxy)
        machines = Consortium(tmp_path_factory.mktemp("machines"), data=data_folder())
        try:
            machines.start(sabotaged=["birch"])
            yield machines
        finally:
            machines.close()
