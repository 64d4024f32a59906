"""Two small finished runs, trained long enough that their answers differ from image to image."""

import pytest

from feal.experiment import Result, start
from tests.runs import tiny, tiny_polyps

LESIONS = tiny(
    communication_rounds=4, budget=20, training={"batch_size": 4, "local_epochs": 3}, selection={"batch_size": 5}
)
POLYPS = tiny_polyps(model="basic-unet", communication_rounds=4, selection={"batch_size": 3})


@pytest.fixture(scope="session")
def lesions(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Classification."""
    return start(LESIONS, out=tmp_path_factory.mktemp("lesions") / "run")


@pytest.fixture(scope="session")
def polyps(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Segmentation."""
    return start(POLYPS, out=tmp_path_factory.mktemp("polyps") / "run")
