"""Measure what a transport adds to a communication round, and what the coordinator needs for many sites.

EfficientNet-B0 (16 MB of weights) on 3, 10 and 50 sites with a handful of labels each. For a communication round:
its wall time, the time that training takes in it (a site's, times the sites that a worker serves), the difference
as the overhead, and that as a share of a round whose training takes 10 s. Medians, without the first round.
Memory is by how much the coordinator's process grew after all sites had joined; in one process it holds the site
that trains, too. Nothing is asserted.

The deployment (`flower`) is a SuperLink and a SuperNode for every site as processes on this machine, with TLS and
keys, for as many sites as its memory holds. What passes between sites and coordinator in a communication round is
counted by a proxy and given as a multiple of the sites' number times the model's size: 1 each way is the weights.

    python benchmarks/transports.py [--sites 3 10 50] [--transports flower] [--steps 8]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from feal.config import load
from feal.data import PreparedWriter
from feal.experiment import start
from feal.federation.callbacks import NullCallback
from feal.federation.protocol import JoinReply
from feal.settings import Settings

SITES = (3, 10, 50)
TRANSPORTS = ("in-process", "flower-simulation", "flower")
WORKERS = {"in-process": 1, "flower-simulation": 2, "flower": 2}
MOST_DEPLOYED = 3
SAMPLES, SIDE = 12, 32
TRAINING = 10.0


class Clock(NullCallback):
    """Record when each communication round was committed."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.wire: list[tuple[int, int]] = []
        self.passed: Mapping[str, int] = {"up": 0, "down": 0}
        self.memory = 0

    def on_join(self, sites: Mapping[str, JoinReply], *, round: int, step: int) -> None:
        self.memory = _resident("VmRSS")

    def on_step(self, *, round: int, step: int, losses: Mapping[str, float | None]) -> None:
        self.times.append(time.perf_counter())
        self.wire.append((self.passed["up"], self.passed["down"]))


def write_sites(root: Path, sites: int) -> None:
    """Write sites with a few random images, half of them of each class."""
    with PreparedWriter(
        root,
        name="noise",
        task="classification",
        classes=("one", "two"),
        channels=3,
        height=SIDE,
        width=SIDE,
        dtype="uint8",
    ) as writer:
        for number in range(sites):
            draw = np.random.default_rng(number)
            writer.site(f"site-{number:03}").append(
                ids=[f"{number:03}-{index}" for index in range(SAMPLES)],
                images=draw.integers(0, 256, (SAMPLES, 3, SIDE, SIDE), dtype=np.uint8),
                labels=(np.arange(SAMPLES) % 2).astype(np.int16),
                splits=["test" if index >= SAMPLES - 2 else "train" for index in range(SAMPLES)],
            )


@contextmanager
def deployed(data: Path, folder: Path, clock: Clock) -> Iterator[str]:
    """Start a coordinator and all sites, count the traffic, and yield the coordinator's folder."""
    sys.path.append(str(Path(__file__).parents[1]))
    from tests.federation.transport.consortium import Consortium

    machines = Consortium(folder, data=data, recorded=False)
    clock.passed = machines.recorder.counts
    try:
        machines.start()
        yield str(machines.coordinator)
    finally:
        machines.close()


@contextmanager
def no_deployment() -> Iterator[None]:
    """Yield no coordinator."""
    yield None


def settings_for(data: Path, *, transport: str, steps: int, coordinator: str | None) -> Settings:
    """Return the settings of one round with `steps` communication rounds."""
    return load(
        "demo",
        {
            "dataset": str(data),
            "model": "efficientnet-b0",
            "transport": transport,
            "rounds": 1,
            "communication_rounds": steps,
            "budget": 4,
            "diagnostics": False,
            "transport.workers": WORKERS[transport] if transport == "flower-simulation" else None,
            "transport.coordinator": coordinator,
        },
    )


def measure(transport: str, sites: int, steps: int) -> dict[str, float]:
    """Run once in this process; return medians of a communication round in seconds, and memory in MB."""
    with tempfile.TemporaryDirectory() as folder:
        data, run, clock = Path(folder) / "data", Path(folder) / "run", Clock()
        write_sites(data, sites)
        with deployed(data, Path(folder), clock) if transport == "flower" else no_deployment() as coordinator:
            settings = settings_for(data, transport=transport, steps=steps, coordinator=coordinator)
            start(settings, out=run, callback=clock)
        grown = _resident("VmHWM") - clock.memory
        lines = (run / "metrics.jsonl").read_text().splitlines()
        model = sites * (run / "weights" / "round-001.safetensors").stat().st_size
    events: list[dict[str, Any]] = [event for event in map(json.loads, lines) if event["event"] == "step"]
    turns = math.ceil(sites / WORKERS[transport])
    trained = [turns * event["seconds"]["train"] / sites for event in events][1:]
    walls = list(np.diff(clock.times))
    up, down = (statistics.median(np.diff(way)) / model for way in zip(*clock.wire, strict=True))
    overheads = [wall - busy for wall, busy in zip(walls, trained, strict=True)]
    return {
        "wall": statistics.median(walls),
        "trained": statistics.median(trained),
        "overhead": statistics.median(overheads),
        "memory": grown / 1024,
        "up": float(up),
        "down": float(down),
    }


def _resident(what: str) -> int:
    """Return the resident memory of this process in KiB, now (VmRSS) or at its peak (VmHWM)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {what}")


def measure_in_child(transport: str, sites: int, steps: int) -> dict[str, float]:
    """Measure in a new process, whose memory nothing else has used."""
    command = [sys.executable, __file__, "--one", transport, str(sites), "--steps", str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    metrics: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return metrics


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, nargs="+", default=SITES)
    parser.add_argument("--transports", nargs="+", choices=TRANSPORTS, default=TRANSPORTS)
    parser.add_argument("--steps", type=int, default=8, help="communication rounds of each run")
    parser.add_argument("--one", nargs=2, metavar=("TRANSPORT", "SITES"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], int(options.one[1]), options.steps)))
        return
    table = Table("transport", box=None, header_style="bold")
    for heading in (
        "sites",
        "round s",
        "training s",
        "overhead s",
        "per site s",
        "of 10 s",
        "memory MB",
        "to sites",
        "from sites",
    ):
        table.add_column(heading, justify="right")
    for sites in options.sites:
        for transport in options.transports:
            if transport == "flower" and sites > MOST_DEPLOYED:
                continue
            metrics = measure_in_child(transport, sites, options.steps)
            table.add_row(
                transport,
                str(sites),
                f"{metrics['wall']:.2f}",
                f"{metrics['trained']:.2f}",
                f"{metrics['overhead']:.2f}",
                f"{metrics['overhead'] / sites:.3f}",
                f"{metrics['overhead'] / TRAINING:.1%}",
                f"{metrics['memory']:.0f}",
                *(f"{metrics[way]:.4f}" if transport == "flower" else "-" for way in ("down", "up")),
            )
    Console().print(table)


if __name__ == "__main__":
    main()
