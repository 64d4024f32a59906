"""Fit what `model=frozen` computes from sums over sites: the projection of features, and the ridge head.

A run with a frozen encoder begins with one exchange in which sites send sums of their features; the coordinator
fits the projection. With `model.head=ridge`, the training of a round is one exchange of the labelled samples'
sums, and, where leave-one-out chooses the penalty or the temperature, a second one of a table of losses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

from feal.errors import FealError
from feal.fileio import read_tensors, user_cache, write_tensors
from feal.models import FrozenNetwork, find_model
from feal.models.heads import PROJECTION, RIDGE_CHOICE, find_fixed
from feal.models.projection import FeatureSums, fit_projection
from feal.models.ridge import (
    LAMBDAS,
    TEMPERATURES,
    RidgeSums,
    adapt_ridge,
    choose_by_losses,
    find_present,
    make_head,
    solve_ridge,
)
from feal.plugins import read_params
from feal.settings import Component, Settings, Task
from feal.tensors import Tensors, hash_tensors

HEAD = "last."
LOSSES = "losses"


def read_frozen(model: Component) -> FrozenNetwork.Params | None:
    """Return the parameters of a model on a frozen encoder; None for any other."""
    if not find_model(model.name).has_encoder:
        return None
    params = read_params(FrozenNetwork, model.params, section="model", name=model.name)
    assert isinstance(params, FrozenNetwork.Params)
    return params


def count_steps(settings: Settings, round_: int) -> int:
    """Return how many exchanges train a round; round 0 fits the projection of a frozen encoder's features."""
    params = read_frozen(settings.model)
    if params is None:
        return settings.communication_rounds if round_ else 0
    if round_ == 0:
        return 1
    if params.head != "ridge":
        return settings.communication_rounds
    return 2 if "loo" in (params.lambda_, params.temperature) else 1


def is_closed_form(settings: Settings, round_: int) -> bool:
    """Return whether sites send sums in a round's training, and no weights."""
    params = read_frozen(settings.model)
    return params is not None and (round_ == 0 or params.head == "ridge")


def describe_sums(settings: Settings, *, round_: int, step: int, features: int, classes: int) -> Tensors:
    """Return empty tensors of the names, shapes and type that a site's sums have."""
    params = read_frozen(settings.model)
    assert params is not None
    if round_ == 0:
        shapes: dict[str, tuple[int, ...]] = {
            "count": (1,),
            "total": (features,),
            "products": (features * (features + 1) // 2,),
        }
    elif step == 0:
        size = params.components + 1
        shapes = {"gram": (size, size), "moments": (size, classes)}
    else:
        shapes = {LOSSES: (len(LAMBDAS) * len(TEMPERATURES) + 1,)}
    return {name: torch.empty(shape, dtype=torch.float64, device="meta") for name, shape in shapes.items()}


def combine_projection(replies: Iterable[Tensors], *, components: int) -> dict[str, torch.Tensor]:
    """Fit the projection to the sums of all sites, under the names that a network's weights have.

    A projection that was fitted to the same sums before is read from the user's cache: that of 3,072 features
    takes seconds.

    Raises:
        FealError: no site sent any, or the sums are not those of images.
    """
    total: FeatureSums | None = None
    for tensors in replies:
        part = FeatureSums.from_tensors(dict(tensors.items()))
        total = part if total is None else total + part
    if total is None:
        raise FealError("No site has features to fit a projection to: add images, or leave empty sites out.")
    path = user_cache() / "projections" / f"{hash_tensors(total.tensors())}-{components}.safetensors"
    projection = _read_projection(path)
    if projection is None:
        projection = fit_projection(total, components)
        _keep_projection(path, projection)
    return {f"{PROJECTION}{name}": tensor for name, tensor in projection.items()}


def add_sums(replies: Iterable[Tensors]) -> dict[str, torch.Tensor] | None:
    """Add tensors by name, in the given order; None without any."""
    total: dict[str, torch.Tensor] | None = None
    for tensors in replies:
        found = dict(tensors.items())
        total = found if total is None else {name: total[name] + found[name] for name in total}
    return total


def solve_head(
    sums: Tensors, params: FrozenNetwork.Params, *, task: Task, losses: torch.Tensor | None = None
) -> dict[str, torch.Tensor]:
    """Return the weights of a ridge head for sums over all sites; `losses` choose what is not fixed."""
    given = find_fixed(params.lambda_), find_fixed(params.temperature)
    table = torch.zeros(len(LAMBDAS) * len(TEMPERATURES) + 1) if losses is None else losses
    penalty, temperature = choose_by_losses(table, penalty=given[0], temperature=given[1])
    total = RidgeSums.from_tensors(sums)
    head = make_head(solve_ridge(total, penalty), find_present(total), temperature)
    return _as_weights(head, penalty, temperature, task=task)


def adapt_head(weights: Tensors, own: RidgeSums, *, task: Task) -> dict[str, torch.Tensor]:
    """Return a site's own head near the global one, see `adapt_ridge`; classes that no site has stay absent."""
    penalty, temperature = (float(weights[name][0]) for name in RIDGE_CHOICE)
    weight, bias = weights[f"{HEAD}weight"].flatten(1).double(), weights[f"{HEAD}bias"].double()
    present = weight.abs().sum(1) > 0
    solution = torch.cat([weight.T, bias[None]]) / temperature
    solution[:, ~present] = 0
    head = make_head(adapt_ridge(solution, own, penalty), present, temperature)
    return _as_weights(head, penalty, temperature, task=task)


def split_projection(weights: Tensors) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return the projection's tensors by their own names, and the head's weights."""
    projection = {
        name.removeprefix(PROJECTION): tensor for name, tensor in weights.items() if name.startswith(PROJECTION)
    }
    return projection, {name: tensor for name, tensor in weights.items() if not name.startswith(PROJECTION)}


def _as_weights(
    head: Mapping[str, torch.Tensor], penalty: float, temperature: float, *, task: Task
) -> dict[str, torch.Tensor]:
    weight = head["weight"] if task == "classification" else head["weight"][:, :, None, None]
    choice = {
        name: torch.tensor([number], dtype=torch.float64)
        for name, number in zip(RIDGE_CHOICE, (penalty, temperature), strict=True)
    }
    return {f"{HEAD}weight": weight.contiguous(), f"{HEAD}bias": head["bias"], **choice}


def _read_projection(path: Path) -> dict[str, torch.Tensor] | None:
    try:
        return read_tensors(path) if path.exists() else None
    except FealError:
        return None  # a damaged copy is written again


def _keep_projection(path: Path, projection: Tensors) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, projection, durable=False)
    except (FealError, OSError):
        return  # it only saves time
