"""U-Nets: the paper's, which is that of FedDG, and MONAI's BasicUNet."""

from typing import ClassVar

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional as F

from feal.models.base import MODELS, Network, Output, pool_3x3
from feal.registry import Parameters
from feal.settings import Task

DEPTH = 5
"""Levels of the encoder; each has twice the channels and half the size of the one above."""


class ConvolutionNorm(nn.Sequential):
    """A convolution with bias that keeps the size, and an instance norm without parameters."""

    def __init__(self, channels: int, width: int, kernel: int = 3) -> None:
        super().__init__(nn.Conv2d(channels, width, kernel, padding=kernel // 2), nn.InstanceNorm2d(width))


class EncoderLevel(nn.Module):
    """Three 3 x 3 convolutions, with a relu after the second and the third."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.first = ConvolutionNorm(channels, width)
        self.second = ConvolutionNorm(width, width)
        self.third = ConvolutionNorm(width, width)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Return maps [B, width, h, w] of maps [B, channels, h, w]."""
        encoded: torch.Tensor = self.third(self.second(self.first(maps)).relu_()).relu_()
        return encoded


class DecoderLevel(nn.Module):
    """Doubles the size of maps, halves their channels, and joins the encoder's maps of that size."""

    def __init__(self, width: int, *, is_first: bool) -> None:
        super().__init__()
        self.reduce = None if is_first else ConvolutionNorm(2 * width, width)
        self.up = ConvolutionNorm(width, width // 2, kernel=1)
        self.join = ConvolutionNorm(width, width)

    def forward(self, maps: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        """Return maps [B, width, 2h, 2w] of maps [B, width or 2 width, h, w] and skip [B, width / 2, 2h, 2w]."""
        if self.reduce is not None:
            maps = self.reduce(maps).relu_()
        up = self.up(F.interpolate(maps, scale_factor=2.0, mode="nearest")).relu_()
        joined: torch.Tensor = self.join(torch.cat([skip, up], dim=1)).relu_()
        return joined


@MODELS.register("unet", summary="segmentation from 32 px: the paper's U-Net, 3.2 M parameters")
class UNet(Network):
    """Five encoder levels of n, 2n, 4n, 8n and 16n channels, four decoder levels, and a 1 x 1 convolution.

    27 convolutions with weights drawn from N(0, 2 / fan_out), as in FedDG (Liu et al., CVPR 2021), which the paper
    cites; 3,179,890 parameters for two classes at n = 16. `deep` is the bottleneck (2,304 numbers), `features` its
    average (256 numbers). Images whose sides are not multiples of 16 raise a `FealError`.
    """

    class Params(Network.Params):
        """Width of the network."""

        channels: int = Field(
            16, ge=1, description="channels of the first level; each level below has twice as many"
        )

    params: Params
    task: ClassVar[Task] = "segmentation"
    # Instance norm is not defined for a bottleneck, 1/16 of the image, of a single pixel.
    min_side: ClassVar[int] = 32
    side_multiple: ClassVar[int] = 16

    def __init__(self, *, classes: int, channels: int, params: Parameters | None = None) -> None:
        super().__init__(classes=classes, channels=channels, params=params)
        widths = [self.params.channels * 2**level for level in range(DEPTH)]
        entering = [channels, *widths[:-1]]
        self.encoder = nn.ModuleList(EncoderLevel(*sizes) for sizes in zip(entering, widths, strict=True))
        self.decoder = nn.ModuleList(DecoderLevel(width, is_first=width == widths[-1]) for width in widths[:0:-1])
        self.last = nn.Conv2d(widths[1], classes, 1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @property
    def head(self) -> nn.Conv2d:
        return self.last

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.last(self._encode_and_decode(images)[1])
        return logits

    def outputs(self, images: torch.Tensor) -> Output:
        bottleneck, decoded = self._encode_and_decode(images)
        return Output(
            logits=self.last(decoded),
            features=bottleneck.mean(dim=(2, 3)),
            deep=pool_3x3(bottleneck),
            head_input=decoded,
        )

    def _encode_and_decode(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the bottleneck and the maps that the last convolution takes."""
        self.check_size(*images.shape[-2:])
        maps = self.encoder[0](images)
        skips = []
        for level in self.encoder[1:]:
            skips.append(maps)
            maps = level(F.max_pool2d(maps, 2))
        bottleneck = maps
        for step in self.decoder:
            maps = step(maps, skips.pop())
        return bottleneck, maps


@MODELS.register("basic-unet", summary="segmentation from 32 px: MONAI's BasicUNet, 1.9 M parameters")
class BasicUNet(Network):
    """MONAI's BasicUNet with 16 base channels: two 3 x 3 convolutions a level, affine instance norm, leaky relu.

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
        from monai.networks.nets.basic_unet import BasicUNet as MonaiUNet

        self.net = MonaiUNet(
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

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.check_size(*images.shape[-2:])
        logits: torch.Tensor = self.net(images)
        return logits
