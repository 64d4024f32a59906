"""The same bits on both engines, killed at random moments, each time going on in the other one."""

from pathlib import Path

import pytest

from tests.e2e.switching import switched


@pytest.mark.slow
@pytest.mark.parametrize(("task", "kills"), [("classification", 4), ("segmentation", 3)])
def test_killed_and_resumed_by_the_other_engine(task: str, kills: int, tmp_path: Path) -> None:
    report = switched(tmp_path, task, kills)
    assert report["ended"][-1] == 0
    assert report["wrong"] == []
