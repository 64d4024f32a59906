"""Compare arms: paired differences with intervals, areas under curves, labels saved, and what limits them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from feal.analysis.arms import Arm, Curve, Over
from feal.analysis.stats import (
    FEW,
    Difference,
    area_under_curve,
    describe_difference,
    labels_to_reach,
    mean_after_first_round,
    mean_and_deviation,
    paired_difference,
)
from feal.errors import FealError, unknown_name_error
from feal.metrics import lower_is_better, primary_metric

SELECTION_SETTINGS = ("strategy", "selection.")
"""Prefixes of settings that say how samples are selected."""
LOSS_SETTINGS = ("loss", "class_count_scope")
"""Prefixes of settings that say what training minimises."""


class Summary(NamedTuple):
    """A whole run in three numbers; comparisons are decided by the outcome."""

    outcome: float
    """Mean of rounds 2 to R; NaN for one round."""
    area: float
    """Area under the curve over labels, divided by its span; NaN where labels never grow."""
    last: float


@dataclass(frozen=True, kw_only=True)
class ArmDifference(Difference):
    """The difference of an arm to a reference over the seeds that both have."""

    arm: str
    reference: str
    quantity: str
    """The compared field of `Summary`."""
    lower_is_better: bool = False

    @property
    def sentence(self) -> str:
        """Return the difference in words."""
        return describe_difference(
            self, arm=self.arm, reference=self.reference, lower_is_better=self.lower_is_better
        )


@dataclass(frozen=True, kw_only=True)
class ArmResult:
    """An arm over all rounds that the compared arms share; NaN where a number is missing."""

    arm: Arm
    curves: tuple[Curve, ...]
    outcome: tuple[float, float]
    """Mean and standard deviation over seeds."""
    area: tuple[float, float]
    last: float
    """Mean over seeds of the last round."""
    first_labels: float
    """Labels of a site in the first round, below which a level cannot be located."""
    labels: float = math.nan
    """Labels of a site at which the mean curve reaches the share of full supervision."""
    all_labels: float = math.nan
    """Labels of a site under full supervision."""
    difference: ArmDifference | None = None
    """To the reference; None for the reference itself."""
    to_plain: ArmDifference | None = None
    """To random on the plain loss, where the reference is another: the effect of selection and loss together."""
    labels_to_match: float = math.nan
    """Labels of a site at which the mean curve reaches the reference's last value."""
    reference_labels: float = math.nan
    """Labels of a site that the reference has in the last round."""

    @property
    def n(self) -> int:
        """Return the number of seeds."""
        return len(self.curves)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The results of all arms, by one metric."""

    metric: str
    over: Over
    share: float
    rounds: int
    results: tuple[ArmResult, ...]
    remarks: tuple[str, ...]
    """What limits the comparison."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return a sentence for each difference."""
        pairs = ((result.difference, result.to_plain) for result in self.results)
        return tuple(difference.sentence for pair in pairs for difference in pair if difference)


def compare_arms(
    arms: Sequence[Arm],
    *,
    metric: str | None = None,
    over: Over = "pooled",
    share: float = 0.95,
    to: str | None = None,
) -> Comparison:
    """Compare every arm that has a finished run without gaps, over the rounds that all of them have.

    Args:
        arms: the arms, with or without full supervision.
        metric: by default the task's primary one.
        over: values of all test samples together, or means of the sites' values.
        share: of full supervision's value; where lower is better, full supervision's value is divided by it.
        to: the reference arm. By default the random arm with the same loss and the fewest other differing
            settings, and additionally random on the plain loss.

    Raises:
        FealError: the metric is unknown, the arm `to` is missing or unfinished, or the share is out of range.
    """
    if not 0 < share <= 1:
        raise FealError(f"The share {share:g} is out of range: give a number above 0 and up to 1, such as 0.95.")
    scale = _Scale(resolve_metric(arms, metric), over)
    compared = {arm.name: arm for arm in arms if not arm.is_full and scale.known(arm.complete_curves)}
    references = _find_references(arms, compared, to)
    full = [arm for arm in arms if arm.is_full and scale.known(arm.complete_curves)]
    rounds = min((len(curve.points) for arm in compared.values() for curve in arm.complete_curves), default=0)
    curves = {name: _truncate(scale.known(arm.complete_curves), rounds) for name, arm in compared.items()}
    results = []
    for name, arm in compared.items():
        reference, bound = _find_nearest(arm, references), _find_nearest(arm, full)
        plain = _find_plain(arm, references) if to is None else None
        result = replace(
            _summarize_arm(arm, curves[name], scale),
            difference=_subtract(arm, reference, curves, scale),
            to_plain=None if plain is reference else _subtract(arm, plain, curves, scale),
        )
        if result.difference:
            result = _with_labels_to_match(result, curves[result.difference.reference], scale)
        results.append(result if bound is None else _with_labels_to_share(result, bound, scale, share))
    return Comparison(
        metric=scale.metric,
        over=over,
        share=share,
        rounds=rounds,
        results=tuple(results),
        remarks=tuple(_remarks(results, references, full, rounds=rounds)),
    )


def resolve_metric(arms: Sequence[Arm], metric: str | None) -> str:
    """Return the metric's name, or that of the task's primary one.

    Raises:
        FealError: the runs have no such metric; with the nearest spelling.
    """
    curves = [curve for arm in arms for curve in arm.curves]
    primary = primary_metric(curves[0].task)
    names = {name for curve in curves for point in curve.points for name in point.pooled} or {primary}
    if metric is not None and metric not in names:
        raise unknown_name_error("metric", metric, names)
    return metric or primary


def summarize_curve(curve: Curve, *, metric: str | None = None, over: Over = "pooled") -> Summary:
    """Return the summary of a run by a metric."""
    values, labels = curve.values(metric, over=over), curve.labels()
    return Summary(
        outcome=float(mean_after_first_round(values)) if len(values) > 1 else math.nan,
        area=float(area_under_curve(labels, values)) if labels[-1] > labels[0] else math.nan,
        last=float(values[-1]),
    )


def subtract_curves(
    curves: Sequence[Curve],
    references: Sequence[Curve],
    quantity: str,
    *,
    metric: str | None = None,
    over: Over = "pooled",
) -> ArmDifference | None:
    """Return the difference of two arms in a field of `Summary`, over the seeds that both have.

    None without a common seed, or where a run has no such number.
    """
    by_seed = {curve.seed: curve for curve in references}
    pairs = [(curve, by_seed[curve.seed]) for curve in curves if curve.seed in by_seed]
    numbers = np.array(
        [[getattr(summarize_curve(one, metric=metric, over=over), quantity) for one in pair] for pair in pairs]
    )
    if not pairs or not np.isfinite(numbers).all():
        return None
    difference = paired_difference(numbers[:, 0], numbers[:, 1])
    return ArmDifference(
        **vars(difference),
        arm=curves[0].arm,
        reference=references[0].arm,
        quantity=quantity,
        lower_is_better=metric is not None and lower_is_better(metric),
    )


@dataclass(frozen=True)
class _Scale:
    """The values by which arms are compared."""

    metric: str
    over: Over

    def values(self, curve: Curve) -> NDArray[np.float64]:
        return curve.values(self.metric, over=self.over)

    def known(self, curves: Sequence[Curve]) -> list[Curve]:
        """Return the curves with a value in every round."""
        return [curve for curve in curves if np.isfinite(self.values(curve)).all()]

    def last(self, curves: Sequence[Curve]) -> float:
        return float(np.mean([self.values(curve)[-1] for curve in curves]))

    def labels_at(self, level: float, curves: Sequence[Curve]) -> float:
        """Return the labels of a site at which the mean curve is as good as a level; NaN if it never is."""
        sign = -1 if lower_is_better(self.metric) else 1
        labels, _ = mean_and_deviation([curve.labels() for curve in curves])
        values, _ = mean_and_deviation([self.values(curve) for curve in curves])
        return labels_to_reach(labels, sign * values, sign * level)


def _find_references(arms: Sequence[Arm], compared: Mapping[str, Arm], to: str | None) -> list[Arm]:
    if to is None:
        return [arm for arm in compared.values() if arm.strategy == "random"]
    if to in compared:
        return [compared[to]]
    names = [arm.name for arm in arms]
    if to not in names:
        raise unknown_name_error("arm", to, names)
    raise FealError(f"{to} has no finished run with fewer labels than all: name another reference with --to.")


def _find_nearest(arm: Arm, others: Sequence[Arm]) -> Arm | None:
    """Return the arm itself, or else the one with the same loss and the fewest other settings that differ."""
    return min(
        others,
        key=lambda other: (other is not arm, other.loss != arm.loss, len(_differing_settings(arm, other))),
        default=None,
    )


def _find_plain(arm: Arm, references: Sequence[Arm]) -> Arm | None:
    """Return random on the plain loss, if nothing but the loss and the selection differs."""
    plain = _find_nearest(arm, [other for other in references if other.loss == "plain"])
    if plain is None or any(not key.startswith(LOSS_SETTINGS) for key in _differing_settings(arm, plain)):
        return None
    return plain


def _differing_settings(arm: Arm, other: Arm) -> list[str]:
    """Return the settings in which two arms differ, without those of the selection."""
    mine, its = arm.runs[0].decisive, other.runs[0].decisive
    keys = [key for key in mine if mine[key] != its.get(key) and not key.startswith(SELECTION_SETTINGS)]
    # Another loss has other parameters: its name says enough.
    swapped = {key.removesuffix(".name") for key in keys if key.endswith(".name")}
    return list(dict.fromkeys(head if (head := key.partition(".")[0]) in swapped else key for key in keys))


def _subtract(
    arm: Arm, reference: Arm | None, curves: Mapping[str, Sequence[Curve]], scale: _Scale
) -> ArmDifference | None:
    if reference is None or reference is arm:
        return None
    pair = (curves[arm.name], curves[reference.name])
    found = (subtract_curves(*pair, name, metric=scale.metric, over=scale.over) for name in ("outcome", "last"))
    # Runs of one round have no outcome; their only number is the last.
    return next(filter(None, found), None)


def _summarize_arm(arm: Arm, curves: Sequence[Curve], scale: _Scale) -> ArmResult:
    summaries = [summarize_curve(curve, metric=scale.metric, over=scale.over) for curve in curves]
    means, deviations = mean_and_deviation(summaries)
    return ArmResult(
        arm=arm,
        curves=tuple(curves),
        outcome=(float(means[0]), float(deviations[0])),
        area=(float(means[1]), float(deviations[1])),
        last=float(means[2]),
        first_labels=float(np.mean([curve.labels()[0] for curve in curves])),
    )


def _with_labels_to_share(result: ArmResult, full: Arm, scale: _Scale, share: float) -> ArmResult:
    curves = scale.known(full.complete_curves)
    best = scale.last(curves)
    level = best / share if lower_is_better(scale.metric) else best * share
    return replace(
        result,
        labels=scale.labels_at(level, result.curves),
        all_labels=float(np.mean([curve.labels()[-1] for curve in curves])),
    )


def _with_labels_to_match(result: ArmResult, references: Sequence[Curve], scale: _Scale) -> ArmResult:
    return replace(
        result,
        labels_to_match=scale.labels_at(scale.last(references), result.curves),
        reference_labels=float(np.mean([curve.labels()[-1] for curve in references])),
    )


def _truncate(curves: Sequence[Curve], rounds: int) -> tuple[Curve, ...]:
    return tuple(replace(curve, points=curve.points[:rounds]) for curve in curves)


def _remarks(
    results: Sequence[ArmResult], references: Sequence[Arm], full: Sequence[Arm], *, rounds: int
) -> list[str]:
    if not results:
        return ["No arm has a finished run yet, so there is nothing to compare."]
    notes = []
    longest = max(len(curve.points) for result in results for curve in result.arm.complete_curves)
    if longest > rounds:
        notes.append(
            f"Some runs have {longest} rounds: arms are compared over the first {rounds}, which all have."
        )
    if not references:
        notes.append("There is no finished run of random to compare with: name another reference with --to.")
    if not full:
        notes.append("There is no finished run of full, so labels to reach a share of it are unknown.")
    nearest = [(result, _find_nearest(result.arm, references)) for result in results]
    by_name = {result.arm.name: result for result in results}
    pairs = [(one, by_name[other.name]) for one, other in nearest if other is not None and other is not one.arm]
    notes += _note_unpaired(pairs) + _note_other_settings(pairs)
    return notes + _note_few_pairs([result.difference.pairs for result in results if result.difference])


def _note_few_pairs(pairs: Sequence[int]) -> list[str]:
    if not pairs or min(pairs) >= FEW:
        return []
    if max(pairs) == 1:
        return ["A single seed has no interval: sweep more seeds, such as seed=0,1,2,3,4."]
    return [f"Intervals of fewer than {FEW} pairs are narrower than their level says: add seeds."]


def _note_unpaired(pairs: Sequence[tuple[ArmResult, ArmResult]]) -> list[str]:
    """Return a sentence for all arms that share the same seeds with their reference, but not all seeds."""
    alike: dict[str, list[str]] = {}
    for result, reference in pairs:
        mine, its = ({curve.seed for curve in one.curves} for one in (result, reference))
        if not mine & its:
            how = f"no seed in common with {reference.arm.name}, so no paired difference"
        elif mine != its:
            alone = [
                f"only {one.arm.name} has {_list_seeds(seeds)}"
                for one, seeds in ((result, mine - its), (reference, its - mine))
                if seeds
            ]
            common = _list_seeds(mine & its)
            how = f"paired with {reference.arm.name} over the common seeds {common} ({'; '.join(alone)})"
        else:
            continue
        alike.setdefault(how, []).append(result.arm.name)
    return [f"{', '.join(names)}: {how}." for how, names in alike.items()]


def _list_seeds(seeds: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(seeds)))


def _note_other_settings(pairs: Sequence[tuple[ArmResult, ArmResult]]) -> list[str]:
    """Return a sentence for all arms that differ from their reference in the same settings besides selection."""
    alike: dict[tuple[str, str], list[str]] = {}
    for result, reference in pairs:
        settings = _differing_settings(result.arm, reference.arm)
        if settings:
            alike.setdefault((reference.arm.name, ", ".join(settings)), []).append(result.arm.name)
    return [
        f"{', '.join(names)}: differs from {reference} not only in the selection, but also in {settings}."
        for (reference, settings), names in alike.items()
    ]
