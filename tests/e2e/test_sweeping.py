"""`feal sweep` as people use it: carried out, interrupted, killed, mended, repeated."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from feal.experiment import start
from feal.experiment.sweep import plan_sweep, read_grid
from tests.command import Command
from tests.runs import differences, fingerprint

pytestmark = pytest.mark.slow

WORDS = (
    *("strategy=entropy,random", "seed=0,1", "dataset.sites=2", "dataset.train=40", "dataset.test=16"),
    *("rounds=2", "communication_rounds=2", "budget=5", "training.local_epochs=1"),
)
PROGRAM = "from feal.cli import main; main()"


PATIENCE = 600
"""Seconds for what takes some on a machine that has nothing else to do."""


@dataclass(frozen=True)
class Sweeps:
    """Sweeps into one folder, each a session of its own, which ends with the test whatever becomes of it."""

    out: Path
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def words(self, *, at_a_time: int = 1) -> tuple[str, ...]:
        return ("sweep", "demo", *WORDS, "-j", str(at_a_time), "--out", str(self.out))

    def begin(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PROGRAM, *self.words(at_a_time=2)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.processes.append(process)
        return process

    def states(self) -> dict[Path, int]:
        """When each run last got on."""
        return {path: path.stat().st_mtime_ns for path in self.out.glob("*/*/state.json")}

    def wait_for_progress(self, before: dict[Path, int]) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.states() == before:
            assert self.processes[-1].poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def end(self) -> None:
        for process in self.processes:
            for left in in_session(process.pid):
                os.kill(left, signal.SIGKILL)
            process.communicate()


@pytest.fixture
def sweeps(tmp_path: Path) -> Iterator[Sweeps]:
    begun = Sweeps(tmp_path / "sweep")
    yield begun
    begun.end()


def in_session(session: int) -> list[int]:
    """Living processes of a session, which ends with none."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(entry.name))
    return found


def wait_for_the_end(session: int) -> None:
    """Python's own tracker of resources ends a moment after the process that it belongs to, or later."""
    deadline = time.monotonic() + PATIENCE
    while in_session(session):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_sweep_interrupted_killed_and_mended_comes_to_the_same(
    sweeps: Sweeps, command: Command, tmp_path: Path
) -> None:
    out = sweeps.out
    first = sweeps.begin()
    sweeps.wait_for_progress({})
    began = time.monotonic()
    os.kill(first.pid, signal.SIGINT)
    printed, errors = first.communicate(timeout=60)
    assert time.monotonic() - began < 10
    assert (first.returncode, errors) == (130, "")
    assert "repeat the command to continue" in printed
    wait_for_the_end(first.pid)

    before = sweeps.states()
    second = sweeps.begin()
    sweeps.wait_for_progress(before)
    second.kill()
    second.communicate(timeout=60)
    wait_for_the_end(second.pid)

    taken = out / "random" / "seed-1"
    taken.mkdir(parents=True)
    (taken / "notes.txt").write_text("mine")
    ended = command(*sweeps.words())
    assert (ended.code, ended.err) == (1, "")
    assert "random/seed-1" in ended.out
    assert "is not empty and holds no run" in ended.out
    assert "3 of 4 runs are finished: repeat the command to try again." in ended.out
    (taken / "notes.txt").unlink()
    before = sweeps.states()
    ended = command(*sweeps.words())
    assert (ended.code, ended.err) == (0, "")
    assert "3 finished already" in ended.out
    assert "about" not in ended.out.splitlines()[1]
    assert before.items() <= sweeps.states().items()

    names = [str(path.parent.relative_to(out)) for path in sorted(out.glob("*/*/config.yaml"))]
    expected = plan_sweep("demo", read_grid(WORDS)).runs
    assert names == sorted(expected)
    for name in (names[0], "random/seed-1"):
        alone = start(expected[name], out=tmp_path / "alone" / name).folder
        assert differences(fingerprint(alone), fingerprint(out / name)) == []
    # Seeds pair: whatever the strategy, the first labels are the same.
    firsts = {
        name: sorted(path.read_bytes() for path in (out / name / "sites").glob("*/selections/round-001.csv"))
        for name in names
        if name.endswith("seed-0")
    }
    assert len({str(labels) for labels in firsts.values()}) == 1

    ended = command(*sweeps.words(), "training.weight_decay=0.5")
    assert ended.code == 2
    assert "holds a run with other settings" in ended.err
