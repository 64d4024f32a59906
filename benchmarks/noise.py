"""A network on random images, prepared as a site has them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from feal.data import PreparedSite, PreparedWriter, open_prepared
from feal.models import Network, build_model
from feal.selection import Context
from feal.settings import Evidence, Loss, Selection, Task


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
        """Random images of random classes, written and opened as any data."""
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
                truth=draw.integers(0, self.classes, shape).astype(np.int16 if labels else np.uint8),
                splits=["train"] * self.samples,
            )
        return open_prepared(root).site("site")

    def network(self, seed: int = 0) -> Network:
        """The network with the weights of that seed."""
        torch.manual_seed(seed)
        return build_model(
            self.model, task=self.task, classes=self.classes, channels=3, height=self.size, width=self.size
        )

    def context(self, loss: Loss, selection: Selection | None = None) -> Context:
        """All classes labelled alike, with default settings unless others are given."""
        counts = torch.ones(self.classes, dtype=torch.float64)
        return Context(
            task=self.task,
            classes=self.classes,
            site_counts=counts,
            total_counts=counts,
            selection=selection or Selection(batch_size=self.batch_size),
            evidence=Evidence(),
            loss=loss,
        )
