"""Norms of the gradient of the prediction's entropy H with respect to a network's parameters, one a sample."""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

import torch
from torch import Tensor, nn
from torch.nn.grad import conv2d_weight

from feal.models import Network, Output

Probability = Callable[[Tensor], Tensor]  # differentiable class probabilities of logits, both [B, C, ...]
CHUNK_PIXELS = 1 << 17  # of the images in a network at a time, 32 of 64 x 64: bounds what autograd keeps
FEW_POSITIONS = 64  # of a convolution's output, up to which one call for all samples beats a call for each


def gradient_norms(network: Network, images: Tensor, probability: Probability) -> Tensor:
    """Return for each image the sum over parameter tensors w of ||dH/dw||; in segmentation H is the pixel mean.

    The network is taken in the mode it is in (evaluation mode, where samples do not mix) and left unchanged. With
    only linear layers, convolutions and batch norms, one backward pass serves many images; else there is one each.
    Shapes: images [B, channels, H, W]; the result is float64 [B].
    """
    if len(images) == 0:
        return torch.zeros(0, dtype=torch.float64)
    if not (layers := supported_layers(network)):
        return _single_norms(network, images, probability)
    chunks = images.split(max(1, CHUNK_PIXELS // images[0, 0].numel()))
    return torch.cat([_chunk_norms(network, layers, chunk, probability) for chunk in chunks])


def head_gradient_norms(head: nn.Linear | nn.Conv2d, output: Output, probability: Probability) -> Tensor:
    """Return the norms [B] of the last layer alone: (||h|| + 1) ||dH/dz|| if it is linear with input h."""
    norms, size = [], 1 if output.logits.dim() > 2 else max(1, len(output.logits))  # float64 maps are large
    for logits, inputs in zip(output.logits.split(size), output.head_input.split(size), strict=True):
        direction, length = entropy_gradient(logits, probability)
        norms.append(length * layer_norms(head, inputs.detach().double(), direction))
    return torch.cat(norms)


def entropy_gradient(logits: Tensor, probability: Probability) -> tuple[Tensor, Tensor]:
    """Return direction [B, C, ...] and length [B] of dH/dz: a sure sample's length is too small for float32."""
    with torch.enable_grad():
        p = probability(leaf := logits.detach().double().requires_grad_())
    tiny = torch.finfo(p.dtype).tiny  # keeps the logarithm finite where p is 0
    slope = -p.detach().clamp_min(tiny).log()  # of dH/dp = -(log p + 1) the 1 drops out, as p sums to 1
    gradient = torch.autograd.grad(p, leaf, slope)[0] / logits.shape[2:].numel()
    length = _norms(gradient)
    return gradient / length.clamp_min(tiny).reshape(-1, *[1] * (gradient.dim() - 1)), length


def _single_norms(network: Network, images: Tensor, probability: Probability) -> Tensor:
    """Compute the norms by one backward pass for each image, to copies that share the parameters' numbers."""
    parameters = {name: value.detach().requires_grad_() for name, value in network.named_parameters()}
    copies, norms = tuple(parameters.values()), []
    for image in images.split(1):
        with torch.enable_grad():
            logits = torch.func.functional_call(network, parameters, (image.detach(),))
        direction, length = entropy_gradient(logits, probability)
        gradients = torch.autograd.grad(logits, copies, direction.to(logits.dtype), allow_unused=True)
        norms.append(length * torch.cat([_norms(each[None]) for each in gradients if each is not None]).sum())
    return torch.cat(norms)


def _chunk_norms(network: Network, layers: list[nn.Module], images: Tensor, probability: Probability) -> Tensor:
    """Compute the norms layer by layer in one backward pass, or image by image if a layer is not used once."""
    uses, norms = Counter[nn.Module](), list[Tensor]()

    def follow(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        uses[layer] += 1
        before, output = inputs[0].detach(), output.clone() if output._is_view() else output
        output.register_hook(lambda gradients: norms.append(layer_norms(layer, before, gradients)))
        return output  # a copy of a view, whose hook would be lost when it is changed in place

    with ExitStack() as hooks, torch.enable_grad():
        for layer in layers:
            hooks.enter_context(layer.register_forward_hook(follow))
        logits = network(leaf := images.detach().requires_grad_())
    if uses != Counter(layers):
        return _single_norms(network, images, probability)
    direction, length = entropy_gradient(logits, probability)
    torch.autograd.grad(logits, leaf, direction.to(logits.dtype))  # of the images alone, not of the parameters
    return length * sum(norms)


def supported_layers(network: Network) -> list[nn.Module]:
    """Return the layers that hold the parameters; none if one is of an unknown kind, or shares its parameters."""
    layers = [module for module in network.modules() if next(module.parameters(recurse=False), None) is not None]
    is_shared = sum(len(list(each.parameters(recurse=False))) for each in layers) > len(list(network.parameters()))
    return [] if is_shared or not all(map(_is_supported, layers)) else layers


def _is_supported(layer: nn.Module) -> bool:
    if type(layer) is nn.Conv2d:
        return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    if type(layer) is nn.BatchNorm2d:  # statistics of the batch would tie its samples to each other
        return not layer.training and layer.running_mean is not None
    return type(layer) is nn.Linear


def layer_norms(layer: nn.Module, inputs: Tensor, gradients: Tensor) -> Tensor:
    """Return the norms [B] of a layer's weight and bias gradients, added, from its inputs and output gradients."""
    if isinstance(layer, nn.Linear):
        gradients = gradients.reshape(len(gradients), -1, layer.out_features).transpose(1, 2)
        weight = _pair_norms(inputs.reshape(len(inputs), -1, layer.in_features), gradients)
    elif isinstance(layer, nn.BatchNorm2d):
        normalised = nn.functional.batch_norm(inputs, layer.running_mean, layer.running_var, eps=layer.eps)
        weight = _norms((normalised * gradients).sum((2, 3)))
    elif isinstance(layer, nn.Conv2d) and not isinstance(layer.padding, str):
        shape, positions, width = layer.weight.shape, gradients[0, 0].numel(), layer.weight[0].numel()
        if layer.groups == 1 and positions * (width + shape[0]) < width * shape[0]:  # pairs are cheaper
            patches = nn.functional.unfold(inputs, shape[2:], layer.dilation, layer.padding, layer.stride)
            weight = _pair_norms(patches.transpose(1, 2), gradients.flatten(2))
        else:
            options = layer.stride, layer.padding, layer.dilation, layer.groups
            size = None if positions <= FEW_POSITIONS else 1
            weights = torch.func.vmap(lambda a, g: conv2d_weight(a, shape, g, *options), chunk_size=size)
            weight = _norms(weights(inputs[:, None], gradients[:, None]))
    else:
        raise TypeError(f"no gradient norms for the layer {layer}")
    return weight if layer.bias is None else weight + _norms(gradients.flatten(2).sum(2))


def _pair_norms(inputs: Tensor, gradients: Tensor) -> Tensor:
    """Return ||sum_l g_l a_l^T|| of a [B, L, I] and g [B, O, L] as the root of sum_lm (a_l . a_m)(g_l . g_m)."""
    a, g = inputs.double(), gradients.double()  # the sum may cancel: float32 would leave noise under the root
    pairs = torch.bmm(a, a.transpose(1, 2)) * torch.bmm(g.transpose(1, 2), g)
    return pairs.sum((1, 2)).clamp_min(0).sqrt()


def _norms(gradients: Tensor) -> Tensor:
    return torch.linalg.vector_norm(gradients.flatten(1), dim=1, dtype=torch.float64)  # type: ignore[no-any-return]
