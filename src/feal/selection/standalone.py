"""Select samples in a loop of one's own: any module, any iterable of batches, no run directory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from feal.errors import FealError
from feal.losses import LOSSES
from feal.models import ModuleAdapter, Network
from feal.plugins import read_params
from feal.rng import Address
from feal.selection.base import (
    Columns,
    Role,
    RoleModel,
    Selection,
    SelectionContext,
    Strategy,
    find_strategy,
    validate_selection,
)

Batch = torch.Tensor | Sequence[torch.Tensor]
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
    class_counts: torch.Tensor | Sequence[float] | None = None,
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
        labelled: images that have a label already, for strategies that look at them (coreset).
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
    chosen = _build(strategy, parameters) if isinstance(strategy, str) else strategy
    roles = _role_models(chosen, models, device=torch.device(device))
    pool = _observe(chosen, images, roles, class_counts, loss, device=torch.device(device))
    count = min(budget, len(pool.columns))
    if pool.context is None or count <= 0:
        return PoolSelection(ids=[], indices=[], parts={"score": torch.empty(0, dtype=torch.float64)})
    known = None
    if chosen.needs_labelled:
        known = _observe(chosen, labelled, roles, class_counts, loss, device=torch.device(device)).columns
    generator = Address(seed=seed, purpose="select").generator()
    selection = chosen.choose(pool.columns, known, pool.context, count, generator)
    validate_selection(selection, pool.columns, count, strategy=type(chosen).__name__)
    indices = [int(sample) for sample in selection.ids]
    ids = [str(index) for index in indices]
    return PoolSelection(ids=ids, indices=indices, parts=selection.parts, counts=selection.counts)


def _build(name: str, parameters: Mapping[str, Any]) -> Strategy:
    owner = find_strategy(name)
    return owner(read_params(owner, parameters, section="strategy", name=name))


def _role_models(
    strategy: Strategy, models: Mapping[str, nn.Module], *, device: torch.device
) -> dict[Role, RoleModel]:
    required = strategy.required_roles()
    missing = sorted(required - set(models))
    if missing:
        raise FealError(
            f"Strategy {type(strategy).__name__} looks at the models {', '.join(sorted(required))}, "
            f"and models has no {' or '.join(missing)}: pass one for each."
        )
    adapted = {role: _adapt(models[role]).to(device).eval() for role in sorted(required)}
    return {role: RoleModel(network) for role, network in adapted.items()}


def _adapt(module: nn.Module) -> Network:
    return module if isinstance(module, Network) else ModuleAdapter(module)


class _Observed(NamedTuple):
    columns: Columns
    context: SelectionContext | None
    """None where there was no image at all."""


def _observe(
    strategy: Strategy,
    batches: Iterable[Batch],
    roles: Mapping[Role, RoleModel],
    class_counts: torch.Tensor | Sequence[float] | None,
    loss: str | None,
    *,
    device: torch.device,
) -> _Observed:
    """Reduce every batch to the strategy's columns; sample ids are positions, padded so that they sort."""
    parts: dict[str, list[torch.Tensor]] = {}
    context: SelectionContext | None = None
    seen = 0
    with torch.set_grad_enabled(strategy.needs_gradients):
        for batch in batches:
            images = (batch if isinstance(batch, torch.Tensor) else batch[0]).to(device)
            if context is None:
                context = _context(strategy, images, roles, class_counts, loss)
            columns = strategy.observe(images, roles, context) if strategy.needs_images else {}
            for name, column in columns.items():
                _check_finite(name, column, first=seen)
                wide = column.detach().cpu()
                parts.setdefault(name, []).append(wide.double() if wide.dim() == 1 else wide.float())
            seen += len(images)
            for model in roles.values():
                model.forget()
    ids = [f"{number:012}" for number in range(seen)]
    return _Observed(Columns(ids, {name: torch.cat(column) for name, column in parts.items()}), context)


def _check_finite(name: str, column: torch.Tensor, *, first: int) -> None:
    finite = torch.isfinite(column).reshape(len(column), -1).all(1)
    if not bool(finite.all()):
        index = first + int((~finite).nonzero()[0])
        raise FealError(
            f"The column '{name}' of image {index} is not finite: look at that image, or at the models."
        )


def _context(
    strategy: Strategy,
    images: torch.Tensor,
    roles: Mapping[Role, RoleModel],
    class_counts: torch.Tensor | Sequence[float] | None,
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
