"""`feal sweep` as people use it: carried out, interrupted, killed, mended, repeated."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from feal.config import combinations
from feal.experiment import start
from tests.runs import differences, fingerprint

pytestmark = pytest.mark.slow

WORDS = (
    *("strategy=entropy,random", "query_model=global,local", "seed=0,1"),
    *("synthetic.sites=2", "synthetic.train=40", "synthetic.test=16", "rounds=2"),
    *("communication_rounds=2", "budget=5", "training.local_epochs=1"),
)
PROGRAM = "from feal.cli import main; main()"


def begun(out: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, "sweep", "demo", *WORDS, "-j", "2", "--out", str(out), *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def sweep(out: Path, *words: str) -> tuple[int, str, str]:
    process = begun(out, *words)
    printed, errors = process.communicate(timeout=300)
    return process.returncode, printed, errors


def wait_for_runs(out: Path, count: int) -> None:
    deadline = time.monotonic() + 120
    while len(list(out.glob("*/*/state.json"))) < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


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
    deadline = time.monotonic() + 60
    while in_session(session):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_sweep_interrupted_killed_and_mended_comes_to_the_same(tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    first = begun(out)
    wait_for_runs(out, 1)
    began = time.monotonic()
    os.kill(first.pid, signal.SIGINT)
    printed, errors = first.communicate(timeout=60)
    assert time.monotonic() - began < 10
    assert (first.returncode, errors) == (130, "")
    assert "the same command goes on" in printed
    wait_for_the_end(first.pid)

    second = begun(out)
    wait_for_runs(out, 3)
    second.kill()
    second.communicate(timeout=60)
    wait_for_the_end(second.pid)

    taken = out / "random" / "seed-1"
    taken.mkdir(parents=True)
    (taken / "notes.txt").write_text("mine")
    code, printed, errors = sweep(out)
    assert (code, errors) == (1, "")
    assert "random/seed-1" in printed
    assert "is not empty and holds no run" in printed
    assert "5 of 6 runs are finished: the same command tries again." in printed
    (taken / "notes.txt").unlink()
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/*/state.json")}
    code, printed, errors = sweep(out)
    assert (code, errors) == (0, "")
    assert "5 finished already" in printed
    assert "random: once for all values of query_model" in printed.splitlines()[1]
    assert "about" not in printed.splitlines()[2]
    assert {path: path.stat().st_mtime_ns for path in before} == before

    names = [str(path.parent.relative_to(out)) for path in sorted(out.glob("*/*/config.yaml"))]
    expected = combinations("demo", WORDS)
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

    code, printed, errors = sweep(out, "evidence.lambda=0.5")
    assert code == 2
    assert "holds a run with other settings" in errors
