"""What every network offers, and the register of their names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import torch
from torch import nn

from feal.errors import FealError
from feal.models.output import Output
from feal.models.published import Published
from feal.registry import Registry
from feal.settings import Task, Trainable


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
    parts: ClassVar[tuple[Trainable, ...]] = ()
    """Those that can be trained alone, on what a frozen trunk below makes of the images, see `Divided`."""
    imagenet: ClassVar[Published | None] = None
    """Weights trained on ImageNet, where somebody published such."""

    unpublished: ClassVar[tuple[str, ...]] = ()
    """Beginnings of the names of layers that such weights do not have; they start from random ones."""
    unused: ClassVar[tuple[str, ...]] = ()
    """Beginnings of the names of tensors among them that the network has no layer for."""

    def __init__(self, *, classes: int, channels: int) -> None:
        super().__init__()
        self.classes = classes
        self.channels = channels
        self.part: Trainable = "all"

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

    def trunk(self, images: torch.Tensor, *, part: Trainable) -> torch.Tensor:
        """What the network cut at `part` takes in the place of these images; the images themselves for `all`."""
        self._check_part(part)
        return images

    def cut(self, part: Trainable) -> Self:
        """Let go of the layers below `part`, in place; a network that has no such part is a `FealError`."""
        self._check_part(part)
        return self

    def aliases(self, name: str) -> tuple[str, ...]:
        """What published files call the tensor `name`, where they call it something else."""
        return ()

    @classmethod
    def check_size(cls, height: int, width: int) -> None:
        """Raise a `FealError` if images of that size do not fit."""
        if any(side < cls.smallest or side % cls.multiple for side in (height, width)):
            raise FealError(
                f"{cls.__name__} cannot take images of {width} x {height} pixels: "
                f"pad, crop or resize them so that both sides are {cls._fitting_sides()}."
            )

    @classmethod
    def check_trunk(cls, part: Trainable, *, height: int, width: int) -> None:
        """Raise a `FealError` if nothing below `part` can stand for images of that size."""
        del height, width
        cls._check_part(part)

    @classmethod
    def _check_part(cls, part: Trainable) -> None:
        parts = ("all", *cls.parts)
        if part not in parts:
            raise FealError(
                f"{cls.__name__} has no {part} that can be trained alone: "
                f"set training.trainable to {' or '.join(parts)}."
            )

    @classmethod
    def _fitting_sides(cls) -> str:
        multiples = f"multiples of {cls.multiple} and " if cls.multiple > 1 else ""
        return f"{multiples}at least {cls.smallest}"


MODELS: Registry[type[Network]] = Registry("model")
