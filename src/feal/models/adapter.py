"""Find the last layer and the features of any `torch.nn.Module` by observing it run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn

from feal.errors import FealError
from feal.models.base import Network, Output, pool_3x3
from feal.settings import Task

Hook = Callable[[nn.Module, Any, Any], None]


class ObservedLayers(NamedTuple):
    """Names of the layers that an `Output` is taken from."""

    head: str
    """The last layer, which produces the logits."""
    deep: str
    """The layer whose map is pooled to `deep`; empty where there is none."""


class ModuleAdapter(Network):
    """Present a plain module `images -> logits` as a `Network`.

    The first batch is observed once: the last linear or convolution layer that ran and produced the logits is the
    head, its input the features. In classification `deep` is the last map before the head that is larger than one
    pixel; in segmentation `features` and `deep` come from the map with the fewest pixels, the bottleneck. A
    module without maps (on vectors, say) has its features as `deep`.

    Shapes:
        module: images `[B, ...]` to logits `[B, C]` or `[B, C, H, W]`.

    Raises:
        FealError: the logits have another shape, or no layer of the module produces them.

    Example:
        >>> from torch import nn
        >>> pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), pool, nn.Linear(4, 2))
        >>> output = ModuleAdapter(net).outputs(torch.zeros(5, 3, 8, 8))
        >>> [tuple(part.shape) for part in output]
        [(5, 2), (5, 4), (5, 36), (5, 4)]
    """

    task: Task  # type: ignore[misc]  # known once the module has run

    def __init__(self, module: nn.Module) -> None:
        super().__init__(classes=0, channels=0)
        self.module = module

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.module(images)
        return logits

    def outputs(self, images: torch.Tensor) -> Output:
        output = super().outputs(images)
        self.classes = output.logits.shape[1]
        self.task = "classification" if output.logits.dim() == 2 else "segmentation"
        return output


def head_of(module: nn.Module, observed: ObservedLayers | None) -> nn.Linear | nn.Conv2d:
    """Return the last layer of a module that was observed."""
    if observed is None:
        raise RuntimeError("the last layer is found in the first call of `outputs`: call it once before")
    layer = module.get_submodule(observed.head)
    assert isinstance(layer, nn.Linear | nn.Conv2d)
    return layer


def observe(module: nn.Module, images: torch.Tensor, layers: ObservedLayers) -> Output:
    """Run a module on images and return its `Output`, taken from these layers."""
    caught: dict[str, torch.Tensor] = {}

    def catch_input(_: nn.Module, inputs: Any, __: Any) -> None:
        caught["head_input"] = inputs[0]

    def catch_map(_: nn.Module, __: Any, output: Any) -> None:
        caught["map"] = output

    hooks: dict[str, Hook] = {layers.deep: catch_map} if layers.deep else {}
    with _hooked(module, {**hooks, layers.head: catch_input}):
        logits = module(images)
    head_input = caught["head_input"]
    deep = pool_3x3(caught["map"]) if layers.deep else head_input.flatten(1)
    if logits.dim() == 2:
        return Output(logits=logits, features=head_input, deep=deep, head_input=head_input)
    features = caught["map"].mean((2, 3)) if layers.deep else head_input.mean((2, 3))
    return Output(logits=logits, features=features, deep=deep, head_input=head_input)


@torch.no_grad()
def find_layers(module: nn.Module, images: torch.Tensor) -> ObservedLayers:
    """Run a module once and find which of its layers is the head and which gives the deep map.

    Raises:
        FealError: the logits are neither [B, C] nor [B, C, H, W], or no layer produces them.
    """
    ran: list[tuple[str, nn.Module, torch.Tensor]] = []

    def record(name: str) -> Hook:
        def hook(layer: nn.Module, _: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor):
                ran.append((name, layer, output))

        return hook

    leaves = [name for name, layer in module.named_modules() if name and not any(layer.children())]
    with _hooked(module, {name: record(name) for name in leaves}):
        logits = module(images)
    if not isinstance(logits, torch.Tensor) or logits.dim() not in (2, 4):
        raise FealError("The model must return logits [batch, classes] or [batch, classes, height, width].")
    heads = [
        number
        for number, (_, layer, output) in enumerate(ran)
        if isinstance(layer, nn.Linear | nn.Conv2d) and output.shape[1] == logits.shape[1]
    ]
    if not heads:
        raise FealError("No linear or convolution layer of the model gives its logits: make one the last layer.")
    maps = [(name, output[0, 0].numel()) for name, _, output in ran[: heads[-1]] if output.dim() == 4]
    if logits.dim() == 4:
        fewest = min((pixels for _, pixels in maps), default=0)
        maps = [(name, pixels) for name, pixels in maps if pixels == fewest]
    else:
        maps = [(name, pixels) for name, pixels in maps if pixels > 1]
    return ObservedLayers(head=ran[heads[-1]][0], deep=maps[-1][0] if maps else "")


@contextmanager
def _hooked(module: nn.Module, hooks: Mapping[str, Hook]) -> Iterator[None]:
    """Call a hook after each of these layers, by their names."""
    handles = [module.get_submodule(name).register_forward_hook(hook) for name, hook in hooks.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
