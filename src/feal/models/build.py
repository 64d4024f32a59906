"""A network by its name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial

import torch

from feal.errors import FealError
from feal.models.network import MODELS, Network
from feal.settings import Task, Trainable


def build_model(
    name: str,
    *,
    task: Task,
    classes: int,
    channels: int,
    height: int,
    width: int,
    part: Trainable = "all",
    weights: Mapping[str, torch.Tensor] | None = None,
    keep: str | None = None,
) -> Network:
    """Build the network `name` for images `[B, channels, height, width]` and that many classes.

    Without `weights` the initial ones come from torch's global generator: seed it before. With them nothing is
    drawn, and `keep` names a network of this process to load them into: what was built under that name before is
    then the same network, with other weights. To make one takes ten times longer. Of a network cut at `part` there
    is no more than that part, which takes a trunk's outputs in the place of images; `weights` are then the part's.

    Raises:
        FealError: there is no such model, it is for the other task, or the images do not fit it.
        RuntimeError: the weights are of another network.

    >>> model = build_model("tiny-cnn", task="classification", classes=4, channels=3, height=32, width=32)
    >>> output = model.outputs(torch.rand(2, 3, 32, 32))
    >>> output.logits.shape, output.features.shape, output.deep.shape
    (torch.Size([2, 4]), torch.Size([2, 128]), torch.Size([2, 1152]))
    """
    model = MODELS.get(name)
    _check_task(name, task)
    _check_at_least(2, classes, what="classes")
    _check_at_least(1, channels, what="image channels")
    model.check_size(height, width)
    if weights is None:
        return model(classes=classes, channels=channels).cut(part)
    make = _blank if keep is None else partial(_kept, keep)
    network = make(model, classes, channels, part)
    network.load_state_dict(weights)
    network.zero_grad()
    return network


@lru_cache(maxsize=8)
def _kept(name: str, model: type[Network], classes: int, channels: int, part: Trainable) -> Network:
    del name
    return _blank(model, classes, channels, part)


def _blank(model: type[Network], classes: int, channels: int, part: Trainable) -> Network:
    with torch.random.fork_rng(devices=[]):
        return model(classes=classes, channels=channels).cut(part)


def models_for(task: Task) -> list[str]:
    """The names of the models for a task, sorted.

    >>> models_for("segmentation")
    ['unet', 'unet-lite0']
    """
    return [name for name in MODELS.names() if MODELS.get(name).task == task]


def _check_task(name: str, task: Task) -> None:
    offered = MODELS.get(name).task
    if offered != task:
        fitting = ", ".join(models_for(task)) or "none"
        raise FealError(f"The model '{name}' is for {offered}, not for {task}: the models that fit are {fitting}.")


def _check_at_least(fewest: int, number: int, *, what: str) -> None:
    if number < fewest:
        raise FealError(f"A model needs at least {fewest} {what}, and the data have {number}.")
