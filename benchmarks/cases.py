"""What benchmarks run on: a network on random images, prepared as a site has them, and a site of any size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib import format as npy

from feal.data import PreparedSite, PreparedWriter, open_prepared
from feal.data.arrays import write_array
from feal.data.manifest import MANIFEST_FILE, Manifest, SiteRecord
from feal.data.prepared import IMAGE_FILE, LABEL_FILE
from feal.data.samples import SAMPLE_FOLDER, write_samples
from feal.evidential import build_loss
from feal.models import Network, build_model
from feal.selection import SelectionContext
from feal.settings import Component, Task


@dataclass(frozen=True)
class Case:
    """A network and the images it sees."""

    model: str
    task: Task
    size: int
    samples: int
    batch_size: int
    classes: int = 2

    def site(self, root: Path) -> PreparedSite:
        """Write random images of random classes and open them as any data."""
        draw = np.random.default_rng(0)
        labels = self.task == "classification"
        shape = (self.samples,) if labels else (self.samples, self.size, self.size)
        with PreparedWriter(
            root,
            name="noise",
            task=self.task,
            classes=[f"class {index}" for index in range(self.classes)],
            channels=3,
            height=self.size,
            width=self.size,
        ) as writer:
            writer.site("site").append(
                ids=[f"{index:06}" for index in range(self.samples)],
                images=draw.integers(0, 256, (self.samples, 3, self.size, self.size)).astype(np.uint8),
                labels=draw.integers(0, self.classes, shape).astype(np.int16 if labels else np.uint8),
                splits=["train"] * self.samples,
            )
        return open_prepared(root).site("site")

    def network(self, seed: int = 0) -> Network:
        """Build the network with the weights of that seed."""
        torch.manual_seed(seed)
        return build_model(
            self.model, task=self.task, classes=self.classes, channels=3, height=self.size, width=self.size
        )

    def context(self, loss: str) -> SelectionContext:
        """Return a context with all classes labelled alike and a loss's default parameters."""
        counts = torch.ones(self.classes, dtype=torch.float64)
        return SelectionContext(
            task=self.task,
            classes=self.classes,
            site_counts=counts,
            total_counts=counts,
            loss=build_loss(Component(name=loss)),
        )


def write_hollow_site(root: Path, *, samples: int, size: int) -> None:
    """Write a set of one site "site" with black images [3, size, size]: holes in a file, so next to no disk."""
    folder = root / "site"
    folder.mkdir(parents=True)
    _write_hole(folder / IMAGE_FILE, (samples, 3, size, size))
    write_array(folder / LABEL_FILE, (np.arange(samples) % 2).astype(np.int16))
    ids = [f"{number:07}" for number in range(samples)]
    columns: dict[str, list[Any]] = {
        "id": ids,
        "patient": ids,
        "split": ["train"] * samples,
        "given": [False] * samples,
        "source": [""] * samples,
    }
    write_samples(folder / SAMPLE_FOLDER, site="site", columns=columns)
    manifest = Manifest(
        name="large",
        task="classification",
        classes=("a", "b"),
        channels=3,
        height=size,
        width=size,
        dtype="uint8",
        sites={"site": SiteRecord(samples=samples, checksums={})},
        source={},
    )
    (root / MANIFEST_FILE).write_bytes(manifest.encode())


def _write_hole(path: Path, shape: tuple[int, ...]) -> None:
    with path.open("wb") as file:
        npy.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        file.truncate(file.tell() + math.prod(shape))
