"""A strategy observes every sample once, then chooses: the contract, and what it is given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import ClassVar, Literal

import torch

from feal.errors import FealError
from feal.evidential import aleatoric, concentration, expected_probability, uncertainties
from feal.models import Network, Output
from feal.registry import Registry
from feal.settings import Counts, Evidence, Loss, QueryModel, Selection, Task

Role = Literal["global", "local", "initial", "global_previous", "local_previous", "finetuned", "local_only"]


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a strategy may know besides the samples' columns."""

    task: Task
    classes: int
    site_counts: torch.Tensor
    """Labelled samples (or pixels) of each class at this site, float64 [classes]."""
    total_counts: torch.Tensor
    """The same summed over all sites; the site's own where counts are not shared."""
    selection: Selection
    evidence: Evidence
    loss: Loss
    counts: Counts | None = None
    query_model: QueryModel | None = None

    @classmethod
    def for_reading(cls, *, task: Task, classes: int, evidence: Evidence, loss: Loss) -> Context:
        """What it takes to read logits; counts of labels are a matter of selection."""
        none = torch.zeros(classes, dtype=torch.float64)
        return cls(
            task=task,
            classes=classes,
            site_counts=none,
            total_counts=none,
            selection=Selection(),
            evidence=evidence,
            loss=loss,
        )

    @property
    def prior_counts(self) -> torch.Tensor:
        """The counts that stand for the class prior: the site's own under `counts: site`, otherwise all sites'."""
        return self.site_counts if self.counts == "site" else self.total_counts

    def concentration(self, logits: torch.Tensor) -> torch.Tensor:
        """Dirichlet parameters of logits, as the loss sees them."""
        squared = self.task == "segmentation" if self.evidence.squared is None else self.evidence.squared
        return concentration(logits, self.evidence.activation, squared=squared)

    def probability(self, logits: torch.Tensor) -> torch.Tensor:
        """Class probabilities: alpha / S under the evidential loss, softmax otherwise."""
        if self.loss == "evidential":
            return expected_probability(self.concentration(logits))
        return torch.softmax(logits, dim=1)


class RoleModel:
    """One model in its role; what it says of the batch at hand is computed once, whoever asks."""

    def __init__(self, module: Network) -> None:
        self.module = module
        self._batch: torch.Tensor | None = None
        self._output: Output | None = None
        self._aleatoric: torch.Tensor | None = None
        self._epistemic: torch.Tensor | None = None

    def __call__(self, images: torch.Tensor) -> Output:
        if self._output is None or self._batch is not images:
            self.forget()
            self._batch, self._output = images, self.module.outputs(images)
        return self._output

    def aleatoric(self, images: torch.Tensor, context: Context) -> torch.Tensor:
        """Aleatoric uncertainty of each image, float64 [batch]: the pixel mean for segmentation."""
        output = self(images)
        if self._aleatoric is None:
            self._aleatoric = per_image(aleatoric(context.concentration(output.logits)))
        return self._aleatoric

    def uncertainty(self, images: torch.Tensor, context: Context) -> tuple[torch.Tensor, torch.Tensor]:
        """Aleatoric and epistemic uncertainty of each image; together they cost little more than one."""
        output = self(images)
        if self._aleatoric is None or self._epistemic is None:
            both = uncertainties(context.concentration(output.logits))
            self._aleatoric, self._epistemic = per_image(both[0]), per_image(both[1])
        return self._aleatoric, self._epistemic

    def forget(self) -> None:
        """Let go of the last batch."""
        self._batch = self._output = self._aleatoric = self._epistemic = None


def per_image(values: torch.Tensor) -> torch.Tensor:
    """One number an image: [batch] as it is, the mean over pixels of [batch, height, width]."""
    return values.flatten(1).mean(1) if values.dim() > 1 else values


Models = Mapping[Role, RoleModel]


@dataclass(frozen=True)
class Columns:
    """What was observed: one row a sample, in the order of their ids, whatever order they came in.

    >>> Columns(["b", "a"], {"score": torch.tensor([2.0, 1.0])})["score"]
    tensor([1., 2.])
    """

    ids: Sequence[str]
    values: Mapping[str, torch.Tensor]
    """Scalars as float64 [n]; wide columns as float32 [n, ...], possibly on disk."""

    def __post_init__(self) -> None:
        if any(after < before for before, after in pairwise(self.ids)):
            rows = sorted(range(len(self.ids)), key=self.ids.__getitem__)
            object.__setattr__(self, "ids", [self.ids[row] for row in rows])
            object.__setattr__(self, "values", {name: value[rows] for name, value in self.values.items()})

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, name: str) -> torch.Tensor:
        """A column; without samples nothing was observed, and every column is empty."""
        return self.values[name] if self.ids else torch.empty(0, dtype=torch.float64)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Samples in order of preference, why each was chosen, and what happened on the way."""

    ids: list[str]
    parts: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Numbers behind each choice, [len(ids)]; `score` is what it was ranked by."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """`rejected` for diversity, `filled` in because the strategy ran short."""


EVERY_SETTING = ("selection.*", "evidence.*")
"""What a strategy can look at."""


class Strategy(ABC):
    """Which samples to label next.

    A subclass names its `roles` (the models it looks at), reduces each batch to a few numbers a sample in
    `observe`, and picks from the gathered columns in `choose`. It never trains, never reads a file and never
    sees a label.
    """

    roles: ClassVar[frozenset[Role]] = frozenset()
    """Every model it may look at; `roles_for` says which under given settings."""
    needs_images: ClassVar[bool] = True
    """Whether it observes anything; without, no sample is read for it."""
    needs_gradients: ClassVar[bool] = False
    needs_labelled: ClassVar[bool] = False
    """Whether it observes the labelled samples, too, and gets their columns."""
    everything: ClassVar[bool] = False
    """Whether a run asks for every label at once, in its only round."""
    query_models: ClassVar[tuple[QueryModel, ...]] = ()
    """What `query_model` may be; the first is the default."""
    default_loss: ClassVar[Loss] = "plain"
    default_counts: ClassVar[Counts | None] = None
    settings: ClassVar[tuple[str, ...]] = EVERY_SETTING
    """Settings that its choice depends on, `*` for any letters; see `heeds`."""
    source: ClassVar[str] = ""
    """Authors, venue and year."""

    @classmethod
    def roles_for(cls, *, query_model: QueryModel | None, selection: Selection) -> frozenset[Role]:
        """The models it looks at under these settings."""
        del query_model, selection
        return cls.roles

    @classmethod
    def heeds(cls, setting: str) -> bool:
        """Whether its choice depends on a setting, by dotted name.

        Every class names its `settings` itself, also where they are none: one that inherits them may look at
        more than its parent does, and so is taken to look at all.
        """
        named: tuple[str, ...] = vars(cls).get("settings", EVERY_SETTING)
        return any(fnmatchcase(setting, pattern) for pattern in named)

    @abstractmethod
    def observe(self, images: torch.Tensor, models: Models, context: Context) -> dict[str, torch.Tensor]:
        """Small per-sample columns [batch, ...] of a batch of images [batch, channels, height, width]."""

    @abstractmethod
    def choose(
        self,
        pool: Columns,
        labelled: Columns | None,
        context: Context,
        budget: int,
        generator: torch.Generator,
    ) -> Choice:
        """At most `budget` distinct ids of the pool, best first: a pure function of its arguments."""


QUERIED: Mapping[QueryModel, tuple[Role, ...]] = {
    "global": ("global",),
    "local": ("local",),
    "ensemble": ("global", "local"),
}
"""The models behind each `query_model`."""


class QueryingStrategy(Strategy):
    """A strategy that lets one choose which model is asked: the global, the local, or both."""

    roles: ClassVar[frozenset[Role]] = frozenset({"global", "local"})
    query_models: ClassVar[tuple[QueryModel, ...]] = ("global", "local", "ensemble")

    @classmethod
    def roles_for(cls, *, query_model: QueryModel | None, selection: Selection) -> frozenset[Role]:
        del selection
        return frozenset(QUERIED[query_model or cls.query_models[0]])

    def asked_roles(self, context: Context) -> tuple[Role, ...]:
        """The models that are asked, the global one first."""
        return QUERIED[context.query_model or self.query_models[0]]


STRATEGIES: Registry[type[Strategy]] = Registry("strategy")


def check_choice(choice: Choice, pool: Columns, budget: int, *, strategy: str) -> None:
    """Raise a `FealError` unless a choice is `budget` distinct samples of the pool, with finite parts."""
    wanted = min(budget, len(pool))
    distinct = len(set(choice.ids) & set(pool.ids))
    if not len(choice.ids) == distinct == wanted:
        raise FealError(
            f"Strategy {strategy} chose {len(choice.ids)} samples, {distinct} different ones of the pool, "
            f"where {wanted} were asked for: mend its `choose`."
        )
    if wanted and "score" not in choice.parts:
        raise FealError(f"Strategy {strategy} chose without a part called score: mend its `choose`.")
    for name, part in choice.parts.items():
        if len(part) != wanted:
            raise FealError(f"Strategy {strategy} gave {len(part)} numbers as {name}, not one a sample chosen.")
        if not bool(torch.isfinite(part).all()):
            sample = choice.ids[int((~torch.isfinite(part)).nonzero()[0])]
            raise FealError(f"Strategy {strategy} gave sample {sample} a {name} that is not finite: mend it.")


def chosen(pool: Columns, indices: torch.Tensor, parts: Mapping[str, torch.Tensor], **counts: int) -> Choice:
    """A choice by row numbers, with the chosen rows of whole-pool parts."""
    return Choice(
        ids=[pool.ids[index] for index in indices.tolist()],
        parts={name: part[indices] for name, part in parts.items()},
        counts=counts,
    )
