"""Build a network by its name."""

from collections.abc import Mapping
from typing import Any

import torch

from feal.errors import FealError
from feal.models.base import MODELS, Network
from feal.plugins import find_class, read_params, short_name
from feal.registry import Parameters
from feal.settings import Task


def build_model(
    name: str,
    *,
    task: Task,
    classes: int,
    channels: int,
    height: int,
    width: int,
    params: Mapping[str, Any] | None = None,
) -> Network:
    """Build the network `name` for images `[B, channels, height, width]` and that many classes.

    Its initial weights are drawn from torch's global generator: seed it before.

    Args:
        name: a registered network, or a user's own, `file.py:Class`.
        params: values of the network's parameters.

    Raises:
        FealError: there is no such model or parameter, it is for the other task, the images do not fit it, or a
            user's class does not keep the contract.

    >>> model = build_model("tiny-cnn", task="classification", classes=4, channels=3, height=32, width=32)
    >>> output = model.outputs(torch.rand(2, 3, 32, 32))
    >>> output.logits.shape, output.features.shape, output.deep.shape
    (torch.Size([2, 4]), torch.Size([2, 128]), torch.Size([2, 1152]))
    """
    model = find_model(name)
    own: Parameters = read_params(model, params or {}, section="model", name=name)
    check_model_task(name, task)
    for fewest, number, what in ((2, classes, "classes"), (1, channels, "image channels")):
        if number < fewest:
            raise FealError(f"A model needs at least {fewest} {what}, and the data have {number}.")
    model.check_size(height, width)
    if ":" not in name:
        network = _construct(model, own, classes, channels)
        network.set_images(task=task, height=height, width=width)
        return network
    return _construct_plugin(model, own, classes, (channels, height, width))


def restore_model(
    name: str, weights: Mapping[str, torch.Tensor], *, params: Mapping[str, Any] | None = None, **shape: Any
) -> Network:
    """Build a network as `build_model` does, with these weights, without drawing from torch's global generator.

    Raises:
        FealError: as of `build_model`.
        RuntimeError: the weights are of another network.
    """
    with torch.random.fork_rng(devices=[]):
        network = build_model(name, **shape, params=params)
    network.load_state_dict(weights)
    return network


def find_model(name: str) -> type[Network]:
    """Return the registered network of that name, or a user's own: `module:Class` or `path/to/file.py:Class`.

    Raises:
        FealError: there is no such network, file, module or class, it cannot be imported or breaks its contract.

    >>> find_model("unet").__name__
    'UNet'
    """
    found = find_class(name, registry=MODELS, base=Network, derive="feal.models.Network")
    if not set(list_tasks(found)) <= {"classification", "segmentation"}:
        raise FealError(
            f"The model {short_name(name)} has no task: set `task` in the class to 'classification' or "
            "'segmentation'."
        )
    return found


def check_model_task(name: str, task: Task) -> None:
    """Check that a network is for a task.

    Raises:
        FealError: it is for the other one, or there is no such network.
    """
    model = find_model(name)
    if task not in list_tasks(model):
        fitting = ", ".join(list_models(task)) or "none"
        raise FealError(
            f"The model '{name}' is for {model.task}, not for {task}: the models that fit are {fitting}."
        )


def list_models(task: Task) -> list[str]:
    """Return the names of the models for a task, sorted.

    >>> list_models("segmentation")
    ['basic-unet', 'frozen', 'unet', 'unet-lite0']
    """
    return [name for name in MODELS.names() if task in list_tasks(MODELS.get(name))]


def list_tasks(model: type[Network]) -> tuple[Task, ...]:
    """Return the tasks that a network is for.

    >>> list_tasks(find_model("unet")), list_tasks(find_model("frozen"))
    (('segmentation',), ('classification', 'segmentation'))
    """
    return model.tasks or (getattr(model, "task", None),)  # type: ignore[return-value]


def _construct(model: type[Network], params: Parameters, classes: int, channels: int) -> Network:
    """Call the constructor; one without parameters need not take `params`."""
    options = {"params": params} if model.Params.model_fields else {}
    return model(classes=classes, channels=channels, **options)


def _construct_plugin(
    model: type[Network], params: Parameters, classes: int, image: tuple[int, int, int]
) -> Network:
    """Construct a user's network and check that it keeps the contract on two black images."""
    try:
        network = _construct(model, params, classes, image[0])
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            output = network.eval().outputs(torch.zeros(2, *image))
            head = network.head(output.head_input)
    except FealError:
        raise
    except Exception as error:  # a user's class may fail in any way
        size = f"{image[0]} channels and {image[2]} x {image[1]} pixels"
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise FealError(f"The model {model.__name__} fails on images of {size} ({reason}): correct it.") from error
    pixels = image[1:] if model.task == "segmentation" else ()
    if output.logits.shape != (2, classes, *pixels):
        raise FealError(
            f"The model {model.__name__} gives logits {[*output.logits.shape]} for 2 images, "
            f"not {[2, classes, *pixels]}: build its last layer from `classes`."
        )
    if output.features.dim() != 2 or output.deep.dim() != 2 or not torch.allclose(head, output.logits, atol=1e-4):
        raise FealError(
            f"The `outputs` of the model {model.__name__} are not as they should be: `features` and `deep` are "
            "[batch, numbers], and `head(head_input)` gives the logits."
        )
    return network.train()
