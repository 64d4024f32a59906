"""Small synthetic sets, drawn once, and a tiny prepared set that a test may damage."""

from pathlib import Path

import numpy as np
import pytest

from feal.data.prepared import PreparedSet, open_prepared
from feal.data.synthetic.lesions import SyntheticLesions
from feal.data.synthetic.polyps import SyntheticPolyps
from feal.data.writer import PreparedWriter


@pytest.fixture(scope="session")
def lesions(tmp_path_factory: pytest.TempPathFactory) -> PreparedSet:
    root = tmp_path_factory.mktemp("sets") / "lesions"
    SyntheticLesions(train=160, test=40).write(root)
    return open_prepared(root)


@pytest.fixture(scope="session")
def polyps(tmp_path_factory: pytest.TempPathFactory) -> PreparedSet:
    root = tmp_path_factory.mktemp("sets") / "polyps"
    SyntheticPolyps(train=60, test=12, size=48).write(root)
    return open_prepared(root)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """One site "alder" of four samples, written in no order of their ids; pixels equal the row's number."""
    root = tmp_path / "plain"
    with PreparedWriter(
        root, name="plain", task="classification", classes=("a", "b"), channels=1, height=2, width=3
    ) as writer:
        writer.site("alder").append(
            ids=["s3", "s1", "s4", "s2"],
            patients=["p", "q", "r", "p"],
            splits=["train", "test", "train", "train"],
            initial=[True, False, False, False],
            sources=["x", "y", "z", ""],
            images=np.repeat(np.arange(4, dtype=np.uint8), 6).reshape(4, 1, 2, 3),
            labels=np.array([0, 1, 1, 0]),
        )
    return root
