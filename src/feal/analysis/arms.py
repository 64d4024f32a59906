"""Arms, runs that differ in the seed only, and the measure by which they are compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from feal.analysis.runs import Over, Run
from feal.errors import FealError, unknown_name_error
from feal.metrics import lower_is_better, primary_metric
from feal.plugins import short_name

_ORDER = {"random": 0, "feal": 2}
"""Sort order: baselines first, the proposed method last."""
_QUERY_MODELS = ("", "global", "local", "ensemble")
_METRIC_WORDS = {"hd95": "HD95", "dice": "Dice", "calibration_error": "expected calibration error"}


def describe_metric(metric: str) -> str:
    """Return a metric's name as people write it.

    >>> describe_metric("balanced_accuracy"), describe_metric("hd95_cup"), describe_metric("calibration_error")
    ('balanced accuracy', 'HD95 cup', 'expected calibration error')
    """
    if metric in _METRIC_WORDS:
        return _METRIC_WORDS[metric]
    first, _, rest = metric.partition("_")
    return " ".join(filter(None, (_METRIC_WORDS.get(first, first), rest.replace("_", " "))))


@dataclass(frozen=True, kw_only=True)
class Arm:
    """Runs with the same settings and different seeds."""

    name: str
    runs: tuple[Run, ...]
    """In the order of seeds."""

    @property
    def strategy(self) -> str:
        """Return the strategy's short name."""
        return short_name(self.runs[0].settings.strategy.name)

    @property
    def query_model(self) -> str:
        """Return the query model; empty for strategies without that choice."""
        return self.runs[0].settings.query_model or ""

    @property
    def differences(self) -> str:
        """Return the settings that distinguish it from arms of the same strategy and query model."""
        return self.name.removeprefix(" ".join(filter(None, (self.strategy, self.query_model)))).strip(" ,")

    @property
    def series(self) -> str:
        """Return its name without the query model, so that a strategy looks the same in every panel of a plot."""
        return " ".join(filter(None, (self.strategy, self.differences)))

    @property
    def loss(self) -> str | None:
        """Return the training loss."""
        return self.runs[0].settings.loss_name

    @property
    def seeds(self) -> list[int]:
        """Return the seeds of its runs."""
        return [run.settings.seed for run in self.runs]

    @property
    def is_full(self) -> bool:
        """Return whether everything is labelled at once: the upper bound of the others."""
        return self.runs[0].settings.budget == "all"

    @property
    def is_finished(self) -> bool:
        """Return whether any of its runs is finished."""
        return any(run.status == "finished" for run in self.runs)

    @property
    def counted_runs(self) -> tuple[Run, ...]:
        """Return its finished runs, or all runs if none is finished."""
        return tuple(run for run in self.runs if run.status == "finished" or not self.is_finished)

    def remarks(self) -> list[str]:
        """Return a sentence on unfinished runs, and one for each unreadable line of a log."""
        unfinished = [run for run in self.runs if run.status != "finished"]
        notes = []
        if unfinished:
            runs = ", ".join(f"seed {run.settings.seed} ({_describe_progress(run)})" for run in unfinished)
            use = (
                "left out, as others are finished" if self.is_finished else "shown up to their last complete round"
            )
            notes.append(f"{self.name} is unfinished: {runs}; {use}.")
        return notes + [problem for run in self.runs for problem in run.problems]


@dataclass(frozen=True, kw_only=True)
class Measure:
    """What arms are compared by: a metric, its direction, and whether test samples are pooled over sites."""

    metric: str
    over: Over = "pooled"
    lower_is_better: bool = False
    variant: str = ""
    """The metric's parameters that do not have their defaults, where all runs agree on them."""

    @property
    def sign(self) -> int:
        """Return -1 where lower is better, else 1."""
        return -1 if self.lower_is_better else 1

    def of(self, run: Run) -> NDArray[np.float64]:
        """Return its values in a run, [rounds]; NaN where a round has none."""
        return run.values(self.metric, over=self.over)


def group_by_arm(runs: Sequence[Run]) -> list[Arm]:
    """Return the arms of runs in the order of their names.

    The name is the strategy with its query model, then, as far as needed to distinguish arms, the loss and every
    other setting in which arms of that name differ.

    Raises:
        FealError: a seed occurs twice in one arm.
    """
    kinds: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.settings.seed):
        kinds.setdefault(run.kind, []).append(run)
    names = _name_kinds([group[0] for group in kinds.values()])
    for name, group in zip(names, kinds.values(), strict=True):
        for one, other in pairwise(group):
            if one.settings.seed == other.settings.seed:
                raise FealError(
                    f"{one.path} and {other.path} are both {name} with seed {one.settings.seed}: leave one out."
                )
    arms = (Arm(name=name, runs=tuple(group)) for name, group in zip(names, kinds.values(), strict=True))
    return sorted(arms, key=lambda arm: arm.name)


def pick_arm(runs: Sequence[Run]) -> Arm:
    """Return the arm for plots that show only one: feal, else one with evidential loss, else the first."""
    arms = group_by_arm(runs)
    evidential = [arm for arm in arms if arm.loss == "evidential"]
    return next((arm for arm in evidential if arm.strategy == "feal"), (evidential or arms)[0])


def make_arms(runs: Sequence[Run]) -> list[Arm]:
    """Return the arms of runs: full supervision, random, the others by name, feal.

    Raises:
        FealError: a seed occurs twice in one arm.
    """
    return sorted(
        group_by_arm(runs),
        key=lambda arm: (
            not arm.is_full,
            _ORDER.get(arm.strategy, 1),
            arm.strategy,
            _QUERY_MODELS.index(arm.query_model),
            arm.name,
        ),
    )


def resolve_measure(arms: Sequence[Arm], metric: str | None = None, *, over: Over = "pooled") -> Measure:
    """Return the measure of a metric, by default the task's primary one.

    Raises:
        FealError: the runs have no such metric; with the nearest spelling.
    """
    records = [record for arm in arms for run in arm.counted_runs for record in run.rounds]
    primary = primary_metric(arms[0].runs[0].task)
    names = {name for record in records for name in record.metrics} or {primary}
    if metric is not None and metric not in names:
        raise unknown_name_error("metric", metric, names)
    name = metric or primary
    # The records say so of a user's metric, which is in no registry.
    values = [record.metrics[name] for record in records if name in record.metrics]
    is_lower_better = any(value.lower_is_better for value in values) or lower_is_better(name)
    variants = {value.variant for value in values}
    variant = variants.pop() if len(variants) == 1 else ""
    return Measure(metric=name, over=over, lower_is_better=is_lower_better, variant=variant)


def _name_kinds(kinds: Sequence[Run]) -> list[str]:
    names = [
        " ".join(filter(None, (short_name(run.settings.strategy.name), run.settings.query_model))) for run in kinds
    ]
    with_loss = [f"{name} {run.settings.loss_name}" for name, run in zip(names, kinds, strict=True)]
    names = _where_needed(names, with_loss)
    return _where_needed(names, [_with_differences(run, kinds, names) for run in kinds])


def _where_needed(names: Sequence[str], longer: Sequence[str]) -> list[str]:
    return [name if names.count(name) == 1 else more for name, more in zip(names, longer, strict=True)]


def _with_differences(run: Run, kinds: Sequence[Run], names: Sequence[str]) -> str:
    name = names[kinds.index(run)]
    alike = [other for other, called in zip(kinds, names, strict=True) if called == name]
    apart = {key: value for key, value in run.decisive.items() if any(o.decisive.get(key) != value for o in alike)}
    return ", ".join([name, *(f"{key}={value}" for key, value in apart.items())])


def _describe_progress(run: Run) -> str:
    waits = ", waiting for labels" if run.status == "waiting" else ""
    return f"{len(run.rounds)} of {run.settings.rounds} rounds{waits}"
