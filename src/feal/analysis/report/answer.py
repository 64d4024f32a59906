"""The question and its answer: which strategy, how much better than random, how sure, how many labels saved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from feal.analysis.report.arms import Height, Line, compared, heights
from feal.analysis.runs import Run, arms
from feal.analysis.statistics import Difference
from feal.federation.statistics import primary_metric

REFERENCE = "random"
FULL = "full"
FEW_PAIRS = 5
"""Below so many pairs a bootstrap's interval is narrower than it says."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a reader wants to know first, in plain sentences, and the table behind them."""

    question: str
    headline: str
    facts: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    metric: str
    rounds: int = 0
    lines: tuple[Line, ...] = ()
    full: float | None = None


def answer(runs: Sequence[Run]) -> Answer:
    """What the runs say; unfinished ones count only while none is finished.

    The figure is the task's primary one over all sites' test samples together, as mean of the rounds from the
    second on: in the first every strategy has the same labels.

    Raises:
        FealError: a seed twice in one arm.
    """
    metric = primary_metric(runs[0].task)
    question = f"Which samples of {runs[0].settings.dataset} are worth a label, and does it matter?"
    finished = [run for run in runs if run.status == "finished"]
    named = arms(runs)
    curves = {arm: heights(group, metric, finished_only=bool(finished)) for arm, group in named.items()}
    full = [curve for arm in _of_strategy(named, FULL) for curve in curves.pop(arm)]
    curves = {arm: group for arm, group in curves.items() if group}
    rounds = min((len(curve.values) for group in curves.values() for curve in group), default=0)
    references = [arm for arm in _of_strategy(named, REFERENCE) if arm in curves]
    reference = max(references, key=lambda arm: len(curves[arm]), default=REFERENCE)
    cautions = (*_cautions(runs, finished, curves, rounds), *_which_reference(references, reference))
    full_value = float(np.mean([curve.values[-1] for curve in full])) if full else None
    if rounds < 2:
        headline = "There is no answer yet: strategies differ from the second round on, and no run has two rounds."
        return Answer(question=question, headline=headline, cautions=cautions, metric=metric, full=full_value)
    lines = compared(curves, rounds, reference)
    headline, facts = _said(lines, reference, words(metric))
    return Answer(
        question=question,
        headline=headline,
        facts=(*facts, *_of_full(lines, full_value)),
        cautions=cautions,
        metric=metric,
        rounds=rounds,
        lines=lines,
        full=full_value,
    )


def _of_strategy(named: Mapping[str, Sequence[Run]], strategy: str) -> list[str]:
    """The arms of a strategy, whatever else is in their names."""
    return [arm for arm, group in named.items() if group[0].settings.strategy == strategy]


def _said(lines: Sequence[Line], called: str, metric: str) -> tuple[str, tuple[str, ...]]:
    """The headline, and what it rests on."""
    reference = next((line for line in lines if line.arm == called), None)
    if reference is None:
        return (
            f"{lines[0].arm} has the highest {metric} ({lines[0].mean:.3f}); whether that beats random labels "
            "cannot be said: run strategy=random with the same seeds.",
            (),
        )
    rivals = [line for line in lines if line.difference is not None]
    if not rivals:
        return (
            f"Random labels give a {metric} of {reference.mean:.3f}; no other strategy has a seed in common with "
            "them: run one with the same seeds.",
            (),
        )
    best = max(rivals, key=lambda line: line.difference.mean if line.difference else -math.inf)
    assert best.difference is not None
    facts = [_how_sure(best.difference, best.arm), _labels_saved(best, reference)]
    if len(rivals) > 1:
        facts.append(
            f"It is the best of {len(rivals)} that were compared, so its lead is flattered by that choice."
        )
    return _headline(best.arm, best.difference, metric), tuple(facts)


def _headline(arm: str, difference: Difference, metric: str) -> str:
    size = f"{abs(difference.mean):.3f} in {metric}"
    if difference.pairs < 2:
        side = "above" if difference.mean >= 0 else "below"
        return f"{arm} is {size} {side} random labels on one seed, which says little: seeds differ by themselves."
    if difference.within_noise:
        return f"No strategy is shown to beat random labels: the best, {arm}, differs by {size}, within the noise."
    if difference.mean > 0:
        return f"{arm} beats random labels by {size}."
    return f"Random labels beat every strategy: the best of them, {arm}, is {size} below."


def _how_sure(difference: Difference, arm: str) -> str:
    if difference.pairs < 2:
        return "How sure: not at all. Three seeds at least, better five, of both strategies are needed."
    interval = (
        f"the {100 * difference.level:.0f} % interval of the difference of {arm} and random is "
        f"{difference.low:+.3f} to {difference.high:+.3f}"
    )
    few = "; with so few, it is narrower than it should be" if difference.pairs < FEW_PAIRS else ""
    return f"How sure: {interval} (bootstrap over {difference.pairs} paired seeds{few})."


def _labels_saved(best: Line, reference: Line) -> str:
    goal = f"{reference.last:.3f}, which random reached with {reference.labels:.0f} labels a site"
    if math.isnan(best.labels):
        return f"Labels saved: none. {best.arm} never reaches {goal}."
    saved = reference.labels - best.labels
    noise = ", within the noise as well" if best.difference is None or best.difference.within_noise else ""
    return (
        f"Labels saved: {saved:.0f} a site ({saved / reference.labels:.0%}){noise}. "
        f"{best.arm} needs {best.labels:.0f} to reach {goal}."
    )


def _of_full(lines: Sequence[Line], full: float | None) -> tuple[str, ...]:
    if full is None or full <= 0:
        return ()
    shares = ", ".join(f"{line.arm} {line.last / full:.0%}" for line in lines[:3])
    return (f"With everything labelled it is {full:.3f}; reached of that in the last round: {shares}.",)


def _cautions(
    runs: Sequence[Run], finished: Sequence[Run], curves: Mapping[str, Sequence[Height]], rounds: int
) -> tuple[str, ...]:
    sentences = []
    if not finished:
        sentences.append("No run is finished yet: this is how it stands so far.")
    elif len(finished) < len(runs):
        left_out = len(runs) - len(finished)
        sentences.append(f"{left_out} of {len(runs)} runs are not finished and are left out of the answer.")
    longest = max((len(curve.values) for group in curves.values() for curve in group), default=0)
    if longest > rounds:
        sentences.append(
            f"The runs are of different length: the first {rounds} rounds, which all have, are compared."
        )
    return (*sentences, *_missing_seeds(curves))


def _which_reference(references: Sequence[str], chosen: str) -> list[str]:
    if len(references) < 2:
        return []
    return [f'There are {len(references)} kinds of random runs; the others are compared with "{chosen}".']


def _missing_seeds(curves: Mapping[str, Sequence[Height]]) -> list[str]:
    """A sentence for each arm that lacks a seed of another one."""
    every = {curve.seed for group in curves.values() for curve in group}
    sentences = []
    for arm, group in curves.items():
        missing = sorted(every - {curve.seed for curve in group})
        if missing:
            seeds = f"seed{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
            sentences.append(f"{arm} lacks {seeds}: its interval is over the seeds that are there.")
    return sentences


def words(metric: str) -> str:
    """A figure's name for people.

    >>> words("balanced_accuracy")
    'balanced accuracy'
    """
    return "Dice" if metric == "dice" else metric.replace("_", " ")
