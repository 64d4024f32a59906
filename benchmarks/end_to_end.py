"""A whole run, by phase, against a bare torch loop that makes the same passes over images in memory.

Both are fresh processes with one thread and start with random weights and random images. The run is `feal.run`
with default settings (selection by feal, diagnostics on) on prepared files; the bare loop has every image as
float32 in memory, trains with `torch.optim.Adam`, averages nothing, writes nothing and forgets every output. Its
evaluation and selection take the run's batches and keep memory as the run does (`--plain-memory`: as glibc does
by default). CPU seconds, medians of interleaved repeats; phases exclude one another: what a site writes while it
selects is booked under write. Import is everything until the run starts and every module that is loaded later.

    python benchmarks/end_to_end.py [--repeats 3] [--only efficientnet-b0|unet] [--plain-memory] [--json FILE]
"""

from __future__ import annotations

import argparse
import builtins
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Literal

PHASES = ("train", "evaluate", "select", "diagnose", "write", "import", "rest")
COMPARED = ("train", "evaluate", "select")


@dataclass(frozen=True)
class Experiment:
    """Equal sites with random images, and how they learn."""

    model: str
    task: Literal["classification", "segmentation"]
    size: int
    sites: int
    train: int
    test: int
    budget: int
    batch_size: int
    rounds: int = 2
    classes: int = 2


EXPERIMENTS = (
    Experiment("efficientnet-b0", "classification", 224, 4, 60, 20, 10, 8, classes=8),
    Experiment("unet", "segmentation", 384, 2, 16, 6, 4, 4),
)


class Phases:
    """CPU seconds by phase; a phase inside another interrupts it."""

    def __init__(self) -> None:
        self._since = time.process_time()
        self.seconds: dict[str, float] = defaultdict(float, {"import": self._since})
        self._stack = ["rest"]

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Book the CPU time of a block under a phase."""
        self._book()
        self._stack.append(name)
        try:
            yield
        finally:
            self._book()
            self._stack.pop()

    def wrap(self, owner: Any, attribute: str, name: str) -> None:
        """Have every call of a function or method booked under a phase."""
        function = getattr(owner, attribute)

        @wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            with self.phase(name):
                return function(*arguments, **options)

        setattr(owner, attribute, timed)

    def end(self) -> dict[str, float]:
        """Return the CPU seconds of every phase."""
        self._book()
        return dict(self.seconds)

    def _book(self) -> None:
        now = time.process_time()
        self.seconds[self._stack[-1]] += now - self._since
        self._since = now


def prepare(case: Experiment, folder: Path) -> None:
    """Write the sites' random images as a prepared set."""
    import numpy as np

    from feal.data import PreparedWriter

    draw = np.random.default_rng(0)
    count = case.train + case.test
    is_classes = case.task == "classification"
    shape = (count,) if is_classes else (count, case.size, case.size)
    with PreparedWriter(
        folder,
        name="noise",
        task=case.task,
        classes=[f"class {index}" for index in range(case.classes)],
        channels=3,
        height=case.size,
        width=case.size,
    ) as writer:
        for site in range(case.sites):
            writer.site(f"site-{site}").append(
                ids=[f"{site}-{index:04}" for index in range(count)],
                images=draw.integers(0, 256, (count, 3, case.size, case.size)).astype(np.uint8),
                labels=draw.integers(0, case.classes, shape).astype(np.int16 if is_classes else np.uint8),
                splits=["train"] * case.train + ["test"] * case.test,
            )


def run_feal(case: Experiment, data: Path, out: Path) -> dict[str, float]:
    """Return the CPU seconds of a run by phase."""
    phases = Phases()
    find = builtins.__import__

    def load(name: str, *arguments: Any, **options: Any) -> Any:
        if name in sys.modules:
            return find(name, *arguments, **options)
        with phases.phase("import"):
            return find(name, *arguments, **options)

    builtins.__import__ = load
    import feal
    from feal import experiment, fileio
    from feal.federation.coordinator import exchange
    from feal.federation.site import handlers, training
    from feal.rundir import site_store

    assert experiment
    for owner, attribute, name in (
        (training.Trainer, "train", "train"),
        (handlers, "evaluate", "evaluate"),
        (handlers, "select_from_pool", "select"),
        (handlers, "compute_maps", "diagnose"),
        (fileio, "write_bytes", "write"),
        (fileio, "overwrite_bytes", "write"),
        (os, "fsync", "write"),
        (site_store.Store, "commit", "write"),
        (exchange.StoredWeights, "__init__", "write"),
    ):
        phases.wrap(owner, attribute, name)
    preset = out.with_suffix(".yaml")
    preset.write_text(
        f"{{dataset: {data}, model: {case.model}, rounds: {case.rounds}, communication_rounds: 1, "
        f"budget: {case.budget}, training: {{batch_size: {case.batch_size}}}, device: cpu}}"
    )
    feal.run(str(preset), out=out)
    return phases.end()


def run_bare(case: Experiment, data: Path, *, plain_memory: bool) -> dict[str, float]:
    """Return the CPU seconds of the passes alone."""
    import torch

    from feal.data import open_labels, open_prepared
    from feal.evidential import EvidentialCrossEntropy, EvidentialDice
    from feal.models import build_model
    from feal.processes import retain_memory
    from feal.tensors import resolve_batch_size

    torch.set_num_threads(1)
    if not plain_memory:
        retain_memory()
    network = build_model(
        case.model,
        task=case.task,
        classes=case.classes,
        channels=3,
        height=case.size,
        width=case.size,
    )
    objective: Any = (
        EvidentialCrossEntropy(1e-2, 10) if case.task == "classification" else EvidentialDice(1e-4, 10)
    )
    together = resolve_batch_size("auto", height=case.size, width=case.size)
    prepared = open_prepared(data)
    sites = [prepared.site(f"site-{number}") for number in range(case.sites)]
    images = [site.read(site.rows(site.ids("train"))).to(memory_format=torch.channels_last) for site in sites]
    tested = [site.read(site.rows(site.ids("test"))).to(memory_format=torch.channels_last) for site in sites]
    targets = [open_labels(site).read(site.rows(site.ids("train"))).long() for site in sites]
    torch.optim.Adam(network.parameters())  # imports torch's compiler
    phases = Phases()  # what precedes, the reading of images too, counts as import

    def passes(rows: torch.Tensor) -> None:
        with torch.no_grad():
            for batch in rows.split(together):
                network(batch)

    for round_ in range(1, case.rounds + 1):
        labelled = case.budget * round_
        network.train()
        with phases.phase("train"):
            for rows, labels in zip(images, targets, strict=True):
                optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
                for batch in torch.randperm(labelled).split(case.batch_size):
                    optimizer.zero_grad(set_to_none=True)
                    objective(network(rows[batch]), labels[batch], 0).backward()
                    optimizer.step()
        network.eval()
        with phases.phase("evaluate"):
            for rows in tested:
                passes(rows)
        if round_ < case.rounds:
            with phases.phase("select"):
                for rows in images:
                    for _ in ("global", "local"):
                        passes(rows[labelled:])
    return phases.end()


def measure(side: str, case: Experiment, data: Path, out: Path, *, plain_memory: bool) -> dict[str, float]:
    """Return the CPU seconds by phase, and the peak of memory in MB, of one side in a fresh process."""
    task = {"side": side, "case": asdict(case), "data": str(data), "out": str(out), "plain": plain_memory}
    process = subprocess.run(
        [sys.executable, __file__, "--child", json.dumps(task)], stdout=subprocess.PIPE, text=True, check=True
    )
    result: dict[str, float] = json.loads(process.stdout.splitlines()[-1])
    return result


def answer(task: dict[str, Any]) -> None:
    """Be the fresh process: make one side and print its figures."""
    case, data, out = Experiment(**task["case"]), Path(task["data"]), Path(task["out"])
    seconds = (
        run_feal(case, data, out)
        if task["side"] == "feal"
        else run_bare(case, data, plain_memory=bool(task["plain"]))
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(json.dumps({**seconds, "whole": time.process_time(), "memory": peak}))


def compare(case: Experiment, *, repeats: int, plain_memory: bool) -> dict[str, dict[str, float]]:
    """Return medians over interleaved repeats, by side and phase."""
    taken: dict[str, list[dict[str, float]]] = {"feal": [], "bare": []}
    with tempfile.TemporaryDirectory() as folder:
        prepare(case, Path(folder) / "noise")
        for repeat in range(repeats):
            for side, results in taken.items():
                out = Path(folder) / f"run-{repeat}"
                results.append(measure(side, case, Path(folder) / "noise", out, plain_memory=plain_memory))
    keys = (*PHASES, "whole", "memory")
    return {
        side: {key: statistics.median(result.get(key, 0.0) for result in results) for key in keys}
        for side, results in taken.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=[case.model for case in EXPERIMENTS])
    parser.add_argument("--plain-memory", action="store_true", help="the bare loop with glibc's defaults")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        answer(json.loads(options.child))
        return
    from timing import print_table

    every: dict[str, object] = {}
    for case in EXPERIMENTS:
        if options.only not in (None, case.model):
            continue
        result = compare(case, repeats=options.repeats, plain_memory=options.plain_memory)
        every[case.model] = result
        print(
            f"{case.model}, {case.size} px: {case.sites} sites of {case.train} + {case.test} images, "
            f"{case.rounds} rounds, {case.budget} labels each, batches of {case.batch_size}"
        )
        print_table(_rows(result))
    if options.json:
        options.json.write_text(json.dumps(every, indent=2))


def _rows(result: dict[str, dict[str, float]]) -> Iterator[list[str]]:
    feal, bare = result["feal"], result["bare"]

    def ratio(key: str) -> str:
        return f"{feal[key] / bare[key]:.2f}" if bare[key] else ""

    yield ["CPU seconds", "run", "bare loop", "ratio", "share of the run"]
    for phase in PHASES:
        known = f"{bare[phase]:.2f}" if bare[phase] else ""
        compared = ratio(phase) if phase in COMPARED else ""
        yield [phase, f"{feal[phase]:.2f}", known, compared, f"{100 * feal[phase] / feal['whole']:.1f} %"]
    yield ["whole process", f"{feal['whole']:.2f}", f"{bare['whole']:.2f}", ratio("whole"), ""]
    yield ["memory, MB", f"{feal['memory']:.0f}", f"{bare['memory']:.0f}", ratio("memory"), ""]


if __name__ == "__main__":
    main()
