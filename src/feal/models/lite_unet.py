"""A U-Net on EfficientNet-Lite0: learns from a few dozen masks, since its encoder has seen ImageNet."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import torch
from torch import nn
from torch.nn import functional as F

from feal.errors import FealError
from feal.models.efficientnet import LITE0_WEIGHTS, lite0_blocks, published_name
from feal.models.network import MODELS, Network
from feal.models.output import Output, pool3x3
from feal.models.published import Published
from feal.settings import Task, Trainable

LEVELS = ((1, 24), (2, 40), (4, 112), (6, 320))
"""The last stage of blocks at 1/4, 1/8, 1/16 and 1/32 of the image's size, and its channels."""
WIDTHS = (96, 64, 48, 32)
"""Of the decoder, from 1/16 of the image's size to 1/2."""
DEEP = 2
"""The level of `deep`: 112 channels, as of EfficientNet."""


class Step(nn.Module):
    """Twice the size, joined with the encoder's maps of that size if there are any, and a 3 x 3 convolution."""

    def __init__(self, channels: int, skipped: int, width: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels + skipped, width, 3, padding=1, bias=False)
        self.norm = nn.InstanceNorm2d(width, affine=True)

    def forward(self, maps: torch.Tensor, skipped: torch.Tensor | None = None) -> torch.Tensor:
        """Maps [B, width, 2h, 2w] of maps [B, channels, h, w]."""
        maps = F.interpolate(maps, scale_factor=2.0, mode="nearest")
        joined = maps if skipped is None else torch.cat([maps, skipped], dim=1)
        return F.leaky_relu(self.norm(self.convolution(joined)), 0.1)


@MODELS.register("unet-lite0", summary="segmentation from 64 px, for CPUs: U-Net on EfficientNet-Lite0")
class LiteUNet(Network):
    """EfficientNet-Lite0's blocks as the encoder, four decoder steps with instance norm, and a 1 x 1 convolution.

    Logits are computed at half the image's size and enlarged. `deep` is the 112-channel stage (1,008 numbers),
    `features` the average of the bottleneck (320 numbers). Cut at `tail` it is the decoder, which takes the
    encoder's maps, flattened, one level after the other.
    """

    task: ClassVar[Task] = "segmentation"
    # Instance norm has nothing to normalise when the first step's maps, 1/16 of the image, are a single pixel.
    smallest: ClassVar[int] = 64
    multiple: ClassVar[int] = 32
    parts: ClassVar[tuple[Trainable, ...]] = ("tail",)
    imagenet: ClassVar[Published | None] = LITE0_WEIGHTS
    unpublished: ClassVar[tuple[str, ...]] = ("steps.",)
    unused: ClassVar[tuple[str, ...]] = ("_conv_head.", "_bn1.", "_fc.")

    def __init__(self, *, classes: int, channels: int) -> None:
        super().__init__(classes=classes, channels=channels)
        blocks = lite0_blocks(classes=classes, channels=channels)
        for name in ("_conv_head", "_conv_head_padding", "_bn1", "_fc"):
            setattr(blocks, name, nn.Identity())
        self.net: Any = blocks
        below = [channels for _, channels in LEVELS][::-1]
        entering = (below[0], *WIDTHS[:-1])
        self.steps = nn.ModuleList(Step(*sizes) for sizes in zip(entering, (*below[1:], 0), WIDTHS, strict=True))
        self.last = nn.Conv2d(WIDTHS[-1], classes, 1)

    @property
    def head(self) -> nn.Conv2d:
        return self.last

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self._decoded(self._levels(images)))
        return logits

    def outputs(self, images: torch.Tensor) -> Output:
        levels = self._levels(images)
        decoded = self._decoded(levels)
        return Output(
            logits=self.head(decoded),
            features=levels[-1].mean(dim=(2, 3)),
            deep=pool3x3(levels[DEEP]),
            head_input=decoded,
        )

    def trunk(self, images: torch.Tensor, *, part: Trainable) -> torch.Tensor:
        """What the network cut at `part` takes in the place of these images [B, channels, H, W]."""
        if part == "all":
            return images
        self.check_trunk(part, height=images.shape[2], width=images.shape[3])
        return torch.cat([maps.flatten(1) for maps in self._encoded(images)], dim=1)

    def cut(self, part: Trainable) -> Self:
        """Let go of the encoder, for `tail`; a last layer alone cannot draw."""
        super().cut(part).part = part
        if part == "tail":
            self.net = nn.Identity()
        return self

    @classmethod
    def check_trunk(cls, part: Trainable, *, height: int, width: int) -> None:
        super().check_trunk(part, height=height, width=width)
        if part == "tail" and height != width:
            raise FealError(
                f"{cls.__name__} keeps an encoder's outputs of square images, and these are "
                f"{height} x {width}: prepare them square, or set training.trainable=all."
            )

    def aliases(self, name: str) -> tuple[str, ...]:
        return (published_name(name),)

    def _levels(self, images: torch.Tensor) -> list[torch.Tensor]:
        return self._encoded(images) if self.part == "all" else self._unflattened(images)

    def _encoded(self, images: torch.Tensor) -> list[torch.Tensor]:
        self.check_size(*images.shape[-2:])
        net = self.net
        maps = net._swish(net._bn0(net._conv_stem(net._conv_stem_padding(images))))
        levels, first = [], 0
        for last, _ in LEVELS:
            maps = net._blocks[first : last + 1](maps)
            levels.append(maps)
            first = last + 1
        return levels

    def _unflattened(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """The levels of a square image from their numbers side by side."""
        factors = [2**exponent for exponent in reversed(range(len(LEVELS)))]
        numbers = sum(channels * factor**2 for factor, (_, channels) in zip(factors, LEVELS, strict=True))
        smallest = math.isqrt(flat.shape[1] // numbers)
        shapes = [(channels, smallest * factor) for factor, (_, channels) in zip(factors, LEVELS, strict=True)]
        parts = flat.split([channels * side**2 for channels, side in shapes], dim=1)
        return [
            part.reshape(-1, channels, side, side).contiguous(memory_format=torch.channels_last)
            for part, (channels, side) in zip(parts, shapes, strict=True)
        ]

    def _decoded(self, levels: list[torch.Tensor]) -> torch.Tensor:
        """The last step's maps, enlarged to the image's size: the last layer is linear, so it may come after."""
        *skipped, maps = levels
        for step, beside in zip(self.steps, (*reversed(skipped), None), strict=True):
            maps = step(maps, beside)
        return F.interpolate(maps, scale_factor=2.0, mode="bilinear", align_corners=False)
