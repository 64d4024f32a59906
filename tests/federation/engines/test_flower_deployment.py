"""A real deployment on this machine: a SuperLink and three SuperNodes, TLS, registered keys."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feal.data import locate, open_prepared, open_truth
from feal.experiment import Result, start
from feal.settings import Settings
from tests.federation.engines.consortium import Consortium
from tests.runs import differences, fingerprint, tiny

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]
SITES = {"sites": 3, "train": 40, "test": 16, "classes": 5}


def _settings(consortium: Consortium | None = None, **changes: Any) -> Settings:
    where = {"engine": "flower", "deployment.coordinator": str(consortium.coordinator)} if consortium else {}
    return tiny(synthetic=SITES, **where, **changes)


def _data() -> Path:
    settings = _settings()
    return locate(settings.dataset, synthetic=settings.synthetic.model_dump())


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The run in one process."""
    return start(_settings(), out=tmp_path_factory.mktemp("reference") / "run")


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consortium]:
    """Coordinator and sites at work; birch can be ordered to misbehave."""
    machines = Consortium(tmp_path_factory.mktemp("machines"), data=_data())
    try:
        machines.start(sabotaged=["birch"])
        yield machines
    finally:
        machines.close()


@pytest.fixture(scope="module")
def deployed(consortium: Consortium, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The same run by the deployment, recorded."""
    return start(_settings(consortium), out=tmp_path_factory.mktemp("deployed") / "run")


def test_the_same_bits_as_in_one_process(consortium: Consortium, deployed: Result, reference: Result) -> None:
    run = consortium.gathered(deployed.folder)
    assert differences(fingerprint(reference.folder), fingerprint(run)) == ["config.yaml"]


def test_nothing_of_the_sites_data_passes_the_border(consortium: Consortium, deployed: Result) -> None:
    seen = bytes(consortium.recorder.up) + bytes(consortium.recorder.down)
    model = (deployed.folder / "weights" / "round-002.safetensors").read_bytes()
    assert model[-4096:] in seen, "the recorder sees what passes"
    data = open_prepared(_data())
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
