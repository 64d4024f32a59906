"""Measure what a message costs besides computing: files, syncs, commits, and how it grows with the sites.

- `storing`: a site keeps EfficientNet-B0's weights (16 MB) and Adam's moments (32 MB) after a communication round
  and reads the moments in the next. CPU time as a multiple of the bound, which hashes as many bytes and writes
  them over a file that exists; the plain form writes two new files, and reads the moments and hashes them again.
- `sites`: a run of a tiny network in one process with 4 to 200 sites. CPU time of a train message, with and
  without its epochs, as a multiple of that with the fewest sites, and the whole process's memory.
- `syncs`: `feal run demo rounds=2`: calls of fsync, commits of sites, and the share of the wall time they take.

Nothing is asserted.

    python benchmarks/messages.py [--only storing sites syncs] [--sites 4 16 64 200] [--repeats 15]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import load as decode

from feal.config import load
from feal.experiment import start
from feal.federation.callbacks import NullCallback
from feal.federation.site.training import Trainer
from feal.fileio import overwrite_bytes, write_tensors
from feal.models import build_model
from feal.rundir.layout import SiteDirectory
from feal.rundir.site_state import ModelFiles, SiteState
from feal.rundir.site_store import Store
from timing import (
    format_megabytes,
    format_seconds,
    median_seconds,
    print_table,
    read_memory,
    run_in_fresh_process,
)
from transports import write_sites

SITES = (4, 16, 64, 200)
STEPS = 8


def compare_storing(repeats: int) -> None:
    """Print the time to keep a model and its moments, and to read the moments."""
    network = build_model("efficientnet-b0", task="classification", classes=8, channels=3, height=224, width=224)
    weights = network.state_dict()
    count = sum(parameter.numel() for parameter in network.parameters())
    moments = {name: torch.rand(count) for name in ("exp_avg", "exp_avg_sq")}
    size = sum(tensor.nbytes for tensor in (*weights.values(), *moments.values()))
    content = bytes(size)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = ModelFiles(SiteDirectory(folder / "site"))
        state = SiteState(local=models.write("local", weights, state=SiteState(), moments=moments))

        def plain() -> None:
            write_tensors(folder / "weights.safetensors", weights)
            write_tensors(folder / "moments.safetensors", moments)
            data = (folder / "moments.safetensors").read_bytes()
            hashlib.sha256(data).digest()
            [tensor.clone() for tensor in decode(data).values()]

        def stored() -> None:
            file = models.write("local", weights, state=state, moments=moments)
            [tensor.clone() for tensor in models.read_moments(file).values()]

        def bound() -> None:
            hashlib.sha256(content).digest()
            overwrite_bytes(folder / "bound", content)

        forms: dict[str, Callable[[], None]] = {"plain": plain, "one file, in place": stored, "bound": bound}
        times = median_seconds(forms, repeats)
    rows = [[form, format_seconds(taken), f"{taken / times['bound']:.2f}"] for form, taken in times.items()]
    print_table([[f"storing {format_megabytes(size)}", "CPU", "of bound"], *rows])


class _Clock(NullCallback):
    """Record the CPU time at the end of every communication round: of the process, and of its epochs."""

    def __init__(self) -> None:
        self.times: list[tuple[float, float]] = []
        self.epochs = 0.0

    def on_step(self, *, round: int, step: int, losses: Mapping[str, float | None]) -> None:
        self.times.append((time.process_time(), self.epochs))

    def timed(self, train: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            begun = time.process_time()
            result = train(*args, **options)
            self.epochs += time.process_time() - begun
            return result

        return wrapped


def run_sites(sites: int) -> tuple[float, float, int]:
    """Return the CPU seconds of a train message, those without its epochs, and the process's peak memory."""
    clock = _Clock()
    with tempfile.TemporaryDirectory() as name:
        write_sites(Path(name) / "data", sites)
        settings = {"dataset": str(Path(name) / "data"), "model": "tiny-cnn", "budget": 4, "diagnostics": False}
        settings |= {"rounds": 1, "communication_rounds": STEPS}
        with patch.object(Trainer, "_train_epoch", clock.timed(Trainer._train_epoch)):
            start(load("demo", settings), out=Path(name) / "run", callback=clock)
    spent = [
        ((after - before) / sites, (after - before - epochs + earlier) / sites)
        for (before, earlier), (after, epochs) in zip(clock.times, clock.times[1:], strict=False)
    ]
    whole, besides = (statistics.median(values) for values in zip(*spent, strict=True))
    return whole, besides, read_memory("VmHWM")


def compare_sites(numbers: list[int], repeats: int) -> None:
    """Print the time of a message by the number of sites; the numbers take turns."""
    runs: dict[int, list[tuple[float, float, int]]] = {sites: [] for sites in numbers}
    for _ in range(repeats):
        for sites in numbers:
            runs[sites].append(run_in_fresh_process(run_sites, sites))
    medians = {
        sites: [statistics.median(column) for column in zip(*runs[sites], strict=True)] for sites in numbers
    }
    first = medians[numbers[0]]
    rows = [
        [
            str(sites),
            format_seconds(whole),
            f"{whole / first[0]:.2f}",
            format_seconds(besides),
            f"{besides / first[1]:.2f}",
            format_megabytes(peak),
        ]
        for sites, (whole, besides, peak) in medians.items()
    ]
    print_table([["sites", "CPU a message", "ratio", "besides epochs", "ratio", "memory"], *rows])


def run_demo() -> tuple[int, int, float, float]:
    """Run the demo; return its calls of fsync, its commits, their wall time, and that of the run."""
    calls, seconds = {"sync": 0, "commit": 0}, 0.0

    def counted(kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any) -> Any:
            nonlocal seconds
            calls[kind] += 1
            begun = time.perf_counter()
            result = call(*args)
            seconds += time.perf_counter() - begun
            return result

        return wrapped

    with (
        tempfile.TemporaryDirectory() as name,
        patch.object(os, "fsync", counted("sync", os.fsync)),
        patch.object(Store, "commit", counted("commit", Store.commit)),
    ):
        begun = time.perf_counter()
        start(load("demo", {"rounds": 2}), out=Path(name) / "run")
        return calls["sync"], calls["commit"], seconds, time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("storing", "sites", "syncs")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    parser.add_argument("--sites", type=int, nargs="+", default=list(SITES))
    parser.add_argument(
        "--repeats", type=int, default=15, help="of storing; the runs are repeated a fifth as often"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    if "storing" in options.only:
        compare_storing(options.repeats)
    if "sites" in options.only:
        compare_sites(options.sites, max(1, options.repeats // 5))
    if "syncs" in options.only:
        syncs, commits, seconds, wall = run_in_fresh_process(run_demo)
        print_table(
            [["demo", "fsync", "commits", "of wall"], ["", str(syncs), str(commits), f"{seconds / wall:.1%}"]]
        )


if __name__ == "__main__":
    main()
