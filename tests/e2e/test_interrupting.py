"""Ctrl-C and a polite kill: the run says how to go on, and goes on to the same bits."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from feal.experiment import resume, start
from feal.settings import flatten
from tests.runs import TINY, differences, fingerprint, tiny

LONGER = {**TINY, "communication_rounds": 6}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that was not interrupted."""
    return start(tiny(**LONGER), out=tmp_path_factory.mktemp("whole") / "run").folder


def _wait_for_training(folder: Path, process: subprocess.Popen[str]) -> None:
    for _ in range(600):
        log = folder / "metrics.jsonl"
        if log.exists() and log.stat().st_size:
            return
        assert process.poll() is None
        time.sleep(0.05)
    raise AssertionError("the run did not begin")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_says_how_to_go_on(whole: Path, tmp_path: Path, number: int, code: int) -> None:
    folder = tmp_path / "run"
    words = [f"{key}={value}" for key, value in flatten(LONGER).items()]
    process = subprocess.Popen(
        [sys.executable, "-c", "from feal.cli import main; main()", "run", "demo", *words, "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _wait_for_training(folder, process)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == code, err
    assert f"feal resume {folder}" in out
    assert "Traceback" not in err
    resume(folder)
    assert differences(fingerprint(whole), fingerprint(folder)) == []
