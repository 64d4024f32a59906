"""How strongly an unlabelled sample pulls at a network's parameters: norms of the entropy's gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import nn
from torch.func import functional_call

from feal.models import Network, Output
from feal.selection.layer_gradients import covered_layers, layer_norms

Probability = Callable[[torch.Tensor], torch.Tensor]
"""Class probabilities of logits, both [B, C, ...]; differentiable."""

CHUNK_PIXELS = 1 << 17
"""Pixels of the images that go through a network at a time: 32 of 64 x 64. It bounds what autograd keeps."""


def gradient_norms(
    network: Network, images: torch.Tensor, probability: Probability, *, chunk_pixels: int = CHUNK_PIXELS
) -> torch.Tensor:
    """For each image, the sum over all parameter tensors w of ||dH/dw||, H the entropy of the probabilities.

    In segmentation H is the pixel mean. The network is taken in the mode it is in (evaluation mode, where samples
    do not mix), and nothing is left on it: no `.grad`, no flag, no graph.

    A network all of whose parameters lie in linear layers, convolutions and batch norms is walked backwards
    once for many images, layer by layer; any other one once for each image.

    Shapes: images [B, channels, H, W]; the result is float64 [B].
    """
    if len(images) == 0:
        return torch.zeros(0, dtype=torch.float64)
    layers = covered_layers(network)
    together = None
    if layers is not None:
        chunks = images.split(max(1, chunk_pixels // images[0, 0].numel()))
        together = _chunk_norms(network, layers, chunks, probability)
    return _single_norms(network, images.split(1), probability) if together is None else together


def head_gradient_norms(head: nn.Linear | nn.Conv2d, output: Output, probability: Probability) -> torch.Tensor:
    """The same for the last layer's parameters alone, at the price of a forward pass.

    With delta = dH/dz (-p (log p + H) for the softmax) and h what the layer gets, a linear layer's is
    ||h|| ||delta|| + ||delta||.

    Shapes: as `Output` has them; the result is float64 [B].
    """
    # Whole maps in float64 are large: one image of them at a time.
    size = 1 if output.logits.dim() > 2 else max(1, len(output.logits))
    norms = []
    for logits, head_input in zip(output.logits.split(size), output.head_input.split(size), strict=True):
        direction, length = _polar(entropy_gradient(logits, probability))
        norms.append(length * layer_norms(head, head_input.detach().double(), direction))
    return torch.cat(norms)


def entropy_gradient(logits: torch.Tensor, probability: Probability) -> torch.Tensor:
    """dH/dz of each sample's entropy H = -sum_c p_c log p_c, over pixels their mean; finite where p is 0.

    Shapes: logits [B, C] or [B, C, H, W]; the result has the same shape, in float64.

    >>> entropy_gradient(torch.tensor([[0.0, 0.0], [0.0, 2000.0]]), partial(torch.softmax, dim=1)).abs()
    tensor([[0., 0.],
            [0., 0.]], dtype=torch.float64)
    """
    with torch.enable_grad():
        leaf = logits.detach().double().requires_grad_()
        p = probability(leaf)
    # The 1 of dH/dp = -(log p + 1) drops out, as p always sums to 1.
    slope = -p.detach().clamp_min(torch.finfo(p.dtype).tiny).log()
    (delta,) = torch.autograd.grad(p, leaf, slope)
    return delta / logits.shape[2:].numel()


def _polar(delta: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Direction and length of each sample's delta.

    Gradients are linear in delta: a network in float32 carries the direction, and no confident sample's tiny
    length is lost on the way.
    """
    length = torch.linalg.vector_norm(delta.flatten(1), dim=1)
    shape = (-1, *[1] * (delta.dim() - 1))
    return delta / length.clamp_min(torch.finfo(delta.dtype).tiny).reshape(shape), length


def _chunk_norms(
    network: Network, layers: Sequence[nn.Module], chunks: Sequence[torch.Tensor], probability: Probability
) -> torch.Tensor | None:
    """Layer by layer for a chunk at a time; None if a layer is not used exactly once."""
    norms = []
    for images in chunks:
        walk = _Walk(len(images), images.device)
        handles = [layer.register_forward_hook(walk.forwards) for layer in layers]
        try:
            with torch.enable_grad():
                leaf = images.detach().requires_grad_()
                logits = network(leaf)
        finally:
            for handle in handles:
                handle.remove()
        direction, length = _polar(entropy_gradient(logits, probability))
        # Asked for the images' gradient alone, autograd computes no parameter's.
        torch.autograd.grad(logits, leaf, direction.to(logits.dtype))
        if walk.visits != dict.fromkeys(layers, 1):
            return None
        norms.append(length * walk.norms)
    return torch.cat(norms)


class _Walk:
    """Gathers every layer's norms while autograd walks back through it."""

    def __init__(self, samples: int, device: torch.device) -> None:
        self.norms = torch.zeros(samples, dtype=torch.float64, device=device)
        self.visits: dict[nn.Module, int] = {}

    def forwards(self, layer: nn.Module, given: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
        # A hook on a view would not survive an activation in place.
        output = output.clone() if output._is_view() else output
        output.register_hook(partial(self._backwards, layer, given[0].detach()))
        return output

    def _backwards(self, layer: nn.Module, inputs: torch.Tensor, gradients: torch.Tensor) -> None:
        self.visits[layer] = self.visits.get(layer, 0) + 1
        with torch.no_grad():
            self.norms += layer_norms(layer, inputs, gradients)


def _single_norms(network: Network, images: Sequence[torch.Tensor], probability: Probability) -> torch.Tensor:
    """One pass forwards and one backwards for each image."""
    # Copies that share the numbers and nothing else: the network's own parameters take no part.
    parameters = {name: value.detach().requires_grad_() for name, value in network.named_parameters()}
    norms = []
    for image in images:
        with torch.enable_grad():
            logits: torch.Tensor = functional_call(network, parameters, (image.detach(),))
        direction, length = _polar(entropy_gradient(logits, probability))
        gradients = torch.autograd.grad(
            logits, list(parameters.values()), direction.to(logits.dtype), allow_unused=True
        )
        sizes = [torch.linalg.vector_norm(each, dtype=torch.float64) for each in gradients if each is not None]
        norms.append(length[0] * torch.stack(sizes).sum())
    return torch.stack(norms)
