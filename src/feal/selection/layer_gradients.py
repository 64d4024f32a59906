"""Norms of a layer's gradients, one a sample, from what went into it and what came back to its output."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.grad import conv2d_weight

from feal.models import Network

# At so few positions one call for all samples beats a call for each. Depthwise 5 x 5, 1,152 channels on
# 2 x 2 pixels: 0.6 instead of 4.0 ms a sample; 3 x 3, 32 channels on 32 x 32 pixels: 0.35 instead of 0.12.
_FEW_POSITIONS = 64


def covered_layers(network: Network) -> list[nn.Module] | None:
    """The layers that hold the network's parameters, or None if `layer_norms` does not know one of them."""
    layers = [module for module in network.modules() if next(module.parameters(recurse=False), None) is not None]
    held = sum(len(list(layer.parameters(recurse=False))) for layer in layers)
    shared = held > len(list(network.parameters()))
    return None if shared or not all(map(_is_covered, layers)) else layers


def _is_covered(layer: nn.Module) -> bool:
    if type(layer) is nn.Conv2d:
        return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    if type(layer) is nn.BatchNorm2d:
        # Statistics of the batch would tie its samples to each other.
        return not layer.training and layer.running_mean is not None
    return type(layer) is nn.Linear


def layer_norms(layer: nn.Module, inputs: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
    """The L2 norms of a layer's weight gradient and bias gradient, added, for each sample.

    Shapes: inputs [B, ...] and gradients (of the loss with respect to the layer's output) [B, ...] as the layer's
    forward has them; the result is float64 [B].
    Errors: TypeError for another layer than `Linear`, `Conv2d` and `BatchNorm2d`.

    >>> layer_norms(nn.Linear(2, 1), torch.tensor([[3.0, 4.0]]), torch.tensor([[2.0]]))
    tensor([12.], dtype=torch.float64)
    """
    if isinstance(layer, nn.Linear):
        rows = gradients.reshape(len(gradients), -1, layer.out_features)
        weight, bias = _product_norms(inputs.reshape(len(inputs), -1, layer.in_features), rows), rows.sum(1)
    elif isinstance(layer, nn.Conv2d):
        weight, bias = _convolution_norms(layer, inputs, gradients), gradients.sum((2, 3))
    elif isinstance(layer, nn.BatchNorm2d):
        normalised = F.batch_norm(inputs, layer.running_mean, layer.running_var, eps=layer.eps)
        weight, bias = _norms((normalised * gradients).sum((2, 3))), gradients.sum((2, 3))
    else:
        raise TypeError(f"no gradient norms for a layer of type {type(layer).__name__}")
    return weight if layer.bias is None else weight + _norms(bias)


def _convolution_norms(layer: nn.Conv2d, inputs: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
    positions = gradients[0, 0].numel()
    if layer.groups == 1:
        if layer.kernel_size == layer.stride == (1, 1) and layer.padding == (0, 0):
            return _product_norms(_by_position(inputs), _by_position(gradients))
        if _pairs_are_cheaper(positions, layer.weight[0].numel(), layer.out_channels):
            patches = F.unfold(inputs, layer.kernel_size, layer.dilation, _numbers(layer.padding), layer.stride)
            return _product_norms(patches.transpose(1, 2), _by_position(gradients))
    if positions <= _FEW_POSITIONS:
        return _norms(_weight_gradients(layer, inputs, gradients))
    return torch.cat(
        [
            _norms(_weight_gradients(layer, image, gradient))
            for image, gradient in zip(inputs.split(1), gradients.split(1), strict=True)
        ]
    )


def _weight_gradients(layer: nn.Conv2d, inputs: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
    """Each sample's [B, O, I, h, w], by one convolution in which every sample is a group of its own."""
    samples, (outputs, *rest) = len(inputs), layer.weight.shape
    weights: torch.Tensor = conv2d_weight(
        inputs.reshape(1, -1, *inputs.shape[2:]),
        (samples * outputs, *rest),
        gradients.reshape(1, -1, *gradients.shape[2:]),
        layer.stride,
        _numbers(layer.padding),
        layer.dilation,
        samples * layer.groups,
    )
    return weights.reshape(samples, outputs, *rest)


def _product_norms(inputs: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
    """||sum_l g_l a_l^T|| of inputs a [B, L, I] and gradients g [B, L, O].

    With few positions it comes from pairs of them, without the product: ||.||^2 = sum_lm (a_l . a_m)(g_l . g_m).
    """
    if _pairs_are_cheaper(inputs.size(1), inputs.size(2), gradients.size(2)):
        # The sum may cancel, and float32 would leave noise under the root.
        pairs = _gram(inputs.double()) * _gram(gradients.double())
        return pairs.sum((1, 2)).clamp_min(0).sqrt()
    return _norms(torch.bmm(gradients.transpose(1, 2), inputs))


def _pairs_are_cheaper(positions: int, inputs: int, outputs: int) -> bool:
    return positions * (inputs + outputs) < inputs * outputs or positions == 1


def _gram(rows: torch.Tensor) -> torch.Tensor:
    return torch.bmm(rows, rows.transpose(1, 2))


def _by_position(maps: torch.Tensor) -> torch.Tensor:
    """[B, channels, H, W] as [B, H * W, channels]: a view of channels-last maps."""
    return maps.permute(0, 2, 3, 1).flatten(1, 2)


def _numbers(padding: str | tuple[int, ...]) -> tuple[int, ...]:
    if isinstance(padding, str):
        raise TypeError(f"no gradient norms for a convolution with padding {padding!r}")
    return padding


def _norms(gradients: torch.Tensor) -> torch.Tensor:
    norms: torch.Tensor = torch.linalg.vector_norm(gradients.flatten(1), dim=1, dtype=torch.float64)
    return norms
