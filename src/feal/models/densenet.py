"""The classifier of the Fed-Camelyon preset: MONAI's DenseNet-121."""

import re
from typing import ClassVar

import torch
from torch import nn

from feal.models.base import MODELS
from feal.models.frozen import SplitClassifier
from feal.models.pretrained import DownloadedWeights, PublishedWeights

LATE, LAST = 9, 10
"""Numbers of MONAI's layers up to the third dense block, 1,024 channels at 1/16 of the image's size, and up to
the last one, which takes 512 channels at 1/32."""
TORCHVISION = DownloadedWeights("densenet-121", "https://download.pytorch.org/models/densenet121-a639ec97.pth")
"""The file that MONAI uses as well; MONAI's own loading silently skips what does not fit."""


@MODELS.register("densenet-121", summary="classification from 32 px: DenseNet-121, 7.0 M parameters")
class DenseNet121(SplitClassifier):
    """DenseNet-121, without dropout.

    `deep` is the third dense block (9,216 numbers), `features` the pooled last maps (1,024 numbers).
    """

    min_side: ClassVar[int] = 32
    imagenet_weights: ClassVar[PublishedWeights | None] = TORCHVISION
    lower_layers: ClassVar[tuple[str, ...]] = (
        "net.features.conv0",
        "net.features.norm0",
        *(f"net.features.{kind}{number}" for kind in ("denseblock", "transition") for number in (1, 2, 3)),
    )
    upper_layers: ClassVar[tuple[str, ...]] = ("net.features.denseblock4", "net.features.norm5")
    lower_channels: ClassVar[int] = 512
    lower_deep_size: ClassVar[int] = 1024 * 9

    def __init__(self, *, classes: int, channels: int) -> None:
        super().__init__(classes=classes, channels=channels)
        # MONAI takes more than a second to import, so it is imported where such a network is built.
        from monai.networks.nets.densenet import DenseNet121 as Monai

        self.net = Monai(spatial_dims=2, in_channels=channels, out_channels=classes)

    @property
    def head(self) -> nn.Linear:
        head = self.net.class_layers.out
        assert isinstance(head, nn.Linear)
        return head

    def run_lower(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        late = self.net.features[:LATE](images)
        return self.net.features[LATE:LAST](late), late

    def run_upper(self, maps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        last = self.net.features[LAST:](maps)
        features: torch.Tensor = self.net.class_layers[:-1](last)
        return features, maps

    def published_names(self, name: str) -> tuple[str, ...]:
        """Return torchvision's names, as its networks have them and as the published file does."""
        name = name.removeprefix("net.").replace("class_layers.out", "classifier")
        plain = name.replace(".layers.", ".")
        return plain, re.sub(r"(denselayer\d+\.(?:norm|conv))(\d)", r"\1.\2", plain)
