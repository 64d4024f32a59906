"""Decide which samples a site queries: its allowance, the strategy's selection, and outputs kept for analysis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from feal.annotation import Query
from feal.errors import FealError
from feal.evidential import uncertainties
from feal.models import Network
from feal.rng import Address
from feal.selection import (
    STRATEGIES,
    Columns,
    Models,
    Role,
    Selection,
    SelectionContext,
    Strategy,
    observe_samples,
    validate_selection,
)
from feal.selection.observe import Observer, ReadImages
from feal.settings import ceil_share

OUTPUTS = {
    "classification": ("logits_global", "logits_local"),
    "segmentation": ("aleatoric_global", "aleatoric_local", "epistemic_global", "energy_global"),
}
"""Columns that `observe_for_analysis` computes for each task."""
_PREFIX = "kept_"
"""Distinguishes these columns from those of the strategy."""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The unlabelled samples of a site, the labelled ones, and the models at the end of a round."""

    ids: Sequence[str]
    labelled: Sequence[str]
    """For strategies that observe labelled samples, too."""
    read: ReadImages
    networks: Mapping[Role, Network]
    scratch: Path
    device: torch.device
    batch_size: int


@dataclass(frozen=True, kw_only=True)
class SelectedPool:
    """A selection, the samples it was made from, and the models' outputs for them."""

    selection: Selection
    candidates: Sequence[str]
    outputs: dict[str, torch.Tensor]


def allowance(budget: float | Literal["all"], *, max_fraction: float, samples: int, asked: int) -> int:
    """Return how many labels a site may query now.

    The budget is a number, a share of the site's samples, floor(share * N), or all of them; the total of all
    rounds is at most ceil(max_fraction * N).

    Args:
        budget: labels for one round.
        max_fraction: of the samples that may be labelled in total.
        samples: number of training samples N.
        asked: labels queried in earlier rounds.

    >>> allowance(0.1, max_fraction=0.85, samples=105, asked=0)
    10
    >>> allowance(50, max_fraction=0.85, samples=100, asked=80)
    5
    """
    if budget == "all":
        count = samples
    elif isinstance(budget, int):
        count = budget
    else:
        # A product such as 0.29 * 100 may lie slightly beside the whole number it stands for.
        count = math.floor(round(budget * samples, 9))
    return max(0, min(count, ceil_share(max_fraction, samples) - asked))


def select_first(ids: Sequence[str], context: SelectionContext, *, budget: int, address: Address) -> Selection:
    """Select the first samples: uniformly at random, the same for every strategy."""
    strategy = STRATEGIES.get("random")()
    return strategy.choose(Columns(ids, {}), None, context, budget, address.generator())


def select(
    strategy: Strategy,
    pool: Pool,
    context: SelectionContext,
    *,
    budget: int,
    candidates: int | Literal["all"],
    diagnostics: bool,
    address: Address,
) -> SelectedPool:
    """Select up to `budget` samples of the pool by a strategy.

    Args:
        strategy: makes the selection.
        pool: samples and models.
        context: what the strategy may know besides.
        budget: number of samples; 0 to select none.
        candidates: how many samples of the pool are considered, drawn at random.
        diagnostics: keep both models' outputs for every candidate, whether the strategy needs them or not.
        address: of the random draws.
    """
    considered = _draw_candidates(pool.ids, candidates, address, at_least=budget)
    is_observing = budget > 0 and strategy.needs_images
    observers: list[Observer] = [strategy.observe] if is_observing else []
    roles: set[Role] = set(strategy.required_roles()) if is_observing else set()
    if diagnostics:
        observers.append(observe_for_analysis)
        roles |= {"global", "local"}
    networks = _pick_networks(pool.networks, roles, strategy=type(strategy).__name__)
    labelled = pool.labelled if is_observing and strategy.needs_labelled else []
    with (
        _observe(labelled, pool, networks, context, observers=[strategy.observe]) as known,
        _observe(considered, pool, networks, context, observers=observers) as columns,
    ):
        selection = _choose(strategy, columns, known, context, budget, address)
        kept = OUTPUTS[context.task] if diagnostics and considered else ()
        outputs = {name: columns[f"{_PREFIX}{name}"].clone() for name in kept}
    return SelectedPool(selection=selection, candidates=considered, outputs=outputs)


def make_queries(selection: Selection, *, round_: int, model: str) -> list[Query]:
    """Return the queries for selected samples; `model` is the hash of the global weights they were selected by."""
    scores = selection.parts["score"].tolist() if selection.ids else []
    return [
        Query(sample=sample, round=round_, rank=rank, score=score, model=model)
        for rank, (sample, score) in enumerate(zip(selection.ids, scores, strict=True), start=1)
    ]


def observe_for_analysis(
    images: torch.Tensor, models: Models, context: SelectionContext
) -> dict[str, torch.Tensor]:
    """Return both models' logits (classification), or each image's uncertainties and energy (segmentation)."""
    logits_global = models["global"](images).logits
    if context.task == "classification":
        columns = {"logits_global": logits_global, "logits_local": models["local"](images).logits}
    else:
        aleatoric_global, epistemic_global = models["global"].uncertainty(images, context)
        columns = {
            "aleatoric_global": aleatoric_global,
            "aleatoric_local": models["local"].aleatoric(images, context),
            "epistemic_global": epistemic_global,
            "energy_global": -torch.logsumexp(logits_global.double(), dim=1).flatten(1).mean(1),
        }
    return {f"{_PREFIX}{name}": column for name, column in columns.items()}


@torch.no_grad()
def compute_maps(ids: Sequence[str], pool: Pool, context: SelectionContext) -> dict[str, torch.Tensor]:
    """Compute the uncertainty of every pixel of the images by both models, float16 [images, height, width]."""
    parts: dict[str, list[torch.Tensor]] = {}
    roles: tuple[Role, ...] = ("global", "local")
    for start in range(0, len(ids), pool.batch_size):
        images = pool.read(ids[start : start + pool.batch_size]).to(pool.device)
        for role in roles:
            aleatoric, epistemic = uncertainties(context.concentration(pool.networks[role].eval()(images)))
            parts.setdefault(f"map_aleatoric_{role}", []).append(aleatoric.half().cpu())
            parts.setdefault(f"map_epistemic_{role}", []).append(epistemic.half().cpu())
    return {name: torch.cat(maps) for name, maps in parts.items()}


def _observe(
    ids: Sequence[str],
    pool: Pool,
    networks: Mapping[Role, Network],
    context: SelectionContext,
    *,
    observers: Sequence[Observer],
) -> AbstractContextManager[Columns]:
    return observe_samples(
        ids,
        read=pool.read,
        observers=observers,
        networks=networks,
        context=context,
        batch_size=pool.batch_size,
        scratch=pool.scratch,
        device=pool.device,
    )


def _choose(
    strategy: Strategy,
    columns: Columns,
    labelled: Columns,
    context: SelectionContext,
    budget: int,
    address: Address,
) -> Selection:
    if budget == 0 or len(columns) == 0:
        return Selection(ids=[])
    known = labelled if strategy.needs_labelled else None
    selection = strategy.choose(columns, known, context, min(budget, len(columns)), address.generator())
    validate_selection(selection, columns, budget, strategy=type(strategy).__name__)
    return selection


def _pick_networks(available: Mapping[Role, Network], roles: set[Role], *, strategy: str) -> dict[Role, Network]:
    missing = sorted(roles - set(available))
    if missing:
        raise FealError(
            f"Strategy {strategy} needs the models {', '.join(missing)}, which no site has: correct its roles."
        )
    return {role: available[role] for role in sorted(roles)}


def _draw_candidates(
    ids: Sequence[str], candidates: int | Literal["all"], address: Address, *, at_least: int
) -> Sequence[str]:
    if candidates == "all" or max(candidates, at_least) >= len(ids):
        return ids
    place = Address(seed=address.seed, purpose="candidates", site=address.site, round=address.round)
    rows = torch.randperm(len(ids), generator=place.generator())[: max(candidates, at_least)]
    return [ids[row] for row in rows.sort().values.tolist()]
