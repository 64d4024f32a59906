"""What the networks of a site get for a sample: its image, or what a frozen trunk made of it."""

from __future__ import annotations

from typing import Protocol

import torch

from feal.data import PreparedSet, PreparedSite
from feal.data.arrays import StoredArray
from feal.data.samples import Rows
from feal.data.transforms import augmented, seen
from feal.federation.trunk import open_outputs
from feal.federation.views import viewed_mask
from feal.models import on_device
from feal.settings import Settings, Transforms


class Inputs(Protocol):
    """Samples of one site by their rows, ready for a network on its device."""

    def seen(self, rows: Rows) -> torch.Tensor:
        """As evaluation and selection look at them."""

    def trained_on(
        self, rows: Rows, targets: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As training does, with their classes [b] or masks [b, H, W]; what is random comes from the generator."""


class Images:
    """The images themselves, transformed and normalised."""

    def __init__(self, site: PreparedSite, transforms: Transforms, *, device: torch.device) -> None:
        self._site = site
        self._transforms = transforms
        self._device = device

    def seen(self, rows: Rows) -> torch.Tensor:
        """The images, float32 [b, channels, height, width]."""
        images = seen(self._site.read(rows).to(self._device), self._transforms, task=self._site.task)
        return on_device(images, self._device)

    def trained_on(
        self, rows: Rows, targets: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The images, transformed anew every time, and their masks likewise."""
        images = on_device(self._site.read(rows), self._device)
        images, targets = augmented(images, targets.to(self._device), self._transforms, generator)
        return on_device(images, self._device), targets


class TrunkOutputs:
    """A trunk's outputs [samples * views, ...], the views of a sample one after the other."""

    def __init__(self, outputs: StoredArray, *, views: int, device: torch.device) -> None:
        self._outputs = outputs
        self._views = views
        self._device = device

    def seen(self, rows: Rows) -> torch.Tensor:
        """Those of the images as they are, [b, ...]."""
        return self._read(rows * self._views)

    def trained_on(
        self, rows: Rows, targets: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Those of one view of each image, drawn anew every time, and the masks seen the same way."""
        views = torch.randint(self._views, (len(rows),), generator=generator)
        if targets.ndim > 1:
            pairs = zip(targets, views.tolist(), strict=True)
            targets = torch.stack([viewed_mask(mask, view) for mask, view in pairs])
        return self._read(rows * self._views + views.numpy()), targets.to(self._device)

    def _read(self, rows: Rows) -> torch.Tensor:
        return on_device(torch.from_numpy(self._outputs.read(rows)), self._device)


def trunk_outputs(data: PreparedSet, site: PreparedSite, settings: Settings, *, device: torch.device) -> Inputs:
    """What the configured trunk makes of the site's images; computed now if nobody did before.

    Raises:
        FealError: the trunk's weights cannot be had, or no place for its outputs.
    """
    images = Images(site, settings.transforms, device=device)
    outputs = open_outputs(data, site, settings, read=images.seen, device=device)
    return TrunkOutputs(outputs, views=settings.training.views, device=device)
