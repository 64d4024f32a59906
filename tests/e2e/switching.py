"""Runs that are killed at random moments and continued on another transport.

`python -m tests.e2e.switching FOLDER TASK KILLS` prints a JSON report of one such run.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import yaml

from feal.experiment import start
from feal.settings import Settings
from tests.paths import PROJECT
from tests.runs import differences, fingerprint, tiny, tiny_polyps

TRANSPORTS = ("flower-simulation", "in-process")
LONGEST = {"flower-simulation": 14.0, "in-process": 3.5}
COMMAND = [sys.executable, "-c", "from feal.cli import main; main()"]


def settings_of(task: str) -> Settings:
    """Return settings of three sites, two rounds of three communication rounds."""
    make, sites = (tiny, {"train": 40, "test": 16, "classes": 5})
    if task == "segmentation":
        make, sites = (tiny_polyps, {"name": "synthetic-polyps", "train": 12, "test": 4, "size": 32})
    return make(rounds=2, communication_rounds=3, dataset={"sites": 3, **sites})


def switched(folder: Path, task: str, kills: int) -> dict[str, object]:
    """Kill a run repeatedly, continue it on the other transport, and compare it with an undisturbed one."""
    settings = settings_of(task)
    whole = start(settings, out=folder / "whole").folder
    preset = folder / "preset.yaml"
    preset.write_text(yaml.safe_dump(settings.dump()))
    draw, run = random.Random(task), folder / "run"
    codes = [
        _ended(
            _command(preset, run, TRANSPORTS[number % 2]),
            after=draw.uniform(0.5, 1) * LONGEST[TRANSPORTS[number % 2]],
        )
        for number in range(kills)
    ]
    last = _ended(_command(preset, run, TRANSPORTS[kills % 2]), after=None)
    wrong = differences(fingerprint(whole), fingerprint(run)) if last == 0 else ["not finished"]
    return {"ended": [*codes, last], "wrong": [name for name in wrong if name != "config.yaml"]}


def _command(preset: Path, run: Path, transport: str) -> list[str]:
    if (run / "config.yaml").exists():
        return [*COMMAND, "resume", str(run), f"transport={transport}"]
    return [*COMMAND, "run", str(preset), f"transport={transport}", "--out", str(run)]


def _ended(command: list[str], *, after: float | None) -> int:
    """Return the exit code of a command that is killed after some seconds, negative for a signal."""
    process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        _, errors = process.communicate(timeout=after)
        if process.returncode:
            sys.stderr.write(errors.decode())
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    return process.returncode


def main() -> None:
    began = time.monotonic()
    report = switched(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    print(json.dumps({**report, "seconds": round(time.monotonic() - began)}))


if __name__ == "__main__":
    main()
