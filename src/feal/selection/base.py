"""Define the contract of a strategy: it observes every sample once, then chooses."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar, Literal, Self, get_args

import torch
from pydantic import Field
from torch import Generator, Tensor

from feal.errors import FealError
from feal.evidential import evidential_reading, uncertainties
from feal.losses import Loss, Objective
from feal.models import Network, Output
from feal.plugins import find_class, read_params
from feal.registry import Configurable, Registry
from feal.selection.scores import per_image
from feal.settings import ClassCountScope, Component, Task

QueryModel = Literal["global", "local", "ensemble"]

Role = Literal["global", "local", "initial", "global_previous", "local_previous", "finetuned", "local_only"]
PREVIOUS_ROLES: frozenset[Role] = frozenset({"global_previous", "local_previous"})
"""Models of the round before."""
EARLIER_ROLES: frozenset[Role] = PREVIOUS_ROLES | {"initial", "local_only"}
"""Models that need the weights which the run started with."""
ENOUGH_EPOCHS = 50
"""The most epochs for which a model is trained for a selection alone, as in LoGo's public code."""


@dataclass(frozen=True, kw_only=True)
class SelectionContext:
    """Hold what a strategy may know besides the samples' columns and its own parameters."""

    task: Task
    classes: int
    site_counts: Tensor
    """Labelled samples (or pixels) of each class at this site, float64 [classes]."""
    total_counts: Tensor
    """The same summed over all sites; the site's own where counts are not shared."""
    loss: Loss
    """What the models were trained by."""
    class_count_scope: ClassCountScope | None = None
    round: int = 1
    """The active-learning round at whose end is selected, from 1."""
    rounds: int = 2
    """The rounds of the run; the last one selects nothing."""

    @classmethod
    def for_reading(cls, *, task: Task, classes: int, loss: Loss) -> Self:
        """Return what it takes to read logits; counts of labels are a matter of selection."""
        none = torch.zeros(classes, dtype=torch.float64)
        return cls(task=task, classes=classes, site_counts=none, total_counts=none, loss=loss)

    @property
    def prior_counts(self) -> Tensor:
        """The counts of the class prior: the site's under `class_count_scope: site`, otherwise all sites'."""
        return self.site_counts if self.class_count_scope == "site" else self.total_counts

    @property
    def objective(self) -> Objective:
        """What a network is trained by at this site."""
        scope = self.class_count_scope or self.loss.class_count_scope
        return self.loss.objective(self.task, self.site_counts if scope == "site" else self.total_counts)

    def concentration(self, logits: Tensor) -> Tensor:
        """Return the Dirichlet parameters of logits, by default settings if the loss is not evidential."""
        return evidential_reading(self.loss).concentration(logits, task=self.task)

    def probability(self, logits: Tensor) -> Tensor:
        """Return class probabilities: alpha / S under the evidential loss, softmax otherwise."""
        return self.loss.probability(logits, task=self.task)


class RoleModel:
    """One model in its role; its output for the current batch is computed once for all observers."""

    def __init__(self, module: Network) -> None:
        self.module = module
        self.forget()

    def forget(self) -> None:
        """Release the last batch and what was computed of it."""
        self._batch: Tensor | None = None
        self._output: Output | None = None
        self._uncertainty: tuple[Tensor, Tensor] | None = None

    def __call__(self, images: Tensor) -> Output:
        if self._output is None or self._batch is not images:
            self.forget()
            self._batch, self._output = images, self.module.outputs(images)
        return self._output

    def uncertainty(self, images: Tensor, context: SelectionContext) -> tuple[Tensor, Tensor]:
        """Return aleatoric and epistemic uncertainty of each image, float64 [batch]: pixel means for masks."""
        output = self(images)
        if self._uncertainty is None:
            aleatoric, epistemic = uncertainties(context.concentration(output.logits))
            self._uncertainty = per_image(aleatoric), per_image(epistemic)
        return self._uncertainty


Models = Mapping[Role, RoleModel]


@dataclass(frozen=True)
class Columns:
    """What was observed: one row a sample, in the order of their ids.

    >>> Columns(["b", "a"], {"score": torch.tensor([2.0, 1.0])})["score"]
    tensor([1., 2.])
    """

    ids: Sequence[str]
    values: Mapping[str, Tensor]
    """Scalars as float64 [n]; wide columns as float32 [n, ...], possibly on disk."""

    def __post_init__(self) -> None:
        if any(after < before for before, after in pairwise(self.ids)):
            rows = sorted(range(len(self.ids)), key=self.ids.__getitem__)
            object.__setattr__(self, "ids", [self.ids[row] for row in rows])
            object.__setattr__(self, "values", {name: value[rows] for name, value in self.values.items()})

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, name: str) -> Tensor:
        """Return a column; without samples every column is empty."""
        return self.values[name] if self.ids else torch.empty(0, dtype=torch.float64)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Hold samples in order of preference, why each was selected, and what happened on the way."""

    ids: list[str]
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    """Numbers behind each sample, [len(ids)]; `score` is what it was ranked by."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """`rejected` for diversity, `filled` in because the strategy ran short."""


class Strategy(Configurable, ABC):
    """Decide which samples to label next.

    A subclass names its `roles` (the models it looks at), reduces each batch to a few numbers a sample in
    `observe`, and picks from the gathered columns in `choose`. Its parameters are the fields of its `Params`,
    which it reads as `self.params`. It never trains, never reads a file and never sees a label.
    """

    roles: ClassVar[frozenset[Role]] = frozenset()
    """Every model it may look at; `required_roles` says which under its parameters."""
    tasks: ClassVar[tuple[Task, ...]] = get_args(Task)
    """The tasks that it selects for; `load` and `feal.select` refuse others."""
    needs_images: bool = True
    """Whether it observes anything; without, no sample is read for it."""
    needs_labelled: bool = False
    """Whether it observes the labelled samples, too, and gets their columns."""
    folds_batch_norms: bool = False
    """Whether the networks' outputs suffice, so that batch norms may be folded, which changes their parameters."""
    is_full_supervision: ClassVar[bool] = False
    """Whether a run asks for every label at once, in its only round."""
    default_loss: ClassVar[str] = "plain"
    default_class_count_scope: ClassVar[ClassCountScope | None] = None
    source: ClassVar[str] = ""
    """Authors, venue and year."""

    def required_roles(self) -> frozenset[Role]:
        """Return the models it looks at under its parameters."""
        return self.roles

    @property
    def training_epochs(self) -> int:
        """The most epochs for which its `finetuned` and `local_only` models are trained."""
        return ENOUGH_EPOCHS

    @abstractmethod
    def observe(self, images: Tensor, models: Models, context: SelectionContext) -> dict[str, Tensor]:
        """Return small per-sample columns [batch, ...] of images [batch, channels, height, width]."""

    @abstractmethod
    def choose(
        self, pool: Columns, labelled: Columns | None, context: SelectionContext, budget: int, generator: Generator
    ) -> Selection:
        """Return `budget` distinct ids of the pool at most, best first: a pure function of its arguments."""


class RankingStrategy(Strategy):
    """Choose the samples with the largest score."""

    @abstractmethod
    def score_pool(self, pool: Columns, generator: Generator) -> dict[str, Tensor]:
        """Return the `score` of every sample of the pool [n], and further numbers behind it."""

    def choose(
        self, pool: Columns, labelled: Columns | None, context: SelectionContext, budget: int, generator: Generator
    ) -> Selection:
        parts = self.score_pool(pool, generator)
        return make_selection(pool, top_k(parts["score"], budget), parts)


QUERIED: Mapping[QueryModel, tuple[Role, ...]] = {
    "global": ("global",),
    "local": ("local",),
    "ensemble": ("global", "local"),
}
"""The models behind each `query_model`."""


class QueryingStrategy(Strategy):
    """Query a model of the user's choice: the global one, the local one, or both."""

    class Params(Strategy.Params):
        """Which model is queried."""

        query_model: QueryModel = Field("global", description="the model that is queried, or both")

    params: Params
    roles: ClassVar[frozenset[Role]] = frozenset({"global", "local"})

    def required_roles(self) -> frozenset[Role]:
        return frozenset(self.queried_roles())

    def queried_roles(self) -> tuple[Role, ...]:
        """Return the models that are queried, the global one first."""
        return QUERIED[self.params.query_model]


STRATEGIES: Registry[type[Strategy]] = Registry("strategy")


def check_task(strategy: Strategy, task: Task, *, name: str) -> None:
    """Raise a `FealError` unless the strategy selects for that task."""
    if task not in strategy.tasks:
        raise FealError(
            f"Strategy {name} is for {' and '.join(strategy.tasks)}, not for {task}: select by another one."
        )


def validate_selection(selection: Selection, pool: Columns, budget: int, *, strategy: str) -> None:
    """Raise a `FealError` unless these are `budget` distinct samples of the pool, with finite parts."""
    wanted = min(budget, len(pool))
    distinct = len(set(selection.ids) & set(pool.ids))
    if not len(selection.ids) == distinct == wanted:
        raise FealError(
            f"Strategy {strategy} chose {len(selection.ids)} samples, {distinct} different ones of the pool, "
            f"where {wanted} were asked for: correct its `choose`."
        )
    if wanted and "score" not in selection.parts:
        raise FealError(f"Strategy {strategy} chose without a part called score: correct its `choose`.")
    for name, part in selection.parts.items():
        if len(part) != wanted:
            raise FealError(f"Strategy {strategy} gave {len(part)} numbers as {name}, not one a sample chosen.")
        if not bool(torch.isfinite(part).all()):
            sample = selection.ids[int((~torch.isfinite(part)).nonzero()[0])]
            raise FealError(f"Strategy {strategy} gave sample {sample} a {name} that is not finite: correct it.")


def make_selection(pool: Columns, indices: Tensor, parts: Mapping[str, Tensor], **counts: int) -> Selection:
    """Return a selection by row numbers, with the selected rows of whole-pool parts."""
    return Selection(
        ids=[pool.ids[index] for index in indices.tolist()],
        parts={name: part[indices] for name, part in parts.items()},
        counts=counts,
    )


def find_strategy(name: str) -> type[Strategy]:
    """Return the registered strategy of that name, or a user's own: `module:Class` or `path/to/file.py:Class`.

    Raises:
        FealError: there is no such strategy, file, module or class, or it cannot be imported.

    >>> find_strategy("random").__name__
    'Random'
    """
    return find_class(name, registry=STRATEGIES, base=Strategy, derive="feal.selection.Strategy")


def build_strategy(strategy: Component) -> Strategy:
    """Return the strategy that a configuration names, with its parameters.

    Raises:
        FealError: there is no such strategy or parameter, or a value is not valid.

    >>> build_strategy(Component(name="entropy", query_model="local")).required_roles()
    frozenset({'local'})
    """
    owner = find_strategy(strategy.name)
    return owner(read_params(owner, strategy.params, section="strategy", name=strategy.name))


def top_k(score: Tensor, budget: int) -> Tensor:
    """Return row numbers of the `budget` largest scores [n], largest first, ties by row.

    >>> top_k(torch.tensor([1.0, 3.0, 2.0, 3.0]), 3).tolist()
    [1, 3, 2]
    """
    return torch.argsort(score, descending=True, stable=True)[:budget]
