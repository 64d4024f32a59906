"""An epoch of a site's training loop with the whole network, its tail or its head trained.

The parts read what the trunk made of the images from a file, as in a run; how long the trunk takes for one view of
them, once for all runs, stands beside it. One thread, CPU time, median of interleaved repeats; nothing is
asserted.

    python benchmarks/trainable.py [--quick]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
import torch

from feal.data import open_truth
from feal.data.arrays import StoredArray, write_array
from feal.evidential import PlainCrossEntropy
from feal.federation.inputs import Images, Inputs, TrunkOutputs
from feal.federation.training import train
from feal.models import Divided, Network
from feal.settings import Trainable, Training, Transforms
from measuring import medians, table
from noise import Case

CPU = torch.device("cpu")
CASES = [
    Case("tiny-cnn", "classification", 32, 256, 32),
    Case("efficientnet-lite0", "classification", 128, 64, 32, classes=8),
    Case("efficientnet-b0", "classification", 64, 64, 32, classes=8),
    Case("densenet-121", "classification", 96, 32, 32),
]


def epoch(case: Case, network: Network, inputs: Inputs, targets: torch.Tensor) -> None:
    """All samples once, with the loop's own checks and copies of weights and moments."""
    generator = torch.Generator().manual_seed(0)
    train(
        network,
        read=lambda batch: inputs.trained_on(batch.numpy(), targets[batch], generator),
        samples=len(targets),
        objective=PlainCrossEntropy(None),
        training=Training(lr=1e-3, batch_size=case.batch_size),
        lr=1e-3,
        moments=None,
        step=1,
        generator=generator,
        device=CPU,
    )


def compare(case: Case, repeats: int) -> tuple[dict[str, float], float]:
    """CPU seconds of an epoch by part, and those of the trunk below the head over all images."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        site = case.site(folder / "noise")
        rows = np.arange(case.samples)
        targets = open_truth(site).read(rows).long()
        inputs: dict[Trainable, Inputs] = {"all": Images(site, Transforms(), device=CPU)}
        whole = case.network().eval()
        assert isinstance(whole, Divided)
        for part in get_args(Trainable)[1:]:
            began = time.process_time()
            with torch.no_grad():
                outputs = whole.trunk(inputs["all"].seen(rows), part=part).numpy()
            took = time.process_time() - began
            write_array(folder / f"{part}.npy", outputs)
            stored = StoredArray(folder / f"{part}.npy", shape=outputs.shape, kinds=("float32",))
            inputs[part] = TrunkOutputs(stored, views=1, device=CPU)
        forms: dict[str, Callable[[], None]] = {
            part: partial(epoch, case, case.network().cut(part), given, targets) for part, given in inputs.items()
        }
        medians(forms, 1)
        return medians(forms, repeats), took


def lines(repeats: int) -> Iterator[list[str]]:
    """A row for each network."""
    yield ["ms an image", "size", "all", "tail", "ratio", "head", "ratio", "trunk, once a view"]
    for case in CASES:
        seconds, trunk = compare(case, repeats)
        cells = [f"{1000 * seconds['all'] / case.samples:.2f}"]
        for part in ("tail", "head"):
            cells += [f"{1000 * seconds[part] / case.samples:.3f}", f"{seconds['all'] / seconds[part]:.0f}"]
        yield [case.model, str(case.size), *cells, f"{1000 * trunk / case.samples:.1f}"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="three repeats")
    repeats = 3 if parser.parse_args().quick else 9
    torch.set_num_threads(1)
    table(lines(repeats))


if __name__ == "__main__":
    main()
