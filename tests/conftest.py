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
        "tests/federation/transport/test_faults.py",
        "tests/federation/transport/test_flower_simulation.py",
    ),
    "deployment": (
        "tests/federation/transport/test_flower_deployment.py",
        "tests/federation/transport/test_flower_faults.py",
    ),
    # Their files share data or runs that take seconds to make.
    "synthetic": ("tests/data/synthetic/",),
    "inference": ("tests/inference/",),
    "plots": ("tests/analysis/plots/",),
    "report": ("tests/analysis/report/",),
}
"""Files and folders whose tests go to one process."""

NIGHTLY = (
    # Every combination of transport and kill, real deployments, pages followed literally, browser, whole studies.
    "tests/e2e/test_label_efficiency.py",
    "tests/e2e/test_report_page.py",
    "tests/e2e/test_switching.py",
    "tests/e2e/test_watch_page.py",
    "tests/federation/transport/test_flower_deployment.py",
    "tests/federation/transport/test_flower_faults.py",
    "tests/federation/transport/deploy/",
    "tests/test_docs.py",
    "tests/test_readme.py::test_the_commands",
)
"""Slow tests that `make test-all` adds to `make test`, besides those that are marked so."""

APART = (
    "tests/e2e/test_killing.py",
    "tests/test_docs.py",
    "tests/test_fingerprints.py",
    "tests/test_readme.py",
)
"""Files that take long and whose tests share nothing: any of them to any process."""

FIRST = (
    "tests/federation/transport/",
    "tests/e2e/",
    "tests/inference/",
    "tests/docs/",
    "tests/test_docs.py",
    "tests/test_readme.py",
    "tests/test_fingerprints.py",
)
"""What takes long; begun last, it would leave the other processes idle at the end."""


class Together(LoadScopeScheduling):
    """A file's tests share what they make, so they go to one process, in their order."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        alone = nodeid if file in APART else file
        return next((name for name, paths in TOGETHER.items() if nodeid.startswith(paths)), alone)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests of whole files as nightly, and begin with what takes long."""
    for item in items:
        if item.nodeid.startswith(NIGHTLY) and item.get_closest_marker("slow"):
            item.add_marker("nightly")
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))


@pytest.hookimpl(optionalhook=True)
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
