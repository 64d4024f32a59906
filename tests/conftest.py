"""Data for all tests: written once in a session, never into the user's cache."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from xdist.scheduler import LoadScopeScheduling

from tests.command import Command

pytest.register_assert_rewrite("feal.testing")

# A shell's background jobs ignore SIGINT, those of nohup SIGHUP, and so would every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# A busy machine is no fault of the code.
hypothesis.settings.register_profile("suite", deadline=None)
hypothesis.settings.load_profile("suite")
# Two threads on two busy cores wait for each other: some tests would take ten times as long.
torch.set_num_threads(1)


TOGETHER = {
    # Two Rays, or two deployments, slow each other down.
    "ray": (
        "tests/e2e/test_switching.py",
        "tests/federation/engines/test_faults.py",
        "tests/federation/engines/test_flower_simulation.py",
    ),
    "deployment": (
        "tests/federation/engines/test_flower_deployment.py",
        "tests/federation/engines/test_flower_faults.py",
    ),
    # Their tests share data or runs that take seconds to make.
    "synthetic": ("tests/data/synthetic/",),
    "mistakes": ("tests/e2e/test_mistakes.py",),
    "networks": ("tests/federation/test_networks.py",),
    "inference": ("tests/inference/",),
}
"""Files and folders whose tests go to one process."""


class Together(LoadScopeScheduling):
    """Any test to any process, but those that belong `TOGETHER` to the same."""

    def _split_scope(self, nodeid: str) -> str:
        return next((name for name, paths in TOGETHER.items() if nodeid.startswith(paths)), nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    return Together(config, log)


@pytest.fixture(scope="session", autouse=True)
def data_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data cache of this session's own, also for processes that tests start."""
    path = tmp_path_factory.mktemp("data")
    before = os.environ.get("FEAL_DATA")
    os.environ["FEAL_DATA"] = str(path)
    yield path
    if before is None:
        del os.environ["FEAL_DATA"]
    else:
        os.environ["FEAL_DATA"] = before


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """The command line, called in this process."""
    handler = signal.getsignal(signal.SIGTERM)
    yield Command(capsys, monkeypatch)
    signal.signal(signal.SIGTERM, handler)
