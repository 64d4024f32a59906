"""Metrics: what a metric is, which ones there are, and their values for a round."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from feal.errors import FealError, unknown_name_error
from feal.metrics.statistics import Statistics, Sum, is_within, mean_of_known, pool
from feal.plugins import find_class, read_params
from feal.registry import Configurable, Registry
from feal.settings import Task

if TYPE_CHECKING:
    from torch import Tensor

Values = dict[str, dict[str, object]]
"""Metrics by name: `sites` (a number for each site), their `mean`, and `pooled` over all test samples."""


@dataclass(frozen=True, kw_only=True)
class EvaluatedBatch:
    """What a metric is computed from: `B` test samples with `C` classes; shapes of masks end in `[H, W]`."""

    logits: Tensor
    """`[B, C]`."""
    probability: Tensor
    """`[B, C]`: alpha / S under the evidential loss, a softmax otherwise."""
    prediction: Tensor
    """The class with the largest logit, int64 `[B]`."""
    target: Tensor
    """The true class, integers `[B]`."""


@dataclass(frozen=True)
class Bound:
    """What a sum may be: a number, or `length` numbers, each between `low` and `high`."""

    low: float
    high: float
    length: int | None = None


class Metric(Configurable, ABC):
    """A number that says how good a model is, computed from sums that can be added over batches and sites.

    A metric needs nothing but `compute` if it can be derived from the sums that every site reports
    (`Statistics`, with the confusion matrix). Otherwise `sums` reduces each batch to further sums, and `bounds`
    says what they may be, so that the coordinator can refuse a site that reports the impossible. Its parameters
    are the fields of its `Params`, which it reads as `self.params`.
    """

    name: ClassVar[str]
    """Lower-case letters, digits and underscores; the metric's key in all records."""
    title: ClassVar[str] = ""
    """Its name in tables; `name` with spaces if empty."""
    tasks: ClassVar[tuple[Task, ...]] = ("classification", "segmentation")
    lower_is_better: ClassVar[bool] = False
    role: ClassVar[Literal["primary", "table", "record"]] = "table"
    """`primary`: runs are compared by it; `table`: shown in tables; `record`: in the run's records only."""
    from_samples: ClassVar[bool] = False
    """Whether it needs the samples themselves: then it is computed where they are, never over sites' messages."""

    @abstractmethod
    def compute(self, statistics: Statistics, sums: Mapping[str, NDArray[np.float64]]) -> float | None:
        """Return the metric of the samples behind these sums; None where it is not defined.

        Args:
            statistics: sums that every site reports.
            sums: this metric's own, as `sums` returned them, added over batches and sites.
        """

    def sums(self, batch: EvaluatedBatch) -> Mapping[str, ArrayLike | Tensor]:
        """Return the metric's own sums over a batch: numbers or vectors, by name."""
        return {}

    def bounds(self, statistics: Statistics) -> Mapping[str, Bound]:
        """Return the smallest and largest possible value of each of the metric's own sums.

        Args:
            statistics: the same samples' common sums: number of samples, confusion matrix, and so on.
        """
        return {}

    def compute_parts(self, statistics: Statistics) -> Mapping[str, float | None]:
        """Return the metric of each named part, such as a region of a mask; recorded as `NAME_PART`."""
        return {}

    @property
    def variant(self) -> str:
        """The parameters that do not have their defaults, in words such as `rule pooled`; empty without any."""
        changed = self.params.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return ", ".join(f"{key} {value}" for key, value in changed.items())


METRICS: Registry[type[Metric]] = Registry("metric")
AnyMetric = TypeVar("AnyMetric", bound=type[Metric])


def register_metric(metric: AnyMetric) -> AnyMetric:
    """Decorate a metric that every run for its tasks computes."""
    summary = (metric.__doc__ or metric.name).strip().splitlines()[0]
    METRICS.register(metric.name, summary=summary)(metric)
    return metric


def find_metrics(
    task: str, names: Iterable[str] = (), params: Mapping[str, Mapping[str, Any]] | None = None
) -> list[Metric]:
    """Return the registered metrics of a task, the primary one first, and those named in addition.

    Args:
        task: classification or segmentation.
        names: metrics to add, as `file.py:Class` or `module:Class`.
        params: values of their parameters, by the metrics' names.

    Raises:
        FealError: there is no such metric or parameter, a value is not valid, or the metric is for the other task
            or does not keep the contract.

    >>> [metric.name for metric in find_metrics("segmentation")]
    ['dice', 'hd95', 'accuracy', 'calibration_error']
    """
    found = {metric.name: metric for metric in _registered(task) if not metric.from_samples}
    for name in names:
        metric = _find_metric(name, task)
        found.setdefault(metric.name, metric)
    params = params or {}
    for name in params.keys() - found.keys():
        raise unknown_name_error(f"metric of a run for {task} called", name, found)
    return [
        metric(read_params(metric, params.get(name, {}), section="metric", name=name, prefix=f"metric.{name}."))
        for name, metric in found.items()
    ]


def primary_metric(task: str) -> str:
    """Return the name of the metric that runs of a task are compared by.

    >>> primary_metric("classification")
    'balanced_accuracy'
    """
    return _registered(task)[0].name


def table_metrics(task: str, recorded: Iterable[str]) -> list[str]:
    """Return those of the recorded metrics that tables show: registered ones for tables, then a user's.

    >>> table_metrics("segmentation", ["accuracy", "brier", "dice", "dice_cup", "hd95"])
    ['dice', 'hd95', 'brier']
    """
    recorded = list(recorded)
    known = [metric.name for metric in _registered(task) if metric.role != "record" and metric.name in recorded]
    return known + [name for name in recorded if _metric_of(name) is None]


def title_of(name: str, variant: str = "") -> str:
    """Return the name of a metric in tables, with its `variant` if there is any.

    >>> title_of("hd95"), title_of("hd95", "rule pooled"), title_of("balanced_accuracy")
    ('HD95', 'HD95 (rule pooled)', 'balanced accuracy')
    """
    metric = METRICS.get(name) if name in METRICS.names() else None
    title = (metric.title if metric else "") or name.replace("_", " ")
    return f"{title} ({variant})" if variant else title


def lower_is_better(name: str) -> bool:
    """Whether a metric is an error or a distance.

    >>> lower_is_better("hd95_cup"), lower_is_better("dice")
    (True, False)
    """
    metric = _metric_of(name)
    return metric is not None and metric.lower_is_better


def compute_metrics(metrics: Sequence[Metric], by_site: Mapping[str, Statistics | None]) -> Values:
    """Compute metrics of each site, their mean over sites, and over all sites' test samples pooled.

    Parts of a metric, such as regions, follow as `NAME_PART` where there is more than one.
    """
    tested = {site: statistics for site, statistics in by_site.items() if statistics is not None}
    pooled = pool(tested)
    values: Values = {}
    for metric in metrics:
        sites = {site: _compute(metric, tested[site]) if site in tested else None for site in by_site}
        values[metric.name] = _over_sites(sites, _compute(metric, pooled) if pooled is not None else None)
        if metric.lower_is_better and metric.name not in METRICS.names():
            values[metric.name]["lower_is_better"] = True
        if metric.variant:
            values[metric.name]["variant"] = metric.variant
    for metric in metrics:
        parts = metric.compute_parts(pooled) if pooled is not None else {}
        by_site_parts = {site: metric.compute_parts(statistics) for site, statistics in tested.items()}
        for part in parts if len(parts) > 1 else ():
            sites = {site: by_site_parts.get(site, {}).get(part) for site in by_site}
            values[f"{metric.name}_{part}"] = _over_sites(sites, parts[part])
            if metric.variant:
                values[f"{metric.name}_{part}"]["variant"] = metric.variant
    return values


def extra_sums(metrics: Sequence[Metric], batch: EvaluatedBatch) -> dict[str, dict[str, Sum]]:
    """Return the own sums of each metric over a batch, as they go into `Statistics.extra`.

    Raises:
        FealError: a metric fails, or a sum is neither a finite number nor a vector of such.
    """
    return {metric.name: sums for metric in metrics if (sums := _own_sums(metric, batch))}


def find_bad_sum(statistics: Statistics, metrics: Sequence[Metric]) -> str:
    """Return which sum of a metric is missing, unknown or impossible, in a few words; empty if none is."""
    declared = {metric.name: bounds for metric in metrics if (bounds := metric.bounds(statistics))}
    if statistics.extra.keys() != declared.keys():
        return f"sums of {_listed(statistics.extra)}, not of {_listed(declared)}"
    for name, bounds in declared.items():
        sums = statistics.extra[name]
        if sums.keys() != bounds.keys():
            return f"{name} with sums {_listed(sums)}, not {_listed(bounds)}"
        for part, bound in bounds.items():
            if not _is_bounded(sums[part], bound):
                return f"{name} with an impossible {part}"
    return ""


def _registered(task: str) -> list[type[Metric]]:
    """Return the registered metrics of a task in the order of records."""
    metrics = [METRICS.get(name) for name in METRICS.names()]
    roles = ("primary", "table", "record")
    return sorted(
        (metric for metric in metrics if task in metric.tasks),
        key=lambda metric: (roles.index(metric.role), metric.name),
    )


def _find_metric(name: str, task: str) -> type[Metric]:
    metric: type[Metric] = find_class(name, registry=METRICS, base=Metric, derive="feal.metrics.Metric")
    own = getattr(metric, "name", "")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", own):
        raise FealError(f"The metric {name} has no usable name: set `name` to lower-case letters, as in 'brier'.")
    if ":" in name and _metric_of(own) is not None:
        raise FealError(f"The metric {name} is called {own}, and so is a built-in one: set another `name`.")
    if task not in metric.tasks:
        raise FealError(f"The metric {name} is for {' and '.join(metric.tasks)}, not for {task}: leave it out.")
    return metric


def _metric_of(name: str) -> type[Metric] | None:
    """Return the registered metric of a recorded name, which may be that of a part."""
    owners = [known for known in METRICS.names() if name == known or name.startswith(f"{known}_")]
    return METRICS.get(max(owners, key=len)) if owners else None


def _compute(metric: Metric, statistics: Statistics) -> float | None:
    own = statistics.extra.get(metric.name, {})
    sums = {name: np.asarray(value, dtype=np.float64) for name, value in own.items()}
    try:
        value = metric.compute(statistics, sums)
        value = None if value is None else float(value)
    except Exception as error:  # a user's class may fail in any way
        raise _failure(metric, error) from error
    return value if value is not None and np.isfinite(value) else None


def _over_sites(sites: dict[str, float | None], pooled: float | None) -> dict[str, object]:
    return {"mean": mean_of_known(sites.values()), "pooled": pooled, "sites": sites}


def _own_sums(metric: Metric, batch: EvaluatedBatch) -> dict[str, Sum]:
    try:
        arrays = {name: _as_array(value) for name, value in metric.sums(batch).items()}
    except Exception as error:  # a user's class may fail in any way
        raise _failure(metric, error) from error
    for name, array in arrays.items():
        if array.ndim > 1 or not np.isfinite(array).all():
            raise FealError(
                f"The sum {name} of the metric {metric.name} is not a finite number or vector: correct its `sums`."
            )
    return {name: array.tolist() for name, array in arrays.items()}


def _as_array(value: ArrayLike | Tensor) -> NDArray[np.float64]:
    tensor = value.detach().cpu().double().numpy() if hasattr(value, "detach") else value
    return np.asarray(tensor, dtype=np.float64)


def _is_bounded(value: Sum, bound: Bound) -> bool:
    values, length = (value, len(value)) if isinstance(value, list) else ([value], None)
    return length == bound.length and all(is_within(number, bound.low, bound.high) for number in values)


def _failure(metric: Metric, error: Exception) -> FealError:
    return FealError(f"The metric {metric.name} failed ({type(error).__name__}: {error}): correct it.")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
