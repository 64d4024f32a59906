"""Images per second of a site's training loop against a bare PyTorch loop over the same tensors.

The bare loop has every image in memory as float32 already; the site reads stored bytes by row from its
memory-mapped array, as in a run. One thread, CPU time, median of interleaved repeats; nothing is asserted.

    python benchmarks/training.py [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from feal.data import PreparedSite, PreparedWriter, open_prepared
from feal.evidential import EvidentialCrossEntropy, EvidentialDice
from feal.federation.objective import Objective
from feal.federation.training import batches, train
from feal.models import Network, build_model
from feal.settings import Task, Training


@dataclass(frozen=True)
class Case:
    """A network on images of a size."""

    model: str
    task: Task
    size: int
    samples: int
    batch_size: int


CASES = [
    Case("tiny-cnn", "classification", 32, 256, 16),
    Case("efficientnet-b0", "classification", 64, 96, 32),
    Case("unet", "segmentation", 96, 48, 8),
]


def prepare(case: Case, root: Path) -> tuple[PreparedSite, torch.Tensor]:
    """Random images as a prepared site, and their targets."""
    draw = np.random.default_rng(0)
    shape = (case.samples,) if case.task == "classification" else (case.samples, case.size, case.size)
    targets = draw.integers(0, 2, shape)
    with PreparedWriter(
        root,
        name="noise",
        task=case.task,
        classes=("one", "other"),
        channels=3,
        height=case.size,
        width=case.size,
    ) as writer:
        writer.site("site").append(
            ids=[f"{index:06}" for index in range(case.samples)],
            images=draw.integers(0, 256, (case.samples, 3, case.size, case.size)).astype(np.uint8),
            truth=targets.astype(np.int16 if case.task == "classification" else np.uint8),
            splits=["train"] * case.samples,
        )
    return open_prepared(root).site("site"), torch.from_numpy(targets)


def network_of(case: Case) -> Network:
    """The same initial weights every time."""
    torch.manual_seed(0)
    return build_model(
        case.model, task=case.task, classes=2, channels=3, height=case.size, width=case.size
    ).train()


def objective_of(case: Case) -> Objective:
    """The evidential loss of the task."""
    return EvidentialCrossEntropy(1e-2, 10) if case.task == "classification" else EvidentialDice(1e-4, 10)


def bare_loop(case: Case, images: torch.Tensor, targets: torch.Tensor) -> None:
    """An epoch as one would write it without this project."""
    network, objective = network_of(case), objective_of(case)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    for batch in batches(case.samples, case.batch_size, torch.Generator().manual_seed(0)):
        optimizer.zero_grad(set_to_none=True)
        objective(network(images[batch]), targets[batch], 1).backward()
        optimizer.step()


def site_loop(case: Case, site: PreparedSite, targets: torch.Tensor) -> None:
    """An epoch of the site's own loop, its checks and copies of weights and moments included."""
    rows = site.rows(site.ids("train"))
    train(
        network_of(case),
        read=lambda batch: site.read(rows[batch.numpy()]),
        targets=targets,
        objective=objective_of(case),
        training=Training(lr=1e-3, batch_size=case.batch_size),
        lr=1e-3,
        moments=None,
        step=1,
        generator=torch.Generator().manual_seed(0),
        device=torch.device("cpu"),
    )


def cpu_seconds(work: Callable[[], None]) -> float:
    """CPU time of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def compare(case: Case, repeats: int) -> tuple[float, float]:
    """Images per second of the site's loop and of the bare one."""
    with tempfile.TemporaryDirectory() as folder:
        site, targets = prepare(case, Path(folder) / "noise")
        images = site.read(site.rows(site.ids("train")))
        ours: list[float] = []
        bare: list[float] = []
        for _ in range(repeats + 1):
            ours.append(cpu_seconds(lambda: site_loop(case, site, targets)))
            bare.append(cpu_seconds(lambda: bare_loop(case, images, targets)))
    return case.samples / statistics.median(ours[1:]), case.samples / statistics.median(bare[1:])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three repeats")
    repeats = 3 if parser.parse_args().quick else 9
    torch.set_num_threads(1)
    print(f"{'network':<16} {'size':>4} {'site images/s':>14} {'bare images/s':>14} {'ratio':>6}")
    for case in CASES:
        ours, bare = compare(case, repeats)
        print(f"{case.model:<16} {case.size:>4} {ours:>14.1f} {bare:>14.1f} {ours / bare:>6.3f}")


if __name__ == "__main__":
    main()
