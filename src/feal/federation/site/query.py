"""Decide which samples a site queries: its allowance, the models and the selection, outputs for analysis."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from feal.annotation import Query
from feal.errors import FealError
from feal.evidential import uncertainties
from feal.federation.site.training import Trainer
from feal.models import Network, fold_batch_norms
from feal.rng import Address
from feal.rundir.site_state import SiteState, TensorFile
from feal.rundir.site_store import Store
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
from feal.selection.coverage import cover_greedily, quantile_square
from feal.selection.kcenter import k_center
from feal.selection.kmeans import k_means, pick_best_of_each
from feal.selection.observe import Observer, ReadImages
from feal.settings import InitialLabels, ceil_share
from feal.tensors import Tensors

FIRST_QUANTILE = 0.1
"""Of the squared distances: the kernel's s^2 of `initial_labels=maxherding`."""
_FIRST_BATCH = 256
_PREFIX = "kept_"
"""Distinguishes the columns of `observe_for_analysis` from those of the strategy."""


class LazyModels(Mapping[Role, Network]):
    """Networks by role, each made on first access: some have to be trained."""

    def __init__(self, makers: Mapping[Role, Callable[[], Network]]) -> None:
        self._makers = makers
        self._made: dict[Role, Network] = {}

    def __getitem__(self, role: Role) -> Network:
        if role not in self._made:
            self._made[role] = self._makers[role]()
        return self._made[role]

    def __iter__(self) -> Iterator[Role]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def replace_local(self, make: Callable[[], Network]) -> LazyModels:
        """Return the same models with another local one."""
        return LazyModels({**self._makers, "local": make})

    def fold(self) -> LazyModels:
        """Return the same models with their batch norms folded, for evaluation."""
        return LazyModels({role: partial(self._fold, role) for role in self})

    def _fold(self, role: Role) -> Network:
        return fold_batch_norms(self[role])


def make_models(
    state: SiteState,
    *,
    round_: int,
    weights: Tensors,
    store: Store,
    build: Callable[[Role, Tensors], Network],
    trainer: Trainer,
    epochs: int,
    batch_size: int,
    address: Address,
) -> LazyModels:
    """Return the models at the end of a round: global, local, and those that a strategy may need besides.

    Those in `state` are read from the store; those that are trained here, for `epochs` epochs at most, draw from
    addresses beside `address`.
    """

    def build_stored(role: Role, file: TensorFile) -> Network:
        return build(role, store.models.read_weights(file))

    def train(purpose: str, network: Network, *, is_trained: bool = False) -> Network:
        return trainer.train_alone(
            network,
            epochs=epochs,
            order=replace(address, purpose=purpose).generator(),
            augment=replace(address, purpose=f"{purpose} transforms").generator(),
            batch_size=batch_size,
            is_trained=is_trained,
        )

    before, initial = state.before(round_), state.initial
    stored: dict[Role, TensorFile | None] = {
        "initial": initial,
        "global_previous": before.global_ if before else initial,
        "local_previous": before.local if before else initial,
        "local": state.local,
    }
    makers: dict[Role, Callable[[], Network]] = {
        "global": partial(build, "global", weights),
        "local": partial(build, "global", weights),
        "finetuned": lambda: train("finetune", build("finetuned", weights), is_trained=True),
        **{role: partial(build_stored, role, file) for role, file in stored.items() if file is not None},
    }
    if initial is not None:
        makers["local_only"] = lambda: train("learn alone", build_stored("local_only", initial))
    return LazyModels(makers)


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

    The budget of a round is a number, a share of the site's N training samples, floor(share * N), or all of them;
    the total, with the labels `asked` for in earlier rounds, is at most ceil(max_fraction * N).

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


def select_first(
    rule: InitialLabels,
    ids: Sequence[str],
    context: SelectionContext,
    *,
    read: ReadImages,
    budget: int,
    address: Address,
) -> Selection:
    """Select the first samples, the same for every strategy: at random, or by coverage of features that are read.

    `farthest`: k-centre greedy from the mean of all features; `maxherding`: greedy coverage by a kernel, as of the
    strategy; `centroids`: of each of `budget` clusters by k-means the sample next to its centre.
    """
    ids, generator = sorted(ids), address.generator()
    if rule == "random":
        strategy = STRATEGIES.get("random")()
        return strategy.choose(Columns(ids, {}), None, context, budget, generator)
    batches = [read(ids[start : start + _FIRST_BATCH]).cpu() for start in range(0, len(ids), _FIRST_BATCH)]
    features = torch.cat([batch.float() if batch.ndim == 2 else batch.float().mean((2, 3)) for batch in batches])
    if rule == "farthest":
        rows, score = k_center(features, features.double().mean(0, keepdim=True).float(), budget)
    elif rule == "maxherding":
        square = quantile_square(features, FIRST_QUANTILE, generator=generator)
        rows, score = cover_greedily(features, features[:0], budget, square, generator=generator)
    else:
        labels = k_means(features, budget, generator=generator)
        centres = torch.stack([features[labels == label].mean(0) for label in labels.unique()])
        distance = torch.linalg.vector_norm(features - centres[labels.unique(return_inverse=True)[1]], dim=1)
        rows = pick_best_of_each(labels, -distance, budget)
        score = -distance[rows].double()
    return Selection(ids=[ids[row] for row in rows.tolist()], parts={"score": score})


def select_from_pool(
    strategy: Strategy,
    pool: Pool,
    context: SelectionContext,
    *,
    budget: int,
    candidates: int | Literal["all"],
    diagnostics: bool,
    address: Address,
) -> SelectedPool:
    """Select up to `budget` samples of the pool by a strategy, among so many `candidates` drawn at random.

    With `diagnostics`, return both models' outputs for every candidate, whether the strategy needs them or not.

    Raises:
        FealError: the strategy needs a model that no site has, or its selection is not valid.
    """
    considered = _draw_candidates(pool.ids, candidates, address, at_least=budget)
    is_observing = budget > 0 and strategy.needs_images
    observers: list[Observer] = [strategy.observe] if is_observing else []
    roles: set[Role] = set(strategy.required_roles()) if is_observing else set()
    if diagnostics:
        observers.append(observe_for_analysis)
        roles |= {"global", "local"}
    networks = _pick_networks(pool.networks, roles, strategy=type(strategy).__name__)
    observe = partial(
        observe_samples,
        read=pool.read,
        networks=networks,
        context=context,
        batch_size=pool.batch_size,
        scratch=pool.scratch,
        device=pool.device,
    )
    labelled = pool.labelled if is_observing and strategy.needs_labelled else []
    with (
        observe(labelled, observers=[strategy.observe]) as known,
        observe(considered, observers=observers) as columns,
    ):
        selection = Selection(ids=[])
        if budget > 0 and len(columns) > 0:
            labels = known if strategy.needs_labelled else None
            count = min(budget, len(columns))
            selection = strategy.choose(columns, labels, context, count, address.generator())
            validate_selection(selection, columns, budget, strategy=type(strategy).__name__)
        kept = [name for name in columns.values if name.startswith(_PREFIX)]
        outputs = {name.removeprefix(_PREFIX): columns[name].clone() for name in kept}
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
            "aleatoric_local": models["local"].uncertainty(images, context)[0],
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
