"""A coordinator and a site on this machine in plain text: locks, and how they end."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from feal.federation.transport.deploy.config import write_consortium_files
from tests.command import Command
from tests.federation.transport.consortium import FEAL, Process, free_port, until
from tests.prepared import write_prepared

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]


class Trial:
    """A consortium of one site without keys."""

    def __init__(self, root: Path) -> None:
        self.port = free_port()
        write_consortium_files(root / "kit", address=f"127.0.0.1:{self.port}", sites=["alder"])
        self.hub, self.alder = root / "kit" / "coordinator", root / "kit" / "sites" / "alder"
        write_prepared(self.alder / "prepared")
        self._root = root
        self._started: list[Process] = []

    def coordinator(self, *more: str) -> Process:
        return self._start("coordinator", str(self.hub), *more)

    def site(self) -> Process:
        return self._start("site", str(self.alder), "--data", str(self.alder / "prepared"))

    def close(self) -> None:
        for process in self._started:
            process.kill()

    def _start(self, *words: str) -> Process:
        log = self._root / f"{len(self._started)}.log"
        process = Process([*FEAL, "deploy", *words, "--insecure"], log)
        self._started.append(process)
        return process


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    made = Trial(tmp_path)
    yield made
    made.close()


def _refused(process: Process, said: str) -> None:
    assert process.ended() == 2
    assert said in process.said()
    assert "Traceback" not in process.said()


def test_a_folder_has_one_process_which_ends_when_the_terminal_closes(trial: Trial, command: Command) -> None:
    hub = trial.coordinator()
    until(lambda: "listens at" in hub.said(), "the coordinator's start")
    assert f"transport.coordinator={trial.hub}" in hub.said()
    _refused(
        trial.coordinator("--port", str(free_port())), f"Process {hub.pid} is working on {trial.hub / 'state'}"
    )
    alder = trial.site()
    until(lambda: "Connected" in alder.said(), "the site's connection")
    _refused(trial.site(), f"Process {alder.pid} is working on {trial.alder / 'state'}")
    assert "Sites connected: 1" in command("deploy", "status", trial.hub).out
    for process in (alder, hub):
        os.kill(process.pid, signal.SIGHUP)
        assert process.ended() == 129, process.said()
        until(lambda: not process.members(), "the end of all of it", seconds=30)  # noqa: B023
    assert not (trial.hub / "state" / "running.json").exists()
    assert "No coordinator is running" in command("deploy", "status", trial.hub).err


def test_a_coordinator_with_a_weak_run_key_does_not_start(trial: Trial, command: Command) -> None:
    (trial.hub / "state").mkdir()
    key = trial.hub / "state" / "run.key"
    key.touch(mode=0o600)
    assert (
        "run.key is empty or damaged: remove it" in command("deploy", "coordinator", trial.hub, "--insecure").err
    )
    key.write_text("0" * 64)
    key.chmod(0o644)
    assert (
        "is readable by other users of this machine"
        in command("deploy", "coordinator", trial.hub, "--insecure").err
    )
