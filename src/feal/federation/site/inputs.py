"""Read a site's samples as networks take them: images or cached features, with the labels for training."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch

from feal.data import PreparedSet, PreparedSite
from feal.data.arrays import StoredArray
from feal.data.augment import augment, normalise
from feal.data.samples import Rows
from feal.federation.site.feature_cache import TrunkSpec, open_features, view_mask
from feal.models import to_device
from feal.rundir.site_store import Store
from feal.settings import Task, Transforms


class Inputs(Protocol):
    """Samples of one site by their array rows, ready for a network on its device."""

    def read(self, rows: Rows) -> torch.Tensor:
        """Read samples for evaluation and selection, [b, ...]."""

    def read_augmented(
        self, rows: Rows, targets: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read samples for training, transformed at random together with their classes [b] or masks [b, H, W]."""


class Images:
    """Read the images themselves, transformed and normalised."""

    def __init__(self, site: PreparedSite, transforms: Transforms, *, device: torch.device) -> None:
        self._site = site
        self._transforms = transforms
        self._device = device

    def read(self, rows: Rows) -> torch.Tensor:
        """Read images, float32 [b, channels, height, width]."""
        images = normalise(self._site.read(rows).to(self._device), self._transforms, task=self._site.task)
        return to_device(images, self._device)

    def read_augmented(
        self, rows: Rows, targets: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read images with new random transforms, and their masks transformed alike."""
        images = to_device(self._site.read(rows), self._device)
        images, targets = augment(images, targets.to(self._device), self._transforms, generator)
        return to_device(images, self._device), targets


class CachedFeatures:
    """Read a frozen trunk's outputs [samples * views, ...]; the views of a sample are consecutive."""

    def __init__(self, features: StoredArray, *, views: int, device: torch.device) -> None:
        self._features = features
        self._views = views
        self._device = device

    def read(self, rows: Rows) -> torch.Tensor:
        """Read the features of the unchanged images, [b, ...]."""
        return self._read(rows * self._views)

    def read_augmented(
        self, rows: Rows, targets: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read the features of one random view of each image, and the masks in the same view."""
        views = torch.randint(self._views, (len(rows),), generator=generator)
        if targets.ndim > 1:
            pairs = zip(targets, views.tolist(), strict=True)
            targets = torch.stack([view_mask(mask, view) for mask, view in pairs])
        return self._read(rows * self._views + views.numpy()), targets.to(self._device)

    def _read(self, rows: Rows) -> torch.Tensor:
        return to_device(torch.from_numpy(self._features.read(rows)), self._device)


def open_cached_features(
    data: PreparedSet, site: PreparedSite, spec: TrunkSpec, *, images: Images
) -> CachedFeatures:
    """Open the outputs of a frozen trunk for a site's images; see `open_features`."""
    return CachedFeatures(open_features(data, site, spec, read=images.read), views=spec.views, device=spec.device)


class LabelledSamples:
    """The labelled samples of a site, by number in the order of their ids.

    Masks are read for every batch: all of them may be more than fits into memory.
    """

    def __init__(self, store: Store, site: PreparedSite, *, inputs: Inputs, task: Task) -> None:
        self._store = store
        self._inputs = inputs
        self._ids = store.labelled()
        self._rows = site.rows(self._ids)
        self._classes = torch.from_numpy(store.class_labels()) if task == "classification" else None

    def __len__(self) -> int:
        return len(self._ids)

    def read(self, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Read inputs on the device, and classes [b] or masks [b, height, width]."""
        return self._inputs.read(self._rows[batch.numpy()]), self.targets(batch)

    def read_augmented(self, batch: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Read inputs and targets with random transforms, both on the device."""
        return self._inputs.read_augmented(self._rows[batch.numpy()], self.targets(batch), generator)

    def targets(self, batch: torch.Tensor) -> torch.Tensor:
        """Return classes [b], or masks uint8 [b, height, width]."""
        if self._classes is not None:
            return self._classes[batch]
        masks = [self._store.mask(self._ids[number]) for number in batch.tolist()]
        return torch.from_numpy(np.stack(masks))
