"""The classifier of the Fed-ISIC preset: MONAI's EfficientNet-B0."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from feal.models.network import MODELS, Network
from feal.models.output import Output, pool3x3
from feal.settings import Task

LATE_STAGE = 5
"""`deep` is taken after so many stages of blocks: 112 channels at 1/16 of the image's size."""

# MONAI's 0.01 needs thousands of steps to reach the true statistics: from random weights, 100 steps left the
# network at chance and its features constant to 1e-9 in evaluation mode, at 0.91 accuracy in training mode.
MOMENTUM = 0.1


@MODELS.register("efficientnet-b0", summary="classification from 32 px: EfficientNet-B0, 4.0 M parameters")
class EfficientNetB0(Network):
    """EfficientNet-B0 with random weights, dropout and drop-connect 0.2.

    `deep` is the 112-channel stage (1,008 numbers), `features` the pooled last maps (1,280 numbers).
    """

    task: ClassVar[Task] = "classification"
    smallest: ClassVar[int] = 32

    def __init__(self, *, classes: int, channels: int) -> None:
        super().__init__(classes=classes, channels=channels)
        # MONAI takes more than a second to import: only who builds such a network waits for it.
        from monai.networks.nets.efficientnet import EfficientNetBN

        self.net = EfficientNetBN(
            "efficientnet-b0",
            pretrained=False,
            in_channels=channels,
            num_classes=classes,
            norm=("batch", {"eps": 1e-3, "momentum": MOMENTUM}),
        )

    @property
    def head(self) -> nn.Linear:
        return self.net._fc

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.net(images)
        return logits

    def outputs(self, images: torch.Tensor) -> Output:
        net = self.net
        late = self._late_stage(images)
        features = self._features(late)
        head_input = net._dropout(features)
        return Output(
            logits=net._fc(head_input),
            features=features,
            deep=pool3x3(late),
            head_input=head_input,
        )

    def _late_stage(self, images: torch.Tensor) -> torch.Tensor:
        net = self.net
        stem = net._swish(net._bn0(net._conv_stem(net._conv_stem_padding(images))))
        late: torch.Tensor = net._blocks[:LATE_STAGE](stem)
        return late

    def _features(self, late: torch.Tensor) -> torch.Tensor:
        net = self.net
        maps = net._blocks[LATE_STAGE:](late)
        maps = net._swish(net._bn1(net._conv_head(net._conv_head_padding(maps))))
        features: torch.Tensor = net._avg_pooling(maps).flatten(start_dim=1)
        return features
