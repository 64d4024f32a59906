"""The same bits on two transports, undisturbed or killed at random moments and continued on the other."""

from pathlib import Path

import pytest

from tests.e2e.switching import switched


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "kills"), [(task, kills) for task in ("classification", "segmentation") for kills in (0, 4)]
)
def test_another_transport_gives_the_same_bits(task: str, kills: int, tmp_path: Path) -> None:
    report = switched(tmp_path, task, kills)
    assert report["ended"][-1] == 0
    assert report["wrong"] == []
