"""The U-Net of the segmentation presets: MONAI's BasicUNet."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from feal.models.base import MODELS, Network, Output, pool_3x3
from feal.settings import Task

WIDTHS = (16, 32, 64, 128, 256)


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
            features=(*WIDTHS, WIDTHS[0]),
            norm=("instance", {"affine": True}),
        )
        self._skip_padding()

    @property
    def head(self) -> nn.Conv2d:
        head: nn.Conv2d = self.net.final_conv
        return head

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        _, decoded = self._encode_and_decode(images)
        logits: torch.Tensor = self.head(decoded)
        return logits

    def outputs(self, images: torch.Tensor) -> Output:
        bottleneck, decoded = self._encode_and_decode(images)
        return Output(
            logits=self.head(decoded),
            features=bottleneck.mean(dim=(2, 3)),
            deep=pool_3x3(bottleneck),
            head_input=decoded,
        )

    def _encode_and_decode(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the bottleneck and the last decoder level, computed as in MONAI's own forward."""
        self.check_size(*images.shape[-2:])
        net = self.net
        level_0 = net.conv_0(images)
        level_1 = net.down_1(level_0)
        level_2 = net.down_2(level_1)
        level_3 = net.down_3(level_2)
        bottleneck = net.down_4(level_3)
        decoded = net.upcat_4(bottleneck, level_3)
        decoded = net.upcat_3(decoded, level_2)
        decoded = net.upcat_2(decoded, level_1)
        decoded = net.upcat_1(decoded, level_0)
        return bottleneck, decoded

    def _skip_padding(self) -> None:
        """Skip MONAI's padding of odd sides, which copies every map even if there are none: 3 % of the time."""
        for level in (self.net.upcat_1, self.net.upcat_2, self.net.upcat_3, self.net.upcat_4):
            level.is_pad = False
