import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import PROJECT


def _report(kind: str, folder: Path) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.killing", kind, str(folder)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=1000,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_killed_around_one_durable_write_of_each_kind(tmp_path: Path) -> None:
    report = _report("kinds", tmp_path)
    assert "commit" in report["kinds"]
    assert len(report["kinds"]) > 8
    assert report["wrong"] == []


@pytest.mark.nightly
def test_killed_before_and_after_every_durable_write(tmp_path: Path) -> None:
    report = _report("every", tmp_path)
    assert report["writes"] > 40
    assert report["wrong"] == []


@pytest.mark.nightly
def test_killed_around_every_durable_write_of_a_segmentation_run(tmp_path: Path) -> None:
    report = _report("every-polyps", tmp_path)
    assert report["writes"] > 15
    assert report["wrong"] == []


@pytest.mark.nightly
def test_killed_around_every_durable_write_of_a_run_that_trains_a_part(tmp_path: Path) -> None:
    report = _report("every-frozen", tmp_path)
    assert report["writes"] > 15
    assert report["wrong"] == []


@pytest.mark.nightly
def test_killed_around_every_durable_write_of_a_run_that_waits_for_people(tmp_path: Path) -> None:
    report = _report("people", tmp_path)
    assert report["writes"] > 15
    assert report["wrong"] == []


@pytest.mark.nightly
def test_killed_around_every_durable_write_of_an_extension(tmp_path: Path) -> None:
    report = _report("extension", tmp_path)
    assert report["writes"] > 15
    assert report["wrong"] == []


@pytest.mark.nightly
def test_killed_at_twenty_random_moments(tmp_path: Path) -> None:
    report = _report("random", tmp_path)
    assert report["kills"] >= 15
    assert report["wrong"] == []
