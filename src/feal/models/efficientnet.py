"""The paper's EfficientNet-B0: the layers, names and initial weights of timm's `efficientnet_b0`."""

import math
from typing import ClassVar

import torch
from pydantic import Field
from torch import nn

from feal.models.base import MODELS
from feal.models.frozen import SplitClassifier
from feal.models.pretrained import DownloadedWeights, PublishedWeights
from feal.registry import Parameters
from feal.settings import Task

STEM, LAST = 32, 1280
STAGES = (
    # repeats, kernel, stride, expansion, channels
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
LATE_STAGE, TAIL_STAGE = 5, 6
"""`deep` is the output of the stages before the first, 112 channels at 1/16 of the image's size; the tail starts
at the second, with 192 channels at 1/32."""

B0_WEIGHTS = DownloadedWeights(
    "efficientnet-b0",
    "https://github.com/huggingface/pytorch-image-models/releases/download/v0.1-weights/"
    "efficientnet_b0_ra-3dd342df.pth",
)


def convolution(channels: int, width: int, kernel: int = 1, *, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """Build a convolution without bias, padded by kernel // 2 on every side."""
    return nn.Conv2d(channels, width, kernel, stride, kernel // 2, groups=groups, bias=False)


class SqueezeExcite(nn.Module):
    """Scale each channel by a function of all channels' means."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.conv_reduce = nn.Conv2d(channels, width, 1)
        self.conv_expand = nn.Conv2d(width, channels, 1)
        self.act = nn.SiLU(inplace=True)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Return maps of the same shape [B, C, h, w]."""
        scale: torch.Tensor = self.conv_expand(self.act(self.conv_reduce(maps.mean((2, 3), keepdim=True))))
        return maps * scale.sigmoid()


class DropPath(nn.Module):
    """In training, drop whole images of a residual branch with a probability, and scale up the others."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Return maps of the same shape [B, C, h, w]."""
        if not self.training or self.probability == 0:
            return maps
        keep = 1 - self.probability
        return maps * maps.new_empty(len(maps), 1, 1, 1).bernoulli_(keep).div_(keep)


class DepthwiseSeparable(nn.Module):
    """Convolve each channel, squeeze and excite, project: a block without expansion."""

    def __init__(self, channels: int, width: int, *, kernel: int) -> None:
        super().__init__()
        self.conv_dw = convolution(channels, channels, kernel, groups=channels)
        self.bn1 = nn.BatchNorm2d(channels)
        self.se = SqueezeExcite(channels, channels // 4)
        self.conv_pw = convolution(channels, width)
        self.bn2 = nn.BatchNorm2d(width)
        self.act = nn.SiLU(inplace=True)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Return maps [B, width, h, w] of maps [B, channels, h, w]."""
        projected: torch.Tensor = self.bn2(self.conv_pw(self.se(self.act(self.bn1(self.conv_dw(maps))))))
        return projected


class InvertedResidual(nn.Module):
    """Expand, convolve each channel, squeeze and excite, project; add the input where shapes agree."""

    def __init__(
        self, channels: int, width: int, *, kernel: int, stride: int, expansion: int, drop_path: float
    ) -> None:
        super().__init__()
        inner = channels * expansion
        self.conv_pw = convolution(channels, inner)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv_dw = convolution(inner, inner, kernel, stride=stride, groups=inner)
        self.bn2 = nn.BatchNorm2d(inner)
        self.se = SqueezeExcite(inner, channels // 4)
        self.conv_pwl = convolution(inner, width)
        self.bn3 = nn.BatchNorm2d(width)
        self.act = nn.SiLU(inplace=True)
        self.drop_path = DropPath(drop_path) if stride == 1 and channels == width else None

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Return maps [B, width, h / stride, w / stride] of maps [B, channels, h, w]."""
        inner = self.act(self.bn2(self.conv_dw(self.act(self.bn1(self.conv_pw(maps))))))
        projected: torch.Tensor = self.bn3(self.conv_pwl(self.se(inner)))
        return projected if self.drop_path is None else self.drop_path(projected) + maps


@MODELS.register(
    "efficientnet-b0", summary="classification from 32 px: the paper's EfficientNet-B0, 4.0 M parameters"
)
class EfficientNetB0(SplitClassifier):
    """EfficientNet-B0 of the paper's code: no dropout or drop path, symmetric padding, batch norm with eps 1e-5.

    `deep` is the 112-channel stage (1,008 numbers), `features` the pooled last maps (1,280 numbers).
    """

    class Params(SplitClassifier.Params):
        """Regularisation in training."""

        dropout: float = Field(
            0.0, ge=0, lt=1, description="probability that a feature is dropped before the head"
        )
        drop_path: float = Field(
            0.0,
            ge=0,
            lt=1,
            description="probability that the last residual branch is dropped; linear from 0 before",
        )

    params: Params
    task: ClassVar[Task] = "classification"
    min_side: ClassVar[int] = 32
    folds_batch_norms: ClassVar[bool] = True
    imagenet_weights: ClassVar[PublishedWeights | None] = B0_WEIGHTS
    lower_layers: ClassVar[tuple[str, ...]] = (
        "conv_stem",
        "bn1",
        *(f"blocks.{stage}" for stage in range(TAIL_STAGE)),
    )
    upper_layers: ClassVar[tuple[str, ...]] = (f"blocks.{TAIL_STAGE}", "conv_head", "bn2")
    lower_channels: ClassVar[int] = 192
    lower_deep_size: ClassVar[int] = 112 * 9

    def __init__(self, *, classes: int, channels: int, params: Parameters | None = None) -> None:
        super().__init__(classes=classes, channels=channels, params=params)
        self.conv_stem = convolution(channels, STEM, 3, stride=2)
        self.bn1 = nn.BatchNorm2d(STEM)
        self.blocks = _build_blocks(self.params.drop_path)
        self.conv_head = convolution(STAGES[-1][-1], LAST)
        self.bn2 = nn.BatchNorm2d(LAST)
        self.act = nn.SiLU(inplace=True)
        self.dropout = nn.Dropout(self.params.dropout)
        self.classifier = nn.Linear(LAST, classes)
        _initialize(self)

    @property
    def head(self) -> nn.Linear:
        return self.classifier

    def run_lower(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        late = self.blocks[:LATE_STAGE](self.act(self.bn1(self.conv_stem(images))))
        return self.blocks[LATE_STAGE:TAIL_STAGE](late), late

    def run_upper(self, maps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        last = self.act(self.bn2(self.conv_head(self.blocks[TAIL_STAGE:](maps))))
        return last.mean((2, 3)), maps


def _build_blocks(drop_path: float) -> nn.Sequential:
    total = sum(repeats for repeats, *_ in STAGES)
    channels, number, stages = STEM, 0, []
    for repeats, kernel, stride, expansion, width in STAGES:
        stage: list[nn.Module] = []
        for repeat in range(repeats):
            stage.append(
                DepthwiseSeparable(channels, width, kernel=kernel)
                if expansion == 1
                else InvertedResidual(
                    channels,
                    width,
                    kernel=kernel,
                    stride=stride if repeat == 0 else 1,
                    expansion=expansion,
                    drop_path=drop_path * number / total,
                )
            )
            channels, number = width, number + 1
        stages.append(nn.Sequential(*stage))
    return nn.Sequential(*stages)


def _initialize(network: nn.Module) -> None:
    """Draw weights from N(0, 2 / fan_out), the last layer's from U(-1, 1) / sqrt(classes); biases are zero."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            fan_out = module.kernel_size[0] * module.kernel_size[1] * module.out_channels // module.groups
            nn.init.normal_(module.weight, std=math.sqrt(2 / fan_out))
        elif isinstance(module, nn.Linear):
            bound = 1 / math.sqrt(module.out_features)
            nn.init.uniform_(module.weight, -bound, bound)
        if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
