"""A site's training: its loop against a bare PyTorch loop, the price of transforms, and training only a part.

The bare loop has every image in memory as float32 already; the site reads stored bytes by row from its
memory-mapped array, as in a run. Transforms are compared with a training step of the same batch. Where only the
tail or the head of a network is trained, it reads what the trunk made of the images from a file, as in a run; how
long the trunk below the head takes for one view of them, once for all runs, stands beside it: by torch, by
onnxruntime, and the seconds to write it as a graph for the latter, once a site. One thread, CPU time, median of
interleaved repeats; nothing is asserted.

    python benchmarks/training.py [--quick] [--only loop|transforms|parts]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
import torch

from cases import Case
from feal.data import PreparedSite, open_labels
from feal.data.arrays import StoredArray, write_array
from feal.data.augment import augment
from feal.data.samples import Rows
from feal.evidential import EvidentialCrossEntropy, EvidentialDice
from feal.federation.site.feature_cache import CachedFeatures
from feal.federation.site.training import Images, Inputs, LabelledSamples, Trainer, draw_batches
from feal.losses import Objective, PlainCrossEntropy
from feal.models import Network, OnnxGraph, Trunk, write_graph
from feal.processes import retain_memory
from feal.settings import Trainable, Training, Transforms
from feal.tensors import resolve_batch_size
from timing import median_seconds, print_table

CPU = torch.device("cpu")
CASES = [
    Case("tiny-cnn", "classification", 32, 256, 16),
    Case("efficientnet-b0", "classification", 64, 96, 32),
    Case("efficientnet-b0", "classification", 224, 16, 8),
    Case("unet", "segmentation", 96, 48, 8),
    Case("unet", "segmentation", 384, 6, 3),
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
PART_CASES = [
    Case("tiny-cnn", "classification", 32, 256, 32),
    Case("efficientnet-lite0", "classification", 128, 64, 32, classes=8),
    Case("efficientnet-b0", "classification", 64, 64, 32, classes=8),
    Case("densenet-121", "classification", 96, 32, 32),
]


class GivenSamples(LabelledSamples):
    """Samples whose classes or masks are given, not read from a site's store."""

    def __init__(self, inputs: Inputs, rows: Rows, targets: torch.Tensor) -> None:
        self._inputs, self._rows, self._targets = inputs, rows, targets

    def __len__(self) -> int:
        return len(self._targets)

    def targets(self, batch: torch.Tensor) -> torch.Tensor:
        """Return the given classes or masks."""
        return self._targets[batch]


def train_epoch(case: Case, network: Network, samples: LabelledSamples, objective: Objective) -> None:
    """Train an epoch by the site's trainer, its checks and copies of weights and moments included."""
    training = Training(lr=1e-3, batch_size=case.batch_size)
    trainer = Trainer(samples, objective=objective, training=training, steps=10, device=CPU)
    order, augment = torch.Generator().manual_seed(0), torch.Generator().manual_seed(1)
    trainer.train(network, step=1, epochs=1, order=order, augment=augment)


def objective_of(case: Case) -> Objective:
    """Return the evidential loss of the task."""
    return EvidentialCrossEntropy(1e-2, 10) if case.task == "classification" else EvidentialDice(1e-4, 10)


def bare_loop(case: Case, images: torch.Tensor, targets: torch.Tensor) -> None:
    """Train an epoch as one would write it without this project."""
    network, objective = case.network().train(), objective_of(case)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    for batch in draw_batches(case.samples, case.batch_size, torch.Generator().manual_seed(0)):
        optimizer.zero_grad(set_to_none=True)
        objective(network(images[batch]), targets[batch], 1).backward()
        optimizer.step()


def site_loop(case: Case, site: PreparedSite, targets: torch.Tensor, *, rows: Rows | None = None) -> None:
    """Train an epoch by the site's own loop, its checks and copies of weights and moments included."""
    rows = site.rows(site.ids("train")) if rows is None else rows
    samples = GivenSamples(Images(site, Transforms(), device=CPU), rows, targets)
    train_epoch(case, case.network(), samples, objective_of(case))


def measure_loops(case: Case, repeats: int) -> dict[str, float]:
    """Return CPU seconds of an epoch of each loop; the bare one also in the site's memory format."""
    with tempfile.TemporaryDirectory() as folder:
        site = case.site(Path(folder) / "noise")
        rows = site.rows(site.ids("train"))
        images, targets = site.read(rows), open_labels(site).read(rows).long()
        last = images.to(memory_format=torch.channels_last)
        forms = {
            "site": lambda: site_loop(case, site, targets),
            "bare": lambda: bare_loop(case, images, targets),
            "bare, channels last": lambda: bare_loop(case, last, targets),
        }
        median_seconds(forms, 1)
        return median_seconds(forms, repeats)


def loop_rows(repeats: int) -> Iterator[list[str]]:
    """Yield a row for each network."""
    yield ["images a second", "size", "site", "bare", "ratio", "bare, channels last", "ratio"]
    for case in CASES:
        seconds = measure_loops(case, repeats)
        speed = {name: case.samples / value for name, value in seconds.items()}
        cells = [f"{speed['site']:.1f}"]
        for name in ("bare", "bare, channels last"):
            cells += [f"{speed[name]:.1f}", f"{speed['site'] / speed[name]:.3f}"]
        yield [case.model, str(case.size), *cells]


def measure_transforms(case: Case, transforms: Transforms, repeats: int) -> dict[str, float]:
    """Return CPU seconds of a batch's transforms, and of the forward and backward pass of their result."""
    network, objective = case.network().train(), objective_of(case)
    draw = torch.Generator().manual_seed(0)
    images = torch.rand(case.samples, 3, case.size, case.size, generator=draw)
    images = images.to(memory_format=torch.channels_last)
    shape = (case.samples,) if case.task == "classification" else (case.samples, case.size, case.size)
    targets = torch.randint(0, case.classes, shape, generator=draw)
    seen, truth = augment(images, targets, transforms, draw)
    seen = seen.contiguous(memory_format=torch.channels_last)
    forms = {
        "transforms": lambda: augment(images, targets, transforms, draw),
        "step": lambda: objective(network(seen), truth, 1).backward(),
    }
    median_seconds(forms, 1)
    return median_seconds(forms, repeats)


def transform_rows(repeats: int) -> Iterator[list[str]]:
    """Yield a row for the transforms of each task."""
    yield ["ms a batch", "size", "batch", "transforms", "training step", "share"]
    for case, transforms in TRANSFORMED:
        seconds = measure_transforms(case, transforms, repeats)
        share = seconds["transforms"] / (seconds["transforms"] + seconds["step"])
        times = [f"{1e3 * seconds[name]:.1f}" for name in ("transforms", "step")]
        yield [case.model, str(case.size), str(case.batch_size), *times, f"{100 * share:.1f} %"]


def part_epoch(case: Case, network: Network, inputs: Inputs, targets: torch.Tensor) -> None:
    """Train an epoch, with the loop's own checks and copies of weights and moments."""
    train_epoch(case, network, GivenSamples(inputs, np.arange(len(targets)), targets), PlainCrossEntropy(None))


def measure_parts(case: Case, repeats: int) -> dict[str, float]:
    """Return CPU seconds of an epoch by part."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        site = case.site(folder / "noise")
        rows = np.arange(case.samples)
        targets = open_labels(site).read(rows).long()
        inputs: dict[Trainable, Inputs] = {"all": Images(site, Transforms(), device=CPU)}
        whole = case.network().eval().requires_grad_(False)
        for part in get_args(Trainable)[1:]:
            outputs = whole.run_trunk(inputs["all"].read(rows), part=part).numpy()
            write_array(folder / f"{part}.npy", outputs)
            stored = StoredArray(folder / f"{part}.npy", shape=outputs.shape, kinds=("float32",))
            inputs[part] = CachedFeatures(stored, views=1, device=CPU)
        forms: dict[str, Callable[[], None]] = {
            part: partial(part_epoch, case, case.network().keep_part(part), given, targets)
            for part, given in inputs.items()
        }
        median_seconds(forms, 1)
        return median_seconds(forms, repeats)


def measure_trunk(case: Case, repeats: int) -> dict[str, float]:
    """Return CPU seconds of the trunk over all images by each library, and those of writing it as a graph."""
    network = case.network()
    trunk = Trunk(network, network.trainable_parts[-1]).eval().requires_grad_(False)
    images = torch.rand(case.samples, 3, case.size, case.size).to(memory_format=torch.channels_last)
    batches = images.split(resolve_batch_size("auto", height=case.size, width=case.size))
    graph = OnnxGraph(write_graph(trunk, images[:3]), threads=1)
    forms = {
        "torch": lambda: [trunk(batch) for batch in batches],
        "onnxruntime": lambda: [graph(batch) for batch in batches],
        "graph": lambda: OnnxGraph(write_graph(trunk, images[:3]), threads=1),
    }
    median_seconds(forms, 1)
    return median_seconds(forms, repeats)


def part_rows(repeats: int) -> Iterator[list[str]]:
    """Yield a row for each network."""
    retain_memory()  # as a site does; it cannot be undone, so these rows come last
    trunk = ["trunk, torch", "onnxruntime", "ratio", "graph, s once"]
    yield ["ms an image", "size", "all", "tail", "ratio", "head", "ratio", *trunk]
    for case in PART_CASES:
        seconds = measure_parts(case, repeats) | measure_trunk(case, repeats)
        times = {name: 1000 * value / case.samples for name, value in seconds.items()}
        cells = [f"{times['all']:.2f}"]
        for part in ("tail", "head"):
            cells += [f"{times[part]:.3f}", f"{times['all'] / times[part]:.0f}"]
        cells += [f"{times[name]:.2f}" for name in ("torch", "onnxruntime")]
        ratio = times["torch"] / times["onnxruntime"]
        yield [case.model, str(case.size), *cells, f"{ratio:.2f}", f"{seconds['graph']:.2f}"]


PARTS = {"loop": loop_rows, "transforms": transform_rows, "parts": part_rows}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="three repeats")
    parser.add_argument("--only", choices=PARTS, help="this part alone")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for part in [options.only] if options.only else PARTS:
        print_table(PARTS[part](3 if options.quick else 9))


if __name__ == "__main__":
    main()
