"""The U-Net of the segmentation presets: MONAI's BasicUNet."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from feal.models.base import MODELS, Network
from feal.settings import Task


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

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.check_size(*images.shape[-2:])
        logits: torch.Tensor = self.net(images)
        return logits
