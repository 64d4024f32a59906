"""Weights that a network starts from: ImageNet's, or those of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from feal.errors import FealError
from feal.models.build import build_model
from feal.models.network import MODELS, Network
from feal.models.published import Published, read_weights
from feal.settings import Settings, Task
from feal.tensors import Tensors, tensors_digest

NONE, IMAGENET = "none", "imagenet"


def find_weights(model: str, source: str, *, digest: str | None = None) -> Tensors:
    """The tensors that `source` (imagenet, or a file) has for the network `model`, by their names there.

    Raises:
        FealError: there are none, they cannot be had or read, or they are not those of the digest.
    """
    tensors = _imagenet(model).tensors() if source == IMAGENET else read_weights(Path(source))
    if digest is not None and tensors_digest(tensors) != digest:
        raise FealError(f"The weights '{source}' are not those that the run began with: put those back.")
    return tensors


def check_source(model: str, source: str) -> None:
    """Refuse weights that are known to be out of reach; a download is tried when a run begins."""
    if source == IMAGENET:
        _imagenet(model).check()
    elif source != NONE and not Path(source).is_file():
        raise FealError(f"There is no file of weights {source}: weights is {NONE}, {IMAGENET} or such a file.")


def starting_model(
    settings: Settings, *, task: Task, classes: int, channels: int, height: int, width: int
) -> Network:
    """The whole network that a run starts with: drawn from torch's global generator, then what `weights` has.

    Raises:
        FealError: the images do not fit the network, or the weights cannot be had or do not fit it.
    """
    network = build_model(
        settings.model, task=task, classes=classes, channels=channels, height=height, width=width
    )
    if settings.weights != NONE:
        tensors = find_weights(settings.model, settings.weights, digest=settings.weights_digest)
        load_weights(network, tensors, source=settings.weights)
    return network


def frozen_model(settings: Settings, **facts: Any) -> Network:
    """The same with torch's global generator left alone: for what was not drawn from it, as a trunk was not."""
    with torch.random.fork_rng(devices=[]):
        return starting_model(settings, **facts)


def load_weights(network: Network, tensors: Tensors, *, source: str) -> None:
    """Put tensors into a network in place; its last layer stays as it is if they have none that fits.

    ImageNet's last layer is never taken. A counter of batches may be missing, and so may all layers that published
    weights do not have.

    Raises:
        FealError: a tensor is missing, of another shape, not finite, or of a layer that the network does not have.
    """
    own = network.state_dict()
    head = {name for name in own if network.get_submodule(name.rpartition(".")[0]) is network.head}
    found = {name: _found(network, name, tensors) for name in own}
    whole = source != IMAGENET and all(_is_shaped(own[name], found[name], tensors) for name in head)
    published = not any(name.startswith(network.unpublished) for name in tensors)
    absent, unused = (network.unpublished, network.unused) if published else ((), ())
    expected = {name for name in own if (whole or name not in head) and not name.startswith(absent)}
    problems = [_misfit(name, own[name], found[name], tensors) for name in expected]
    left = {name for name in tensors.keys() - set(found.values()) if not name.startswith(unused)}
    problems += [f"{name} is of no layer of it" for name in left]
    problems = sorted(filter(None, problems))
    if problems:
        more = f", and {len(problems) - 1} more like that" if len(problems) > 1 else ""
        raise FealError(
            f"The weights '{source}' do not fit a {type(network).__name__} for images of {network.channels} "
            f"channels ({problems[0]}{more}): give weights of that network."
        )
    taken = {name: tensors[there] for name, there in found.items() if there and (whole or name not in head)}
    network.load_state_dict({**own, **taken})


def _imagenet(model: str) -> Published:
    published = MODELS.get(model).imagenet
    if published is None:
        others = ", ".join(name for name in MODELS.names() if MODELS.get(name).imagenet)
        raise FealError(f"There are no ImageNet weights for {model}, only for {others}: give a file, or none.")
    return published


def _found(network: Network, name: str, tensors: Tensors) -> str | None:
    """What the tensors call one of the network's; None if it is not among them."""
    names = (name, name.removeprefix("net."), *network.aliases(name))
    return next((candidate for candidate in names if candidate in tensors), None)


def _misfit(name: str, own: torch.Tensor, found: str | None, tensors: Tensors) -> str:
    if found is None:
        return "" if name.endswith("num_batches_tracked") else f"{name} is missing"
    if not _is_shaped(own, found, tensors):
        return f"{found} is {tuple(tensors[found].shape)}, not {tuple(own.shape)}"
    return "" if tensors[found].isfinite().all() else f"{found} is not finite"


def _is_shaped(own: torch.Tensor, found: str | None, tensors: Tensors) -> bool:
    return found is not None and tensors[found].shape == own.shape
