"""U-Nets: MONAI's BasicUNet, and one on EfficientNet-Lite0, whose ImageNet weights let it learn from few masks."""

from __future__ import annotations

import math
from typing import ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from feal.errors import FealError
from feal.models.base import MODELS, Network, Output, pool_3x3
from feal.models.efficientnet import LITE0_WEIGHTS, EfficientNetLite0, efficientnet_file_name
from feal.models.pretrained import PublishedWeights
from feal.settings import Task, Trainable

LEVELS = ((1, 24), (2, 40), (4, 112), (6, 320))
"""The last stage of blocks at 1/4, 1/8, 1/16 and 1/32 of the image's size, and its channels."""
DECODER_WIDTHS = (96, 64, 48, 32)
"""Of the decoder, from 1/16 of the image's size to 1/2."""
DEEP = 2
"""The level of `deep`: 112 channels, as of EfficientNet."""


@MODELS.register("unet", summary="segmentation from 32 px: U-Net with 16 base channels, 1.9 M parameters")
class UNet(Network):
    """Five levels of two 3 x 3 convolutions with instance norm, skip connections, and a 1 x 1 convolution.

    `deep` is the bottleneck (2,304 numbers), `features` its average (256 numbers).
    Images whose sides are not multiples of 16 raise a `FealError`.
    """

    task: ClassVar[Task] = "segmentation"
    # Instance norm is not defined for a bottleneck, 1/16 of the image, of a single pixel.
    min_side: ClassVar[int] = 32
    side_multiple: ClassVar[int] = 16

    def __init__(self, *, classes: int, channels: int) -> None:
        super().__init__(classes=classes, channels=channels)
        # MONAI takes more than a second to import, so it is imported where such a network is built.
        from monai.networks.nets.basic_unet import BasicUNet

        self.net = BasicUNet(
            spatial_dims=2,
            in_channels=channels,
            out_channels=classes,
            features=(16, 32, 64, 128, 256, 16),
            norm=("instance", {"affine": True}),
        )
        # MONAI pads odd sides by copying every map, even if there are none: 3 % of the time.
        for level in (self.net.upcat_1, self.net.upcat_2, self.net.upcat_3, self.net.upcat_4):
            level.is_pad = False

    @property
    def head(self) -> nn.Conv2d:
        head: nn.Conv2d = self.net.final_conv
        return head

    def forward(self, images: Tensor) -> Tensor:
        self.check_size(*images.shape[-2:])
        logits: Tensor = self.net(images)
        return logits


class DecoderStep(nn.Module):
    """Doubles the size, joins the encoder's maps of that size, if any, and applies a 3 x 3 convolution."""

    def __init__(self, channels: int, skip_channels: int, width: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels + skip_channels, width, 3, padding=1, bias=False)
        self.norm = nn.InstanceNorm2d(width, affine=True)

    def forward(self, maps: Tensor, skip: Tensor | None = None) -> Tensor:
        """Return maps [B, width, 2h, 2w] of maps [B, channels, h, w]."""
        maps = F.interpolate(maps, scale_factor=2.0, mode="nearest")
        joined = maps if skip is None else torch.cat([maps, skip], dim=1)
        return F.leaky_relu(self.norm(self.convolution(joined)), 0.1)


@MODELS.register("unet-lite0", summary="segmentation from 64 px, for CPUs: U-Net on EfficientNet-Lite0")
class LiteUNet(Network):
    """EfficientNet-Lite0's blocks as the encoder, four decoder steps with instance norm, and a 1 x 1 convolution.

    Logits are computed at half the image's size and enlarged. `deep` is the 112-channel stage (1,008 numbers),
    `features` the average of the bottleneck (320 numbers). Its `tail` is the decoder, which takes the
    encoder's maps, flattened, one level after the other.
    """

    task: ClassVar[Task] = "segmentation"
    # Instance norm is not defined if the first step's maps, 1/16 of the image, are a single pixel.
    min_side: ClassVar[int] = 64
    side_multiple: ClassVar[int] = 32
    trainable_parts: ClassVar[tuple[Trainable, ...]] = ("tail",)
    imagenet_weights: ClassVar[PublishedWeights | None] = LITE0_WEIGHTS
    layers_without_weights: ClassVar[tuple[str, ...]] = ("steps.",)
    weights_without_layers: ClassVar[tuple[str, ...]] = ("_conv_head.", "_bn1.", "_fc.")

    def __init__(self, *, classes: int, channels: int) -> None:
        super().__init__(classes=classes, channels=channels)
        self.net = EfficientNetLite0.build_blocks(classes=classes, channels=channels)
        for name in ("_conv_head", "_conv_head_padding", "_bn1", "_fc"):
            setattr(self.net, name, nn.Identity())
        below = [channels for _, channels in LEVELS][::-1]
        entering = (below[0], *DECODER_WIDTHS[:-1])
        sizes = zip(entering, (*below[1:], 0), DECODER_WIDTHS, strict=True)
        self.steps = nn.ModuleList(DecoderStep(*step) for step in sizes)
        self.last = nn.Conv2d(DECODER_WIDTHS[-1], classes, 1)

    @property
    def head(self) -> nn.Conv2d:
        return self.last

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self._decode(self._levels(images)))
        return logits

    def outputs(self, images: Tensor) -> Output:
        levels = self._levels(images)
        decoded = self._decode(levels)
        return Output(
            logits=self.head(decoded),
            features=levels[-1].mean(dim=(2, 3)),
            deep=pool_3x3(levels[DEEP]),
            head_input=decoded,
        )

    def run_trunk(self, images: Tensor, *, part: Trainable) -> Tensor:
        """Return what the decoder alone takes in place of these images [B, channels, H, W]."""
        if part == "all":
            return images
        self.check_trunk(part, height=images.shape[2], width=images.shape[3])
        return torch.cat([maps.flatten(1) for maps in self._encode(images)], dim=1)

    def keep_part(self, part: Trainable) -> Self:
        """Remove the encoder, for `tail`; the last layer alone cannot be trained."""
        super().keep_part(part).part = part
        if part == "tail":
            self.net = nn.Identity()
        return self

    @classmethod
    def check_trunk(cls, part: Trainable, *, height: int, width: int) -> None:
        super().check_trunk(part, height=height, width=width)
        if part == "tail" and height != width:
            raise FealError(
                f"{cls.__name__} stores an encoder's outputs for square images only, and these are "
                f"{height} x {width}: prepare them square, or set training.trainable=all."
            )

    def published_names(self, name: str) -> tuple[str, ...]:
        return (efficientnet_file_name(name),)

    def _levels(self, images: Tensor) -> list[Tensor]:
        return self._encode(images) if self.part == "all" else self._unflatten(images)

    def _encode(self, images: Tensor) -> list[Tensor]:
        self.check_size(*images.shape[-2:])
        net = self.net
        maps = net._swish(net._bn0(net._conv_stem(net._conv_stem_padding(images))))
        levels, first = [], 0
        for last, _ in LEVELS:
            maps = net._blocks[first : last + 1](maps)
            levels.append(maps)
            first = last + 1
        return levels

    def _unflatten(self, flat: Tensor) -> list[Tensor]:
        """Return the levels of a square image from their numbers side by side."""
        shapes = [(channels, 2**exponent) for exponent, (_, channels) in zip((3, 2, 1, 0), LEVELS, strict=True)]
        smallest = math.isqrt(flat.shape[1] // sum(channels * factor**2 for channels, factor in shapes))
        sizes = [(channels, smallest * factor, smallest * factor) for channels, factor in shapes]
        parts = flat.split([math.prod(size) for size in sizes], dim=1)
        return [
            part.reshape(-1, *size).contiguous(memory_format=torch.channels_last)
            for part, size in zip(parts, sizes, strict=True)
        ]

    def _decode(self, levels: list[Tensor]) -> Tensor:
        """Return the last step's maps, enlarged to the image's size; the linear last layer may follow."""
        *skips, maps = levels
        for step, skip in zip(self.steps, (*reversed(skips), None), strict=True):
            maps = step(maps, skip)
        return F.interpolate(maps, scale_factor=2.0, mode="bilinear", align_corners=False)
