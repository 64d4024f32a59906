"""What every network offers, and the register of their names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import nn

from feal.errors import FealError
from feal.models.output import Output
from feal.registry import Registry
from feal.settings import Task


class Network(nn.Module, ABC):
    """A network that gives logits for training and an `Output` for selection.

    A subclass sets the three class variables, builds its layers from `classes` and `channels` with torch's
    global generator, and is registered in `MODELS`. The memory format of the images is kept: channels-last
    images make a channels-last forward pass.
    """

    task: ClassVar[Task]
    smallest: ClassVar[int]
    """The shortest side of an image, in pixels."""
    multiple: ClassVar[int] = 1
    """What both sides of an image must be a multiple of."""

    def __init__(self, *, classes: int, channels: int) -> None:
        super().__init__()
        self.classes = classes
        self.channels = channels

    @property
    @abstractmethod
    def head(self) -> nn.Linear | nn.Conv2d:
        """The last layer: `head(output.head_input)` is `output.logits`."""

    @abstractmethod
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The logits `[B, C]` or `[B, C, H, W]` of images `[B, channels, H, W]`."""

    @abstractmethod
    def outputs(self, images: torch.Tensor) -> Output:
        """Logits and features of images `[B, channels, H, W]`, all from one forward pass."""

    @classmethod
    def check_size(cls, height: int, width: int) -> None:
        """Raise a `FealError` if images of that size do not fit."""
        if any(side < cls.smallest or side % cls.multiple for side in (height, width)):
            raise FealError(
                f"{cls.__name__} cannot take images of {height} x {width} pixels: "
                f"pad, crop or resize them so that both sides are {cls._fitting_sides()}."
            )

    @classmethod
    def _fitting_sides(cls) -> str:
        multiples = f"multiples of {cls.multiple} and " if cls.multiple > 1 else ""
        return f"{multiples}at least {cls.smallest}"


MODELS: Registry[type[Network]] = Registry("model")
