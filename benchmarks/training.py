"""Images per second of a site's training loop against a bare PyTorch loop over the same tensors.

The bare loop has every image in memory as float32 already; the site reads stored bytes by row from its
memory-mapped array, as in a run. Then what training transforms cost beside a training step of the same batch. One
thread, CPU time, median of interleaved repeats; nothing is asserted.

    python benchmarks/training.py [--quick]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from feal.data import PreparedSite, open_truth
from feal.data.samples import Rows
from feal.data.transforms import augmented
from feal.evidential import EvidentialCrossEntropy, EvidentialDice
from feal.federation.objective import Objective
from feal.federation.training import batches, train
from feal.models import on_device
from feal.settings import Training, Transforms
from measuring import medians, table
from noise import Case

CASES = [
    Case("tiny-cnn", "classification", 32, 256, 16),
    Case("efficientnet-b0", "classification", 64, 96, 32),
    Case("unet", "segmentation", 96, 48, 8),
]


TRANSFORMED = [
    (
        Case("efficientnet-b0", "classification", 224, 8, 8),
        Transforms(rotation=10, brightness=0.15, contrast=0.1, flips=True, normalise="imagenet"),
    ),
    (
        Case("unet", "segmentation", 384, 4, 4),
        Transforms(crop=320, crop_rule="foreground", normalise="maximum"),
    ),
]


def objective_of(case: Case) -> Objective:
    """The evidential loss of the task."""
    return EvidentialCrossEntropy(1e-2, 10) if case.task == "classification" else EvidentialDice(1e-4, 10)


def bare_loop(case: Case, images: torch.Tensor, targets: torch.Tensor) -> None:
    """An epoch as one would write it without this project."""
    network, objective = case.network().train(), objective_of(case)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    for batch in batches(case.samples, case.batch_size, torch.Generator().manual_seed(0)):
        optimizer.zero_grad(set_to_none=True)
        objective(network(images[batch]), targets[batch], 1).backward()
        optimizer.step()


def site_loop(case: Case, site: PreparedSite, targets: torch.Tensor, *, rows: Rows | None = None) -> None:
    """An epoch of the site's own loop, its checks and copies of weights and moments included."""
    rows = site.rows(site.ids("train")) if rows is None else rows
    train(
        case.network(),
        read=lambda batch: (on_device(site.read(rows[batch.numpy()]), torch.device("cpu")), targets[batch]),
        samples=len(targets),
        objective=objective_of(case),
        training=Training(lr=1e-3, batch_size=case.batch_size),
        lr=1e-3,
        moments=None,
        step=1,
        generator=torch.Generator().manual_seed(0),
        device=torch.device("cpu"),
    )


def compare(case: Case, repeats: int) -> dict[str, float]:
    """CPU seconds of an epoch of each loop; the bare one also in the site's memory format."""
    with tempfile.TemporaryDirectory() as folder:
        site = case.site(Path(folder) / "noise")
        rows = site.rows(site.ids("train"))
        images, targets = site.read(rows), open_truth(site).read(rows).long()
        last = images.to(memory_format=torch.channels_last)
        forms = {
            "site": lambda: site_loop(case, site, targets),
            "bare": lambda: bare_loop(case, images, targets),
            "bare, channels last": lambda: bare_loop(case, last, targets),
        }
        medians(forms, 1)
        return medians(forms, repeats)


def lines(repeats: int) -> Iterator[list[str]]:
    """A row for each network."""
    yield ["images a second", "size", "site", "bare", "ratio", "bare, channels last", "ratio"]
    for case in CASES:
        seconds = compare(case, repeats)
        speed = {name: case.samples / value for name, value in seconds.items()}
        cells = [f"{speed['site']:.1f}"]
        for name in ("bare", "bare, channels last"):
            cells += [f"{speed[name]:.1f}", f"{speed['site'] / speed[name]:.3f}"]
        yield [case.model, str(case.size), *cells]


def transforming(case: Case, transforms: Transforms, repeats: int) -> dict[str, float]:
    """CPU seconds of a batch's transforms, and of the forward and backward pass of what they give."""
    network, objective = case.network().train(), objective_of(case)
    draw = torch.Generator().manual_seed(0)
    images = torch.rand(case.samples, 3, case.size, case.size, generator=draw)
    images = images.to(memory_format=torch.channels_last)
    shape = (case.samples,) if case.task == "classification" else (case.samples, case.size, case.size)
    targets = torch.randint(0, case.classes, shape, generator=draw)
    seen, truth = augmented(images, targets, transforms, draw)
    seen = seen.contiguous(memory_format=torch.channels_last)
    forms = {
        "transforms": lambda: augmented(images, targets, transforms, draw),
        "step": lambda: objective(network(seen), truth, 1).backward(),
    }
    medians(forms, 1)
    return medians(forms, repeats)


def transform_lines(repeats: int) -> Iterator[list[str]]:
    """A row for the transforms of each task."""
    yield ["ms a batch", "size", "batch", "transforms", "training step", "share"]
    for case, transforms in TRANSFORMED:
        seconds = transforming(case, transforms, repeats)
        share = seconds["transforms"] / (seconds["transforms"] + seconds["step"])
        times = [f"{1e3 * seconds[name]:.1f}" for name in ("transforms", "step")]
        yield [case.model, str(case.size), str(case.batch_size), *times, f"{100 * share:.1f} %"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="three repeats")
    repeats = 3 if parser.parse_args().quick else 9
    torch.set_num_threads(1)
    table(transform_lines(repeats))
    table(lines(repeats))


if __name__ == "__main__":
    main()
