"""A site's question for labels: how many it may ask for, and which samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import torch

from feal.errors import FealError
from feal.federation.pool import Pool
from feal.federation.records import ANALYSED, KEPT, observe_for_analysis
from feal.models import Network
from feal.randomness import Address
from feal.selection import (
    STRATEGIES,
    Choice,
    Columns,
    Context,
    Role,
    Strategy,
    check_choice,
    observed,
    strategy_named,
)
from feal.selection.observation import Observer
from feal.settings import Settings


def allowance(settings: Settings, *, samples: int, asked: int) -> int:
    """How many labels a site may ask for now.

    The budget is a number, a share of the site's samples, floor(share * N), or all of them; all that was ever
    asked for stays at or below ceil(cap * N).

    >>> allowance(Settings(dataset="d", model="m", budget=0.1), samples=105, asked=0)
    10
    >>> allowance(Settings(dataset="d", model="m", budget=50), samples=100, asked=80)
    5
    """
    limit = label_limit(settings, samples=samples)
    return max(0, min(_budget(settings, samples), limit - asked))


def _budget(settings: Settings, samples: int) -> int:
    if settings.budget == "all":
        return samples
    # A product such as 0.29 * 100 may lie a hair beside the whole number it stands for.
    return settings.budget if isinstance(settings.budget, int) else math.floor(round(settings.budget * samples, 9))


def label_limit(settings: Settings, *, samples: int) -> int:
    """How many labels a site with so many samples gives in all: ceil(cap * N)."""
    return math.ceil(round(settings.cap * samples, 9))


@dataclass(frozen=True, kw_only=True)
class Selected:
    """The choice, the samples that were looked at, and the columns kept about them for analysis."""

    choice: Choice
    candidates: Sequence[str]
    kept: dict[str, torch.Tensor]


def select_first(ids: Sequence[str], context: Context, *, budget: int, address: Address) -> Choice:
    """The first labels: uniform, the same for every strategy."""
    return STRATEGIES.get("random")().choose(Columns(ids, {}), None, context, budget, address.generator())


def roles_of(settings: Settings) -> frozenset[Role]:
    """The models that the configured strategy looks at."""
    strategy = strategy_named(settings.strategy)
    return strategy.roles_for(query_model=settings.query_model, selection=settings.selection)


def select(pool: Pool, context: Context, settings: Settings, *, budget: int, address: Address) -> Selected:
    """Choose up to `budget` samples of the pool by the configured strategy.

    With `diagnostics` on, both models look at every candidate whether the strategy needs them or not.
    """
    strategy = strategy_named(settings.strategy)()
    candidates = _candidates(pool.ids, settings, address, fewest=budget)
    observing = budget > 0 and strategy.needs_images
    observers: list[Observer] = [strategy.observe] if observing else []
    roles: set[Role] = set(roles_of(settings)) if observing else set()
    analysing = settings.diagnostics and bool(candidates)
    if settings.diagnostics:
        observers.append(observe_for_analysis)
        roles |= {"global", "local"}
    networks = _networks(pool.networks, roles, settings.strategy)
    look = partial(_look, pool=pool, networks=networks, context=context, gradients=strategy.needs_gradients)
    known = pool.labelled if observing and strategy.needs_labelled else []
    with look(known, observers=[strategy.observe]) as labelled, look(candidates, observers=observers) as columns:
        choice = _choose(strategy, columns, labelled, context, budget, address)
        kept = {name: columns[f"{KEPT}{name}"].clone() for name in ANALYSED[context.task]} if analysing else {}
    return Selected(choice=choice, candidates=candidates, kept=kept)


def _look(
    ids: Sequence[str],
    *,
    observers: Sequence[Observer],
    pool: Pool,
    networks: Mapping[Role, Network],
    context: Context,
    gradients: bool,
) -> AbstractContextManager[Columns]:
    return observed(
        ids,
        read=pool.read,
        observers=observers,
        networks=networks,
        context=context,
        batch_size=context.selection.batch_size,
        scratch=pool.scratch,
        device=pool.device,
        gradients=gradients,
    )


def _choose(
    strategy: Strategy, columns: Columns, labelled: Columns, context: Context, budget: int, address: Address
) -> Choice:
    if budget == 0 or len(columns) == 0:
        return Choice(ids=[])
    beside = labelled if strategy.needs_labelled else None
    choice = strategy.choose(columns, beside, context, min(budget, len(columns)), address.generator())
    check_choice(choice, columns, budget, strategy=type(strategy).__name__)
    return choice


def _networks(available: Mapping[Role, Network], roles: set[Role], strategy: str) -> dict[Role, Network]:
    missing = sorted(roles - set(available))
    if missing:
        raise FealError(
            f"Strategy '{strategy}' wants the models {', '.join(missing)}, which no site has: mend it."
        )
    return {role: available[role] for role in sorted(roles)}


def _candidates(ids: Sequence[str], settings: Settings, address: Address, *, fewest: int) -> Sequence[str]:
    if settings.selection.candidates == "all":
        return ids
    limit = max(settings.selection.candidates, fewest)
    if limit >= len(ids):
        return ids
    place = Address(seed=address.seed, purpose="candidates", site=address.site, round=address.round)
    rows = torch.randperm(len(ids), generator=place.generator())[:limit]
    return [ids[row] for row in rows.sort().values.tolist()]
