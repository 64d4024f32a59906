"""Two strategies side by side in one run: a share of the budget to each."""

import math
from typing import Any

import torch
from pydantic import Field
from torch import Generator, Tensor

from feal.errors import FealError
from feal.registry import Parameters
from feal.selection.base import (
    STRATEGIES,
    Columns,
    Models,
    Role,
    Selection,
    SelectionContext,
    Strategy,
    build_strategy,
    check_task,
)
from feal.selection.strategies.random import Random
from feal.settings import Component

ARMS = ("first", "second")


@STRATEGIES.register("mixed", summary="two strategies by share, each sample marked by the one that chose it")
class Mixed(Strategy):
    """The share `share` of the budget (rounded) by `first`, the rest by `second` among the samples not yet taken.

    If `second` is `random`, it draws before, uniformly from the whole pool, and `first` chooses among the rest: so
    its samples are a valid control within the run, the same that `random` would draw first. The selection lists
    the samples of `first`, then those of `second`, each in their order of preference. `arm` is 0 for a sample of
    `first` and 1 for one of `second`; `score` is on the scale of its arm.

    Both are registered names, or mappings with parameters: `first: {name: maxherding, quantile: 0.2}`. The default
    loss is the plain one whatever they are.
    """

    source = "this project"

    class Params(Strategy.Params):
        """Which strategies, and how much of the budget each has."""

        first: Component = Field(Component(name="maxherding"), description="the strategy that is tried")
        second: Component = Field(
            Component(name="random"), description="the strategy beside it, such as a control"
        )
        share: float = Field(0.8, ge=0, le=1, description="share of the budget that the first one selects")

    params: Params

    def __init__(self, params: Parameters | None = None, /, **values: Any) -> None:
        super().__init__(params, **values)
        self._arms = {"first": _build_arm(self.params.first), "second": _build_arm(self.params.second)}
        arms = self._arms.values()
        self.needs_images = any(arm.needs_images for arm in arms)
        self.needs_labelled = any(arm.needs_labelled for arm in arms)
        self.folds_batch_norms = all(arm.folds_batch_norms for arm in arms if arm.needs_images)

    def required_roles(self) -> frozenset[Role]:
        return frozenset[Role]().union(*(arm.required_roles() for arm in self._arms.values()))

    @property
    def training_epochs(self) -> int:
        return max(arm.training_epochs for arm in self._arms.values())

    def observe(self, images: Tensor, models: Models, context: SelectionContext) -> dict[str, Tensor]:
        columns = dict[str, Tensor]()
        for (name, arm), given in zip(self._arms.items(), (self.params.first, self.params.second), strict=True):
            check_task(arm, context.task, name=given.name)
            if arm.needs_images:
                observed = arm.observe(images, models, context)
                columns |= {f"{name}.{column}": value for column, value in observed.items()}
        return columns

    def choose(
        self, pool: Columns, labelled: Columns | None, context: SelectionContext, budget: int, generator: Generator
    ) -> Selection:
        budget = min(budget, len(pool))
        if budget == 0:
            return Selection(ids=[], parts={"score": torch.empty(0)})
        first = math.floor(self.params.share * budget + 0.5)
        counts = {"first": first, "second": budget - first}
        order = ARMS[::-1] if isinstance(self._arms["second"], Random) else ARMS
        found, taken = dict[str, Selection](), set[str]()
        for name in order:
            arm = self._arms[name]
            rest = _columns_of(pool, name, without=taken)
            known = _columns_of(labelled, name) if arm.needs_labelled and labelled is not None else None
            found[name] = arm.choose(rest, known, context, counts[name], generator)
            taken |= set(found[name].ids)
        chosen = [found[name] for name in ARMS if found[name].ids]
        arms = [torch.full((counts[name],), float(ARMS.index(name)), dtype=torch.float64) for name in ARMS]
        score = torch.cat([selection.parts["score"].double() for selection in chosen])
        kinds = {kind for selection in chosen for kind in selection.counts}
        return Selection(
            ids=[sample for selection in chosen for sample in selection.ids],
            parts={"score": score, "arm": torch.cat(arms)},
            counts={kind: sum(selection.counts.get(kind, 0) for selection in chosen) for kind in sorted(kinds)},
        )


def _build_arm(given: Component) -> Strategy:
    """Return a registered strategy: what a site may run is decided by the name in its configuration alone."""
    arm = STRATEGIES.get(given.name)
    if arm.is_full_supervision or issubclass(arm, Mixed):
        raise FealError(f"Strategy mixed cannot have {given.name} as a part: name another strategy.")
    return build_strategy(given)


def _columns_of(columns: Columns, arm: str, *, without: set[str] | None = None) -> Columns:
    """Return the columns of one arm, of all samples but these."""
    start = f"{arm}."
    values = {name.removeprefix(start): value for name, value in columns.values.items() if name.startswith(start)}
    if not without:
        return Columns(columns.ids, values)
    rows = [row for row, sample in enumerate(columns.ids) if sample not in without]
    return Columns([columns.ids[row] for row in rows], {name: value[rows] for name, value in values.items()})
