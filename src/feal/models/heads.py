"""Heads on a frozen encoder's features: ridge, linear and two-layer, for classification and segmentation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from feal.models.base import MODELS, Network, Output, pool_3x3
from feal.models.encoders import Encoder, EncoderParams
from feal.models.projection import project
from feal.registry import Parameters
from feal.settings import Task, Trainable

PROJECTION = "projection."
"""How names of the projection's tensors begin in the initial weights of a run."""
RIDGE_CHOICE = "penalty", "temperature"
"""Buffers of a ridge head: what leave-one-out chose."""
_DECODER = (64, 32)
"""Channels of the decoder's two steps."""


class _Projection(nn.Module):
    """Hold the tensors of `fit_projection`, filled when a run starts."""

    mean: Tensor
    scale: Tensor
    components: Tensor

    def __init__(self, components: int) -> None:
        super().__init__()
        for name, shape in (("mean", (0,)), ("scale", (0,)), ("components", (0, components))):
            self.register_buffer(name, torch.zeros(shape))

    def forward(self, features: Tensor) -> Tensor:
        return project(features, dict(self.named_buffers()))


@MODELS.register("frozen", summary="both tasks: a ridge, linear or two-layer head on a frozen encoder's features")
class FrozenNetwork(Network):
    """An encoder that is never trained, a projection of its features that is fitted once, and a head.

    Sites run the encoder once, see `feal.federation.site.projection`; the network reduced to its `head` takes the
    projected features, [B, D], or maps [B, D, h, w] in segmentation. All features of its `Output` are those, the
    two-layer head's `features` the hidden ones; in segmentation `outputs` are of the maps' size and `forward`
    enlarges the logits to the image's.
    """

    class Params(Network.Params, EncoderParams):
        """The encoder, and what is fitted on its features."""

        head: Literal["ridge", "linear", "mlp"] = Field(
            "ridge",
            description="ridge: in closed form, one exchange of sums a round; linear or mlp: by FedAvg; in "
            "segmentation mlp is a small convolutional decoder",
        )
        components: Annotated[int, Field(ge=2, le=4096)] = Field(
            256, description="principal components of the standardised features that the head takes"
        )
        hidden: Annotated[int, Field(ge=2, le=4096)] = Field(256, description="hidden numbers of head=mlp")
        lambda_: Annotated[float, Field(gt=0, le=1e3)] | Literal["loo"] = Field(
            "loo", alias="lambda", description="penalty of head=ridge: a number, or loo: by leave-one-out"
        )
        temperature: Annotated[float, Field(gt=0, le=1e3)] | Literal["loo"] = Field(
            "loo",
            description="factor of head=ridge's scores before the softmax: a number, or loo: by leave-one-out",
        )

        balance: Annotated[float, Field(ge=0, le=1)] | None = Field(
            None,
            description="head=ridge weighs a sample, or pixel, of class c by n_c ** -balance: 0 alike, 1 so that "
            "classes count alike; by default 1 in classification and 0.5 in segmentation, where 1 costs Dice",
        )

        def find_balance(self, task: Task) -> float:
            """Return `balance`, or the task's default."""
            default = 1.0 if task == "classification" else 0.5
            return default if self.balance is None else self.balance

    params: Params
    task: Task  # type: ignore[misc]  # that of the data
    tasks: ClassVar[tuple[Task, ...]] = ("classification", "segmentation")
    trainable_parts: ClassVar[tuple[Trainable, ...]] = ("head",)
    has_encoder: ClassVar[bool] = True

    def __init__(self, *, classes: int, channels: int, params: Parameters | None = None) -> None:
        super().__init__(classes=classes, channels=channels, params=params)
        self.projection: nn.Module = _Projection(self.params.components)
        self._encoder: Encoder | None = None
        self._size = (0, 0)

    def set_images(self, *, task: Task, height: int, width: int) -> None:
        """Build the head for the task; the output of segmentation is enlarged to this size."""
        self.task = task
        self._size = (height, width)
        width_in, classes = self.params.components, self.classes
        self.body: nn.Module = nn.Identity()
        if self.params.head == "mlp" and task == "classification":
            self.body = nn.Sequential(nn.Linear(width_in, self.params.hidden), nn.ReLU())
            width_in = self.params.hidden
        elif self.params.head == "mlp":
            self.body = _Decoder(width_in)
            width_in = _DECODER[-1]
        self.last: nn.Linear | nn.Conv2d = (
            nn.Linear(width_in, classes) if task == "classification" else nn.Conv2d(width_in, classes, 1)
        )
        if self.params.head == "ridge":
            for name in RIDGE_CHOICE:
                self.register_buffer(name, torch.zeros(1, dtype=torch.float64))
        if self.params.head != "mlp":
            # The first steps of a linear head from zero depend on the data alone.
            nn.init.zeros_(self.last.weight)
            if self.last.bias is not None:
                nn.init.zeros_(self.last.bias)

    @property
    def head(self) -> nn.Linear | nn.Conv2d:
        return self.last

    def forward(self, images: Tensor) -> Tensor:
        logits = self.outputs(images).logits
        if self.task == "classification":
            return logits
        return F.interpolate(logits, size=self._size, mode="bilinear", align_corners=False)

    def outputs(self, images: Tensor) -> Output:
        inputs = (images if self.part == "head" else self._encode(images)).float()
        head_input = self.body(inputs)
        logits = self.last(head_input)
        if self.task == "classification":
            return Output(logits=logits, features=head_input, deep=inputs, head_input=head_input)
        return Output(logits=logits, features=inputs.mean((2, 3)), deep=pool_3x3(inputs), head_input=head_input)

    def keep_part(self, part: Trainable) -> Self:
        super().keep_part(part).part = part
        if part == "head":
            self.projection = nn.Identity()
        return self

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load weights; the head alone leaves out the projection, whose size is that of the tensors."""
        if self.part == "head":
            own = {name: tensor for name, tensor in state_dict.items() if not name.startswith(PROJECTION)}
            return super().load_state_dict(own, strict, assign)
        for name in ("mean", "scale", "components"):
            tensor = state_dict.get(f"{PROJECTION}{name}")
            if tensor is not None:
                setattr(self.projection, name, tensor.clone())
        return super().load_state_dict(state_dict, strict, assign)

    def _encode(self, images: Tensor) -> Tensor:
        if self._encoder is None:
            threads = torch.get_num_threads()
            self._encoder = Encoder(self.params, task=self.task, threads=threads)
        projected: Tensor = self.projection(self._encoder(images.cpu()))
        return projected.to(self.last.weight.device)


class _Decoder(nn.Module):
    """Two steps of a 3 x 3 convolution and instance norm, each after the size is doubled."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.steps = nn.ModuleList()
        for width in _DECODER:
            self.steps.append(nn.Conv2d(channels, width, 3, padding=1, bias=False))
            self.steps.append(nn.InstanceNorm2d(width, affine=True))
            channels = width

    def forward(self, maps: Tensor) -> Tensor:
        for convolution, norm in zip(self.steps[::2], self.steps[1::2], strict=True):
            maps = F.interpolate(maps, scale_factor=2.0, mode="bilinear", align_corners=False)
            maps = F.leaky_relu(norm(convolution(maps)), 0.1)
        return maps


def find_fixed(value: float | str) -> float | None:
    """Return a parameter's value; None if leave-one-out chooses it.

    >>> find_fixed("loo"), find_fixed(0.1)
    (None, 0.1)
    """
    return None if value == "loo" else float(value)
