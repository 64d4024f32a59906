"""The contract of a network, and any module as such a network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from feal.errors import FealError
from feal.registry import Parameters, Registry
from feal.settings import Task, Trainable

if TYPE_CHECKING:
    from feal.models.pretrained import PublishedWeights


class Output(NamedTuple):
    """Everything a selection strategy may need from one forward pass over `B` images.

    Shapes:
        logits: `[B, C]`, or `[B, C, H, W]` in segmentation.
        features: `[B, D]`, the pooled features before the last layer; in segmentation the pooled bottleneck.
        deep: `[B, channels * 9]`, a middle-to-late block pooled to 3 x 3, see `pool_3x3`.
        head_input: the input of the last layer, `[B, D]`, or `[B, channels, H, W]` in segmentation.

    In classification `head_input` is `features` after dropout: the same numbers in evaluation mode.
    """

    logits: Tensor
    features: Tensor
    deep: Tensor
    head_input: Tensor


def pool_3x3(maps: Tensor) -> Tensor:
    """Average the maps `[B, channels, H, W]` over a 3 x 3 grid and flatten them to `[B, channels * 9]`.

    A side that 3 does not divide gives cells that overlap by a row or column, as in the authors' code.

    >>> pool_3x3(torch.arange(16.0).reshape(1, 1, 4, 4))
    tensor([[ 2.5000,  3.5000,  4.5000,  6.5000,  7.5000,  8.5000, 10.5000, 11.5000,
             12.5000]])
    """
    if torch.onnx.is_in_onnx_export():  # ONNX cannot pool to a size that does not divide that of the maps
        down, across = (
            [slice(cell * side // 3, -(-(cell + 1) * side // 3)) for cell in range(3)]
            for side in map(int, maps.shape[2:])
        )
        cells = [maps[:, :, rows, columns].mean((2, 3)) for rows in down for columns in across]
        return torch.stack(cells, dim=2).flatten(1)
    return F.adaptive_avg_pool2d(maps, 3).flatten(1)


class Network(nn.Module, ABC):
    """A network that gives logits for training and an `Output` for selection.

    A subclass sets `task`, builds its layers from `classes` and `channels` with torch's global generator, and
    defines `forward`. `head` and `outputs` are then found by observing a forward pass; a subclass that knows them
    better overrides both. Parameters are declared in a nested `Params` and given to the constructor as
    `params`. The memory format of the images is kept: channels-last images make a channels-last forward pass.
    """

    class Params(Parameters):
        """No parameters."""

    params: Params
    task: ClassVar[Task]
    tasks: ClassVar[tuple[Task, ...]] = ()
    """The tasks of a network that adapts to its data; empty for one of `task` alone."""
    has_encoder: ClassVar[bool] = False
    """Whether its head is fitted on the projected features of a frozen encoder, see `FrozenNetwork`."""
    min_side: ClassVar[int] = 1
    """Shortest side of an image, in pixels."""
    side_multiple: ClassVar[int] = 1
    """Number that both sides of an image must be a multiple of."""
    trainable_parts: ClassVar[tuple[Trainable, ...]] = ()
    """Parts that can be trained alone, on the outputs of a frozen trunk below, see `SplitClassifier`."""
    folds_batch_norms: ClassVar[bool] = False
    """Whether every batch norm that is defined next after a convolution takes that one's output, and nothing else
    does: both are then one layer in evaluation, see `fold_batch_norms`."""
    imagenet_weights: ClassVar[PublishedWeights | None] = None
    """Published weights that were trained on ImageNet."""
    layers_without_weights: ClassVar[tuple[str, ...]] = ()
    """Name prefixes of layers that published weights do not have; these stay random."""
    weights_without_layers: ClassVar[tuple[str, ...]] = ()
    """Name prefixes of published tensors that the network has no layer for."""

    def __init__(self, *, classes: int, channels: int, params: Parameters | None = None) -> None:
        super().__init__()
        self.params = self.Params() if params is None else params  # type: ignore[assignment]
        self.classes = classes
        self.channels = channels
        self.part: Trainable = "all"
        self._layers: _Layers | None = None

    def set_images(self, *, task: Task, height: int, width: int) -> None:
        """Take note of the task and the size of the images, after construction."""

    @abstractmethod
    def forward(self, images: Tensor) -> Tensor:
        """Return the logits `[B, C]` or `[B, C, H, W]` of images `[B, channels, H, W]`."""

    @property
    def head(self) -> nn.Linear | nn.Conv2d:
        """The last layer: `head(output.head_input)` is `output.logits`."""
        if self._layers is None:
            raise RuntimeError("the last layer is found in the first call of `outputs`: call it once before")
        layer = self.get_submodule(self._layers.head)
        assert isinstance(layer, nn.Linear | nn.Conv2d)
        return layer

    def outputs(self, images: Tensor) -> Output:
        """Return logits and features of images `[B, channels, H, W]`, all from one forward pass.

        The last linear or convolution layer that produced the logits is the head, its input the features. In
        classification `deep` is the last map before the head that is larger than one pixel; in segmentation
        `features` and `deep` come from the map with the fewest pixels, the bottleneck. A network without maps (on
        vectors, say) has its features as `deep`.

        Raises:
            FealError: the logits are neither `[B, C]` nor `[B, C, H, W]`, or no layer produces them.
        """
        if self._layers is None:
            leaves = [name for name, layer in self.named_modules() if name and not any(layer.children())]
            logits, calls = _record_calls(self, images, leaves)
            self._layers = _find_layers(logits, calls)
        else:
            logits, calls = _record_calls(self, images, filter(None, self._layers))
        last = {call.name: call for call in calls}
        head_input = last[self._layers.head].inputs[0]
        maps = last[self._layers.deep].output if self._layers.deep else None
        features = head_input
        if logits.dim() == 4:
            features = (head_input if maps is None else maps).mean((2, 3))
        deep = head_input.flatten(1) if maps is None else pool_3x3(maps)
        return Output(logits=logits, features=features, deep=deep, head_input=head_input)

    def run_trunk(self, images: Tensor, *, part: Trainable) -> Tensor:
        """Return what the network reduced to `part` takes in place of these images; for `all` the images."""
        self._check_part(part)
        return images

    def keep_part(self, part: Trainable) -> Self:
        """Remove the layers below `part`, in place; a network without such a part is a `FealError`."""
        self._check_part(part)
        return self

    def published_names(self, name: str) -> tuple[str, ...]:
        """Return what published files call the tensor `name`, where their names differ."""
        return ()

    @classmethod
    def check_size(cls, height: int, width: int) -> None:
        """Raise a `FealError` if the network does not take images of that size."""
        if any(side < cls.min_side or side % cls.side_multiple for side in (height, width)):
            multiples = f"multiples of {cls.side_multiple} and " if cls.side_multiple > 1 else ""
            raise FealError(
                f"{cls.__name__} cannot take images of {width} x {height} pixels: "
                f"pad, crop or resize them so that both sides are {multiples}at least {cls.min_side}."
            )

    @classmethod
    def check_trunk(cls, part: Trainable, *, height: int, width: int) -> None:
        """Raise a `FealError` if the outputs of the layers below `part` cannot replace images of that size."""
        del height, width
        cls._check_part(part)

    @classmethod
    def _check_part(cls, part: Trainable) -> None:
        parts = ("all", *cls.trainable_parts)
        if part not in parts:
            raise FealError(
                f"{cls.__name__} has no {part} that can be trained alone: "
                f"set training.trainable to {' or '.join(parts)}."
            )


class ModuleAdapter(Network):
    """Present a plain module `images -> logits` as a `Network`, whose layers are found by its first batch.

    >>> import torch
    >>> pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), pool, nn.Linear(4, 2))
    >>> [tuple(part.shape) for part in ModuleAdapter(net).outputs(torch.zeros(5, 3, 8, 8))]
    [(5, 2), (5, 4), (5, 36), (5, 4)]
    """

    task: Task  # type: ignore[misc]  # known once the module has run

    def __init__(self, module: nn.Module) -> None:
        super().__init__(classes=0, channels=0)
        self.module = module

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.module(images)
        return logits

    def outputs(self, images: Tensor) -> Output:
        output = super().outputs(images)
        self.classes = output.logits.shape[1]
        self.task = "classification" if output.logits.dim() == 2 else "segmentation"
        return output


class _Layers(NamedTuple):
    """Names of the layers that an `Output` is taken from."""

    head: str
    deep: str
    """The layer whose map is pooled; empty where there is none."""


class _Call(NamedTuple):
    name: str
    layer: nn.Module
    inputs: tuple[Any, ...]
    output: Tensor


def _record_calls(network: Network, images: Tensor, names: Iterable[str]) -> tuple[Any, list[_Call]]:
    """Run a network and return its logits with the calls of these layers, in the order they ran."""
    calls: list[_Call] = []

    def record(name: str, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if isinstance(output, Tensor):
            calls.append(_Call(name, layer, inputs, output))

    with ExitStack() as hooks:
        for name in names:
            layer = network.get_submodule(name)
            hooks.enter_context(layer.register_forward_hook(partial(record, name)))
        return network(images), calls


def _find_layers(logits: Any, calls: list[_Call]) -> _Layers:
    if not isinstance(logits, Tensor) or logits.dim() not in (2, 4):
        raise FealError("The model must return logits [batch, classes] or [batch, classes, height, width].")
    heads = [
        number
        for number, call in enumerate(calls)
        if isinstance(call.layer, nn.Linear | nn.Conv2d) and call.output.shape[1] == logits.shape[1]
    ]
    if not heads:
        raise FealError("No linear or convolution layer of the model gives its logits: make one the last layer.")
    maps = [(call.name, call.output[0, 0].numel()) for call in calls[: heads[-1]] if call.output.dim() == 4]
    if logits.dim() == 4:
        fewest = min((pixels for _, pixels in maps), default=0)
        maps = [(name, pixels) for name, pixels in maps if pixels == fewest]
    else:
        maps = [(name, pixels) for name, pixels in maps if pixels > 1]
    return _Layers(head=calls[heads[-1]].name, deep=maps[-1][0] if maps else "")


MODELS: Registry[type[Network]] = Registry("model")
