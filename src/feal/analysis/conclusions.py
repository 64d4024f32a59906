"""Conclusions in sentences: the best strategy, its lead over random, how certain that is, and labels saved."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from feal.analysis.arms import Arm, describe_metric, make_arms
from feal.analysis.compare import ArmDifference, ArmResult, Comparison, compare_arms
from feal.analysis.runs import Run
from feal.analysis.stats import FEW, student_interval


@dataclass(frozen=True, kw_only=True)
class Conclusions:
    """The headline of a report, the facts behind it, and the table of arms."""

    question: str
    headline: str
    metric: str
    """In words."""
    rounds: int = 0
    facts: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    results: tuple[ArmResult, ...] = ()
    """The best first."""


def draw_conclusions(runs: Sequence[Run]) -> Conclusions:
    """Return what the finished runs show, by the task's primary metric over all sites' test samples together.

    Raises:
        FealError: a seed occurs twice in one arm.
    """
    arms = make_arms(runs)
    found = compare_arms(arms)
    metric = describe_metric(found.measure.metric)
    question = f"Which samples of {runs[0].settings.dataset.name} are worth labelling, and does the choice matter?"
    if found.rounds < 2:
        why = "no run is finished. The learning curves show the rounds so far."
        if found.results:
            why = "strategies differ from the second round on, and there is one round only."
        return Conclusions(question=question, headline=f"No conclusion yet: {why}", metric=metric)
    results = tuple(sorted(found.results, key=lambda result: -result.outcome[0]))
    headline, facts = _conclude(results, metric)
    return Conclusions(
        question=question,
        headline=headline,
        metric=metric,
        rounds=found.rounds,
        facts=(*facts, *_compare_with_full(results, arms)),
        cautions=found.remarks if any(result.difference for result in results) else (),
        results=results,
    )


def describe_verdict(difference: ArmDifference | None) -> str:
    """Return what a difference to random shows, in a word or two."""
    if difference is None:
        return "-"
    if difference.pairs < 2:
        return "one seed"
    if difference.is_noise:
        return "within the noise"
    few = ", few seeds" if difference.pairs < FEW else ""
    return f"{'better' if difference.mean > 0 else 'worse'}{few}"


def describe_best_arm(found: Comparison) -> tuple[str, ...]:
    """Return sentences on the arm with the best outcome; none where no arm has a reference.

    The best of k arms is also the luckiest: its difference counts as more than noise only if Student's interval at
    level 1 - 0.05 / k (Bonferroni), which covers all k differences at once in 95 of 100 cases, excludes 0.
    """
    compared = [result for result in found.results if result.difference]
    if not compared or found.rounds < 2:
        return ()
    sign = found.measure.sign
    best = max(found.results, key=lambda result: sign * result.outcome[0])
    start = f"Best of {len(found.results)} arms: {best.arm.name} ({best.outcome[0]:.3f})"
    if best.difference is None:
        return (f"{start}, the reference: no other arm is better.",)
    return f"{start}.", *_describe_lead(best, best.difference, compared=len(compared), sign=sign)


def best_arm_interval(difference: ArmDifference, compared: int) -> tuple[float, float]:
    """Return Student's interval of the largest of so many differences, at level 1 - 0.05 / compared."""
    level = 1 - 0.05 / compared
    return student_interval(difference.mean, difference.deviation, difference.pairs, level=level)


def _describe_lead(best: ArmResult, difference: ArmDifference, *, compared: int, sign: int = 1) -> tuple[str, str]:
    """Return how certain the difference of the best of so many arms is, and the labels that it saves."""
    return _describe_certainty(difference, compared, sign), _describe_saving(best, difference)


def _describe_certainty(difference: ArmDifference, compared: int, sign: int) -> str:
    arm, reference, pairs = difference.arm, difference.reference, difference.pairs
    if pairs < 2:
        return f"Certainty: none. {arm} and {reference} share one seed; three are needed, preferably five."
    low, high = best_arm_interval(difference, compared)
    gains = sign * low, sign * high
    verdict = "within the noise" if min(gains) <= 0 <= max(gains) else "beyond the noise"
    verdict = f"worse, {verdict}" if max(gains) < 0 else verdict
    level = f"{100 - 5 / compared:.4g} % interval{f' as the best of {compared}' if compared > 1 else ''}"
    return (
        f"Certainty: {verdict}. {arm} differs from {reference} by {difference.mean:+.3f} "
        f"({low:+.3f} to {high:+.3f}, {level}, {pairs} paired seeds{': weak evidence' if pairs < FEW else ''})."
    )


def _describe_saving(best: ArmResult, difference: ArmDifference) -> str:
    arm, needed, labels = difference.arm, best.labels_to_match, best.reference_labels
    goal = f"the last value of {difference.reference} ({labels:.0f} labels per site)"
    if math.isnan(needed):
        return f"Labels saved: none. {arm} never reaches {goal}."
    saved = labels - needed
    if abs(saved) < 0.5:
        return f"Labels saved: none. {arm} needs as many to reach {goal}."
    noise = ", but within the noise" if difference.is_noise else ""
    start = f"Labels saved: {saved:.0f} per site ({saved / labels:.0%}){noise}. {arm}"
    if needed <= best.first_labels:
        return f"{start} reaches {goal} in its first round."
    return f"{start} needs {needed:.0f} to reach {goal}."


def _conclude(results: Sequence[ArmResult], metric: str) -> tuple[str, tuple[str, ...]]:
    """Return the headline, and the facts behind it."""
    rivals = [(result, result.difference) for result in results if result.difference is not None]
    first, highest = results[0].arm.name, results[0].outcome[0]
    if not rivals:
        return (
            f"{first} has the highest {metric} ({highest:.3f}), but there is no run of random to "
            "compare with: run strategy=random, and others, with the same seeds.",
            (),
        )
    best, difference = max(rivals, key=lambda rival: _rank(rival[1]))
    facts = [*_describe_lead(best, difference, compared=len(rivals))]
    if first not in (difference.arm, difference.reference):
        facts.append(
            f"{first} has the highest {metric} of all, {highest:.3f} against {best.outcome[0]:.3f} for "
            f"{difference.arm}; the table shows its difference to its own reference."
        )
    return _make_headline(difference, [other for _, other in rivals], metric), tuple(facts)


def _rank(difference: ArmDifference) -> tuple[bool, bool, float]:
    """Return a key by which proven differences precede apparent ones, and many seeds precede few."""
    is_better = difference.mean > 0 and not difference.is_noise
    return is_better and difference.pairs >= FEW, is_better, difference.mean


def _make_headline(difference: ArmDifference, differences: Sequence[ArmDifference], metric: str) -> str:
    arm, size = difference.arm, f"{abs(difference.mean):.3f}"
    random = "random selection"
    if difference.reference != "random":
        # Several arms select at random, such as one for each loss.
        random += f" ({difference.reference})"
    side = "above" if difference.mean >= 0 else "below"
    if difference.pairs < 2:
        return f"{arm} is {size} {side} {random} in {metric}, but on a single seed, which shows little."
    if all(other.high < 0 for other in differences) and difference.pairs >= FEW:
        return f"R{random[1:]} beats every strategy: the best of them, {arm}, is {size} below it in {metric}."
    if difference.is_noise or difference.mean < 0:
        noise = ", within the noise" if difference.is_noise else ""
        return f"No strategy is shown to beat {random}: the best, {arm}, is {size} {side} it in {metric}{noise}."
    if not best_arm_interval(difference, len(differences))[0] > 0:
        many = f" for the best of {len(differences)}" if len(differences) > 1 else ""
        return (
            f"No strategy is shown to beat {random}: {arm} is {size} above it in {metric}, within the noise{many}."
        )
    if difference.pairs < FEW:
        return f"{arm} is {size} {side} {random} in {metric} ({difference.pairs} seeds: weak evidence)."
    return f"{arm} beats {random} by {size} in {metric}."


def _compare_with_full(results: Sequence[ArmResult], arms: Sequence[Arm]) -> tuple[str, ...]:
    """Return the value of full supervision, and the share of it that the first arms reach."""
    values = [run.values()[-1] for arm in arms if arm.is_full for run in arm.runs if run.is_complete]
    if not values or not np.mean(values) > 0:
        return ()
    full = float(np.mean(values))
    shares = ", ".join(f"{result.arm.name} {result.last / full:.0%}" for result in results[:3])
    return (f"Full supervision reaches {full:.3f}; shares of it reached in the last round: {shares}.",)
