"""Select samples without a run directory: any module, any iterable of batches."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from feal.errors import FealError
from feal.losses import LOSSES
from feal.models import ModuleAdapter, Network
from feal.rng import Address
from feal.selection.base import (
    Columns,
    Role,
    RoleModel,
    Selection,
    SelectionContext,
    Strategy,
    build_strategy,
    check_task,
    validate_selection,
)
from feal.selection.observe import observe_batch
from feal.settings import Component

Batch = Tensor | Sequence[Tensor]
"""Images [b, channels, height, width], or a sequence such as (images, labels) that starts with them."""


@dataclass(frozen=True, kw_only=True)
class PoolSelection(Selection):
    """Hold a selection with the positions of its samples in the iterable."""

    indices: list[int]


def select(
    strategy: str | Strategy,
    images: Iterable[Batch],
    *,
    models: Mapping[str, nn.Module],
    budget: int,
    labelled: Iterable[Batch] = (),
    class_counts: Tensor | Sequence[float] | None = None,
    loss: str | None = None,
    seed: int = 0,
    device: str | torch.device = "cpu",
    **parameters: Any,
) -> PoolSelection:
    """Select up to `budget` images by a strategy, on any `torch.nn.Module` and any iterable of batches.

    Args:
        strategy: a registered name, `file.py:Class`, or a `Strategy`.
        images: the pool, batch by batch; a `DataLoader` will do. It is read once.
        models: the modules that the strategy looks at by their roles, `{"global": net, "local": net}`. Each maps
            images to logits [b, classes] or [b, classes, height, width]; see `ModuleAdapter`.
        labelled: images that have a label already, for strategies that look at them (coreset, maxherding).
        class_counts: labelled samples (or pixels) of each class, for strategies that look at them (kafal, strata).
        loss: what the models were trained by, which decides how logits are read; the strategy's default otherwise.
        seed: decides the draws of strategies that draw.
        parameters: those of the strategy, such as `tau=0.9`.

    Returns:
        The selection, best first: `indices` into the pool, and `parts` with the `score` of each.

    Raises:
        FealError: no such strategy or parameter, a model is missing, scores are not finite.

    Example:
        >>> net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 5))
        >>> pool = torch.rand(20, 3, 8, 8, generator=torch.Generator().manual_seed(0)).split(6)
        >>> picked = select("feal", pool, models={"global": net, "local": net}, budget=4, tau=0.9)
        >>> len(set(picked.indices)), picked.parts["score"].shape
        (4, torch.Size([4]))
    """
    chosen = build_strategy(Component(name=strategy, **parameters)) if isinstance(strategy, str) else strategy
    roles = _role_models(chosen, models, device=torch.device(device))
    batches = iter(images)
    first = next(batches, None)
    if first is None or budget <= 0:
        return PoolSelection(ids=[], indices=[], parts={"score": torch.empty(0, dtype=torch.float64)})
    with torch.no_grad():
        context = _context(chosen, _images(first, device), roles, class_counts, loss)
        check_task(chosen, context.task, name=type(chosen).__name__)
        pool = _observe(chosen, chain([first], batches), roles, context, device)
        known = _observe(chosen, labelled, roles, context, device) if chosen.needs_labelled else None
    count = min(budget, len(pool))
    selection = chosen.choose(pool, known, context, count, Address(seed=seed, purpose="select").generator())
    validate_selection(selection, pool, count, strategy=type(chosen).__name__)
    indices = [int(sample) for sample in selection.ids]
    ids = [str(index) for index in indices]
    return PoolSelection(ids=ids, indices=indices, parts=selection.parts, counts=selection.counts)


def _role_models(
    strategy: Strategy, models: Mapping[str, nn.Module], *, device: torch.device
) -> dict[Role, RoleModel]:
    required = sorted(strategy.required_roles())
    missing = [role for role in required if role not in models]
    if missing:
        raise FealError(
            f"Strategy {type(strategy).__name__} looks at the models {', '.join(required)}, "
            f"and models has no {' or '.join(missing)}: pass one for each."
        )
    modules = {role: models[role] for role in required}
    networks = {role: net if isinstance(net, Network) else ModuleAdapter(net) for role, net in modules.items()}
    return {role: RoleModel(network.to(device).eval()) for role, network in networks.items()}


def _images(batch: Batch, device: str | torch.device) -> Tensor:
    return (batch if isinstance(batch, Tensor) else batch[0]).to(device)


def _observe(
    strategy: Strategy,
    batches: Iterable[Batch],
    roles: Mapping[Role, RoleModel],
    context: SelectionContext,
    device: str | torch.device,
) -> Columns:
    """Reduce every batch to the strategy's columns; sample ids are positions, padded so that they sort."""
    parts: dict[str, list[Tensor]] = {}
    observers = [strategy.observe] if strategy.needs_images else []
    count = 0
    for batch in batches:
        images = _images(batch, device)
        names = [f"image {number}" for number in range(count, count + len(images))]
        for name, column in observe_batch(images, names, observers, roles, context).items():
            parts.setdefault(name, []).append(column)
        count += len(images)
    ids = [f"{number:012}" for number in range(count)]
    return Columns(ids, {name: torch.cat(columns) for name, columns in parts.items()})


def _context(
    strategy: Strategy,
    images: Tensor,
    roles: Mapping[Role, RoleModel],
    class_counts: Tensor | Sequence[float] | None,
    loss: str | None,
) -> SelectionContext:
    """Read the task and the number of classes off the logits of the first batch."""
    logits = next(iter(roles.values()))(images).logits if roles else torch.empty(0, 1)
    counts = torch.zeros(logits.shape[1]) if class_counts is None else torch.as_tensor(class_counts)
    if len(counts) != logits.shape[1] and roles:
        raise FealError(
            f"class_counts has {len(counts)} numbers, and the models {logits.shape[1]} classes: give one each."
        )
    return SelectionContext(
        task="segmentation" if logits.dim() == 4 else "classification",
        classes=logits.shape[1],
        site_counts=counts.double(),
        total_counts=counts.double(),
        loss=LOSSES.get(loss or strategy.default_loss)(),
        class_count_scope=strategy.default_class_count_scope,
    )
