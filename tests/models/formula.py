"""Weights and images by a formula, so that a network can be compared with outputs of the original."""

from __future__ import annotations

import json
import math
from typing import Any

import torch
from torch import nn

from feal.models import Network
from tests.paths import PROJECT


def read_golden(name: str) -> dict[str, Any]:
    """Return the golden numbers of a network."""
    return json.loads((PROJECT / "tests" / "golden" / name).read_text())


def waves(*shape: int) -> torch.Tensor:
    """0.5 + 0.5 sin(0.013 k + 0.0007 k^1.1) for the flat index k."""
    k = torch.arange(math.prod(shape), dtype=torch.float64)
    return (0.5 + 0.5 * torch.sin(0.013 * k + 0.0007 * k**1.1)).reshape(shape).float()


def fill_by_formula(network: Network, golden: dict[str, Any], images: torch.Tensor) -> None:
    """Give every tensor its values by its layer's place in the order of execution."""
    layers: list[nn.Module] = []
    kinds = (nn.Conv2d, nn.BatchNorm2d, nn.Linear) if "layers" in golden else nn.Conv2d
    hooks = [
        module.register_forward_pre_hook(lambda module, _: layers.append(module))
        for module in network.modules()
        if isinstance(module, kinds)
    ]
    with torch.no_grad():
        network.eval()(images)
    for hook in hooks:
        hook.remove()
    assert len(layers) == golden["tensors"][-1][0] + 1
    for number, name, shape in golden["tensors"]:
        tensor = getattr(layers[number], name)
        assert list(tensor.shape) == shape
        k = torch.arange(tensor.numel(), dtype=torch.float64)
        wave = torch.sin(golden["freq"] * (k + 1) + number)
        tensor.data = _scaled(wave, name, shape, isinstance(layers[number], nn.BatchNorm2d)).reshape(shape).float()


def _scaled(wave: torch.Tensor, name: str, shape: list[int], is_norm: bool) -> torch.Tensor:
    if name == "weight" and not is_norm:
        return 1.4 * math.sqrt(2 / math.prod(shape[1:])) * wave
    return {"weight": 1 + 0.1 * wave, "running_var": 1 + 0.5 * wave.abs()}.get(name, 0.05 * wave)
