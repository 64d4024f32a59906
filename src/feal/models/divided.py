"""Classifiers in three pieces, of which the upper ones may be trained alone."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Self

import torch
from torch import nn
from torch.nn import functional as F

from feal.models.network import Network
from feal.models.output import Output, pool3x3
from feal.settings import Trainable


class Divided(Network):
    """A classifier made of `lower`, `upper`, dropout and the last layer.

    Cut at `tail` it takes the lower piece's maps in the place of images, with the deep features behind them where
    these come from below; cut at `head` the pooled features and the deep ones side by side. `trunk` makes either
    of them. What is left keeps its names: the weights of the pieces together are those of the whole.
    """

    parts: ClassVar[tuple[Trainable, ...]] = ("tail", "head")
    lower_layers: ClassVar[tuple[str, ...]]
    """Dotted names of the layers that `lower` uses."""
    upper_layers: ClassVar[tuple[str, ...]]
    """Those that `upper` uses."""
    middle: ClassVar[int]
    """Channels of the maps between them."""
    deep_below: ClassVar[int] = 0
    """How many deep features come from the lower piece: all of them, or none."""

    def __init__(self, *, classes: int, channels: int) -> None:
        super().__init__(classes=classes, channels=channels)
        self.dropout: nn.Module = nn.Identity()

    @property
    @abstractmethod
    def head(self) -> nn.Linear: ...

    @abstractmethod
    def lower(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps [B, middle, h, w] of images, and those that the deep features are pooled from, if `deep_below`."""

    @abstractmethod
    def upper(self, maps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Pooled features [B, D], and the maps that the deep ones are pooled from, unless `deep_below`."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.part == "head":
            features = images[:, : self.head.in_features]
        elif self.part == "tail":
            features, _ = self.upper(self._maps(images))
        else:
            features, _ = self.upper(self.lower(images)[0])
        logits: torch.Tensor = self.head(self.dropout(features))
        return logits

    def outputs(self, images: torch.Tensor) -> Output:
        features, deep = self._observed(images)
        head_input = self.dropout(features)
        return Output(logits=self.head(head_input), features=features, deep=deep, head_input=head_input)

    def trunk(self, images: torch.Tensor, *, part: Trainable) -> torch.Tensor:
        """What the network cut at `part` takes in the place of these images; the images themselves for `all`.

        Shapes: [B, channels, h, w] for `tail`, [B, D + deep] for `head`.
        """
        if part == "head":
            return torch.cat(self._observed(images), dim=1)
        if part == "all":
            return images
        maps, late = self.lower(images)
        return _with_behind(maps, pool3x3(late)) if self.deep_below else maps

    def cut(self, part: Trainable) -> Self:
        self.part = part
        gone = {"all": (), "tail": self.lower_layers, "head": (*self.lower_layers, *self.upper_layers)}[part]
        for name in gone:
            self.set_submodule(name, nn.Identity())
        return self

    def _observed(self, given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Pooled and deep features."""
        if self.part == "head":
            width = self.head.in_features
            return given[:, :width], given[:, width:]
        if self.part == "tail":
            features, last = self.upper(self._maps(given))
            return features, given[:, self.middle :].flatten(1)[
                :, : self.deep_below
            ] if self.deep_below else pool3x3(last)
        maps, late = self.lower(given)
        features, last = self.upper(maps)
        return features, pool3x3(late if self.deep_below else last)

    def _maps(self, given: torch.Tensor) -> torch.Tensor:
        """The maps alone, in the memory format in which they came."""
        if not self.deep_below:
            return given
        last = given.is_contiguous(memory_format=torch.channels_last)
        form = torch.channels_last if last else torch.contiguous_format
        return given[:, : self.middle].contiguous(memory_format=form)


def _with_behind(maps: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Maps [B, C, h, w] and as many more channels as it takes to hold the numbers [B, n], the rest zeros."""
    pixels = maps.shape[2] * maps.shape[3]
    filled = F.pad(numbers, (0, -numbers.shape[1] % pixels))
    return torch.cat([maps, filled.reshape(len(maps), -1, *maps.shape[2:])], dim=1)
