"""Frozen trunks, and classifiers whose upper part can be trained alone on the outputs of one."""

from abc import abstractmethod
from typing import ClassVar, Self

import torch
from torch import nn
from torch.nn import functional as F

from feal.models.base import Network, Output, pool_3x3
from feal.registry import Parameters
from feal.settings import Task, Trainable


class SplitClassifier(Network):
    """A classifier made of lower layers, upper layers, dropout and the last layer.

    Reduced to its `tail` it takes the maps of the lower layers in place of images, followed by the deep features
    where these come from below; reduced to its `head` it takes the pooled and the deep features side by side.
    `run_trunk` computes either. The remaining layers keep their names: the weights of trunk and part together are
    those of the whole network.
    """

    task: ClassVar[Task] = "classification"
    trainable_parts: ClassVar[tuple[Trainable, ...]] = ("tail", "head")
    lower_layers: ClassVar[tuple[str, ...]]
    """Dotted names of the layers that `run_lower` uses."""
    upper_layers: ClassVar[tuple[str, ...]]
    """Dotted names of the layers that `run_upper` uses."""
    lower_channels: ClassVar[int]
    """Channels of the maps between them."""
    lower_deep_size: ClassVar[int] = 0
    """Number of deep features if the lower layers give them; 0 if the upper ones do."""

    def __init__(self, *, classes: int, channels: int, params: Parameters | None = None) -> None:
        super().__init__(classes=classes, channels=channels, params=params)
        self.dropout: nn.Module = nn.Identity()

    @property
    @abstractmethod
    def head(self) -> nn.Linear: ...

    @abstractmethod
    def run_lower(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return maps [B, lower_channels, h, w], and those that deep features come from if `lower_deep_size`."""

    @abstractmethod
    def run_upper(self, maps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return pooled features [B, D], and the maps that deep features come from unless `lower_deep_size`."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.part == "head":
            features = images[:, : self.head.in_features]
        elif self.part == "tail":
            features, _ = self.run_upper(self._maps_of(images))
        else:
            features, _ = self.run_upper(self.run_lower(images)[0])
        logits: torch.Tensor = self.head(self.dropout(features))
        return logits

    def outputs(self, images: torch.Tensor) -> Output:
        features, deep = self._features(images)
        head_input = self.dropout(features)
        return Output(logits=self.head(head_input), features=features, deep=deep, head_input=head_input)

    def run_trunk(self, images: torch.Tensor, *, part: Trainable) -> torch.Tensor:
        """Return what the network reduced to `part` takes in place of these images; for `all` the images.

        Shapes: [B, channels, h, w] for `tail`, [B, D + deep] for `head`.
        """
        if part == "head":
            return torch.cat(self._features(images), dim=1)
        if part == "all":
            return images
        maps, late = self.run_lower(images)
        return _append_channels(maps, pool_3x3(late)) if self.lower_deep_size else maps

    def keep_part(self, part: Trainable) -> Self:
        self.part = part
        removed = {"all": (), "tail": self.lower_layers, "head": (*self.lower_layers, *self.upper_layers)}[part]
        for name in removed:
            self.set_submodule(name, nn.Identity())
        return self

    def _features(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return pooled and deep features of images, or of a trunk's outputs."""
        if self.part == "head":
            width = self.head.in_features
            return inputs[:, :width], inputs[:, width:]
        if self.part == "tail":
            features, last = self.run_upper(self._maps_of(inputs))
            appended = inputs[:, self.lower_channels :].flatten(1)[:, : self.lower_deep_size]
            return features, appended if self.lower_deep_size else pool_3x3(last)
        maps, late = self.run_lower(inputs)
        features, last = self.run_upper(maps)
        return features, pool_3x3(late if self.lower_deep_size else last)

    def _maps_of(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the maps without the deep features behind them, in the same memory format."""
        if not self.lower_deep_size:
            return inputs
        is_last = inputs.is_contiguous(memory_format=torch.channels_last)
        form = torch.channels_last if is_last else torch.contiguous_format
        return inputs[:, : self.lower_channels].contiguous(memory_format=form)


class Trunk(nn.Module):
    """The layers of a network below a part of it, see `Network.run_trunk`."""

    def __init__(self, network: Network, part: Trainable) -> None:
        super().__init__()
        self.network = network
        self.part = part

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.network.run_trunk(images, part=self.part)


def _append_channels(maps: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Append the numbers [B, n] to maps [B, C, h, w] as further channels, the last one filled up with zeros."""
    pixels = maps.shape[2] * maps.shape[3]
    padded = F.pad(numbers, (0, -numbers.shape[1] % pixels))
    return torch.cat([maps, padded.reshape(maps.shape[0], -1, *maps.shape[2:])], dim=1)
