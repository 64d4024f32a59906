"""Compare arms: paired differences with intervals, areas under curves, labels saved, and what limits them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from feal.analysis.arms import Arm, Measure, resolve_measure
from feal.analysis.runs import Over, Run
from feal.analysis.stats import (
    FEW,
    Difference,
    area_under_curve,
    labels_to_reach,
    mean_and_deviation,
    paired_difference,
)
from feal.errors import FealError, unknown_name_error

SELECTION_SETTINGS = ("strategy", "selection.")
"""Prefixes of settings that say how samples are selected."""
LOSS_SETTINGS = ("loss", "class_count_scope")
"""Prefixes of settings that say what training minimises."""


class Summary(NamedTuple):
    """A whole run in three numbers; comparisons are decided by the outcome."""

    outcome: float
    """Mean of rounds 2 to R, as the labels of the first are the same in all arms; NaN for one round."""
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
        """Return the difference in words, with whether it is within the noise."""
        side = "above" if self.mean >= 0 else "below"
        direction = f", which is {'worse' if side == 'above' else 'better'}"
        start = f"{self.arm} is {abs(self.mean):.3f} {side} {self.reference}"
        start += direction if self.lower_is_better and self.mean else ""
        if self.pairs < 2:
            return f"{start} (one pair): too few to tell from noise."
        if self.is_noise:
            verdict = f"within the noise of {'so few ' if self.pairs < FEW else ''}seeds"
        elif self.pairs < FEW:
            verdict = "beyond the noise (few pairs: weak evidence)"
        else:
            verdict = "beyond the noise of seeds"
        return f"{start} (95 % interval {self.low:.3f} to {self.high:.3f}, {self.pairs} pairs): {verdict}."


@dataclass(frozen=True, kw_only=True)
class ArmResult:
    """An arm over all rounds that the compared arms share; NaN where a number is missing."""

    arm: Arm
    """With its compared runs only, cut to these rounds."""
    reference: Arm | None
    """What it is compared with; None for the reference itself."""
    outcome: tuple[float, float]
    """Mean and standard deviation over seeds."""
    area: tuple[float, float]
    last: float
    """Mean over seeds of the last round."""
    first_labels: float
    """Labels of a site in the first round, below which a level cannot be located."""
    labels: float
    """Labels of a site at which the mean curve reaches the share of full supervision."""
    all_labels: float
    """Labels of a site under full supervision."""
    difference: ArmDifference | None
    """To the reference; None without a seed in common."""
    to_plain: ArmDifference | None
    """To random on the plain loss, where the reference is another: the effect of selection and loss together."""
    labels_to_match: float
    """Labels of a site at which the mean curve reaches the reference's last value; all of its own without one."""
    reference_labels: float
    """Labels of a site that the reference has in the last round."""

    @property
    def n(self) -> int:
        """Return the number of seeds."""
        return len(self.arm.runs)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The results of all arms, by one measure."""

    measure: Measure
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
    measure = resolve_measure(arms, metric, over=over)
    complete = [replace(arm, runs=runs) for arm in arms if (runs := _complete_runs(arm, measure))]
    full = [arm for arm in complete if arm.is_full]
    lengths = [len(run.rounds) for arm in complete if not arm.is_full for run in arm.runs]
    rounds = min(lengths, default=0)
    compared = {
        arm.name: replace(arm, runs=tuple(run.cut(rounds) for run in arm.runs))
        for arm in complete
        if not arm.is_full
    }
    references = _find_references(arms, compared, to)
    results = tuple(
        _make_result(
            arm,
            reference=_find_nearest(arm, references),
            plain=_find_plain(arm, references) if to is None else None,
            full=_find_nearest(arm, full),
            share=share,
            measure=measure,
        )
        for arm in compared.values()
    )
    remarks = ["No arm has a finished run yet, so there is nothing to compare."]
    if results:
        remarks = _remarks(results, references, full, rounds=rounds, longest=max(lengths))
    return Comparison(measure=measure, share=share, rounds=rounds, results=results, remarks=tuple(remarks))


def summarize_run(run: Run, measure: Measure) -> Summary:
    """Return the summary of a run by a measure."""
    values, labels = measure.of(run), run.labels_per_site()
    return Summary(
        outcome=float(values[1:].mean()) if len(values) > 1 else math.nan,
        area=float(area_under_curve(labels, values)) if labels[-1] > labels[0] else math.nan,
        last=float(values[-1]),
    )


def subtract_arms(arm: Arm, reference: Arm, quantity: str, measure: Measure) -> ArmDifference | None:
    """Return the difference of two arms in a field of `Summary`, over the seeds that both have.

    None without a common seed, or where a run has no such number.
    """
    by_seed = dict(zip(reference.seeds, reference.runs, strict=True))
    pairs = [(run, by_seed[seed]) for seed, run in zip(arm.seeds, arm.runs, strict=True) if seed in by_seed]
    numbers = np.array([[getattr(summarize_run(run, measure), quantity) for run in pair] for pair in pairs])
    if not pairs or not np.isfinite(numbers).all():
        return None
    return ArmDifference(
        **vars(paired_difference(numbers[:, 0], numbers[:, 1])),
        arm=arm.name,
        reference=reference.name,
        quantity=quantity,
        lower_is_better=measure.lower_is_better,
    )


def _complete_runs(arm: Arm, measure: Measure) -> tuple[Run, ...]:
    """Return the finished runs with a value in every round."""
    return tuple(run for run in arm.runs if run.is_complete and np.isfinite(measure.of(run)).all())


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


def _make_result(
    arm: Arm, *, reference: Arm | None, plain: Arm | None, full: Arm | None, share: float, measure: Measure
) -> ArmResult:
    means, deviations = mean_and_deviation([summarize_run(run, measure) for run in arm.runs])
    labels, values = np.mean([(run.labels_per_site(), measure.of(run)) for run in arm.runs], axis=0)
    difference = _subtract(arm, reference, measure)
    reached = every = math.nan
    if full is not None:
        best, every = _last_point(full, measure)
        level = best / share if measure.lower_is_better else best * share
        reached = labels_to_reach(labels, measure.sign * values, measure.sign * level)
    matched = needed = float(labels[-1])
    if reference is not None and difference is not None:
        goal, needed = _last_point(reference, measure)
        matched = labels_to_reach(labels, measure.sign * values, measure.sign * goal)
    return ArmResult(
        arm=arm,
        reference=None if reference is arm else reference,
        outcome=(float(means[0]), float(deviations[0])),
        area=(float(means[1]), float(deviations[1])),
        last=float(means[2]),
        first_labels=float(labels[0]),
        difference=difference,
        to_plain=None if plain is reference else _subtract(arm, plain, measure),
        labels=reached,
        all_labels=every,
        labels_to_match=matched,
        reference_labels=needed,
    )


def _subtract(arm: Arm, reference: Arm | None, measure: Measure) -> ArmDifference | None:
    if reference is None or reference is arm:
        return None
    # Runs of one round have no outcome; their only number is the last.
    found = (subtract_arms(arm, reference, quantity, measure) for quantity in ("outcome", "last"))
    return next(filter(None, found), None)


def _last_point(arm: Arm, measure: Measure) -> tuple[float, float]:
    """Return the value and the labels of a site after the last round, as means over seeds."""
    value, labels = np.mean([(measure.of(run)[-1], run.labels_per_site()[-1]) for run in arm.runs], axis=0)
    return float(value), float(labels)


def _remarks(
    results: Sequence[ArmResult], references: Sequence[Arm], full: Sequence[Arm], *, rounds: int, longest: int
) -> list[str]:
    notes = []
    if longest > rounds:
        notes.append(
            f"Some runs have {longest} rounds: arms are compared over the first {rounds}, which all have."
        )
    if not references:
        notes.append("There is no finished run of random to compare with: name another reference with --to.")
    if not full:
        notes.append("There is no finished run of full, so labels to reach a share of it are unknown.")
    notes += _note_alike(results, _describe_unpaired) + _note_alike(results, _describe_other_settings)
    pairs = [result.difference.pairs for result in results if result.difference]
    if pairs and max(pairs) == 1:
        notes.append("A single seed has no interval: sweep more seeds, such as seed=0,1,2,3,4.")
    elif pairs and min(pairs) < FEW:
        notes.append(f"Intervals of fewer than {FEW} pairs are narrower than their level says: add seeds.")
    return notes


def _note_alike(results: Sequence[ArmResult], describe: Callable[[Arm, Arm], str]) -> list[str]:
    """Return one sentence for all arms of which, beside their reference, the same is to be noted."""
    alike: dict[str, list[str]] = {}
    for result in results:
        if result.reference is not None and (note := describe(result.arm, result.reference)):
            alike.setdefault(note, []).append(result.arm.name)
    return [f"{', '.join(names)}: {note}." for note, names in alike.items()]


def _describe_unpaired(arm: Arm, reference: Arm) -> str:
    mine, its = set(arm.seeds), set(reference.seeds)
    if not mine & its:
        return f"no seed in common with {reference.name}, so no paired difference"
    alone = [
        f"only {one.name} has {_list_seeds(seeds)}"
        for one, seeds in ((arm, mine - its), (reference, its - mine))
        if seeds
    ]
    common = f"paired with {reference.name} over the common seeds {_list_seeds(mine & its)}"
    return f"{common} ({'; '.join(alone)})" if alone else ""


def _list_seeds(seeds: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(seeds)))


def _describe_other_settings(arm: Arm, reference: Arm) -> str:
    settings = ", ".join(_differing_settings(arm, reference))
    where = f"differs from {reference.name} not only in the selection, but also in"
    return f"{where} {settings}" if settings else ""
