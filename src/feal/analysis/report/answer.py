"""The question and its answer: which strategy, how much better than random, how sure, how many labels saved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from feal.analysis.arms import Arm, arms_of
from feal.analysis.comparison import Row, overview
from feal.analysis.curves import Curve
from feal.analysis.figures.style import in_words
from feal.analysis.leading import interval_of_the_best
from feal.analysis.runs import Run
from feal.analysis.statistics import FEW, is_noise
from feal.analysis.verdicts import Verdict, Verdicts, verdicts


@dataclass(frozen=True, kw_only=True)
class Line:
    """An arm in the table of the answer."""

    arm: str
    n: int
    mean: float
    """Of rounds 2 to R, over seeds."""
    deviation: float
    last: float
    difference: Row | None
    """To random over the seeds that both have, see `feal.analysis.comparison.differences`."""
    labels: float
    """Of a site, to reach what random reached at last; NaN if it never does."""

    @property
    def verdict(self) -> str:
        """What the difference says, in a word or two."""
        if self.difference is None:
            return "-"
        if self.difference["n"] < 2:
            return "one seed"
        if within_noise(self.difference):
            return "within the noise"
        few = ", few seeds" if self.difference["n"] < FEW else ""
        return f"{'better' if self.difference['difference'] > 0 else 'worse'}{few}"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a reader wants to know first, in plain sentences, and the table behind them."""

    question: str
    headline: str
    metric: str
    """In words."""
    rounds: int = 0
    facts: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()


def answer(runs: Sequence[Run]) -> Answer:
    """What the finished runs say, by the task's primary figure over all sites' test samples together.

    Raises:
        FealError: a seed twice in one arm.
    """
    arms = arms_of(runs)
    found = verdicts(arms)
    metric = in_words(found.metric)
    question = f"Which samples of {runs[0].settings.dataset} are worth a label, and does it matter?"
    if not found.lines:
        headline = "There is no answer yet: no run is finished. The curves show how far they are."
        return Answer(question=question, headline=headline, metric=metric)
    if found.rounds < 2:
        headline = (
            "There is no answer yet: strategies differ from the second round on, and there is one round only."
        )
        return Answer(question=question, headline=headline, metric=metric)
    lines = tuple(sorted(_lines(found), key=lambda line: -line.mean))
    headline, facts = _said(lines, metric)
    compared = any(line.difference for line in lines)
    return Answer(
        question=question,
        headline=headline,
        metric=metric,
        rounds=found.rounds,
        facts=(*facts, *_of_full(lines, arms, found)),
        cautions=found.remarks if compared else (),
        lines=lines,
    )


def within_noise(difference: Row) -> bool:
    """See `feal.analysis.statistics.is_noise`."""
    mean, deviation, n = difference["difference"], difference["sd"], difference["n"]
    return is_noise(mean, deviation, n, low=difference["low"], high=difference["high"])


def _lines(found: Verdicts) -> list[Line]:
    curves = {verdict.arm.name: _curves(verdict.arm, found) for verdict in found.lines}
    return [_line(verdict, curves) for verdict in found.lines]


def _curves(arm: Arm, found: Verdicts) -> list[Curve]:
    """Those that the verdict is over."""
    whole = [curve for curve in arm.whole if np.isfinite(curve.values(found.metric)).all()]
    return [replace(curve, points=curve.points[: found.rounds]) for curve in whole]


def _line(verdict: Verdict, curves: Mapping[str, Sequence[Curve]]) -> Line:
    name = verdict.arm.name
    reference = verdict.difference["reference"] if verdict.difference else name
    (row,) = [row for row in overview(curves, reference=reference) if row["arm"] == name]
    return Line(
        arm=name,
        n=verdict.n,
        mean=verdict.outcome[0],
        deviation=verdict.outcome[1],
        last=row["last"],
        difference=verdict.difference,
        labels=float(curves[name][0].labels()[-1]) if reference == name else row[f"labels_to_{reference}"],
    )


def _said(lines: Sequence[Line], metric: str) -> tuple[str, tuple[str, ...]]:
    """The headline, and what it rests on."""
    rivals = [(line, line.difference) for line in lines if line.difference is not None]
    if not rivals:
        return (
            f"{lines[0].arm} has the highest {metric} ({lines[0].mean:.3f}); how that compares with random labels "
            "cannot be said: run strategy=random, and others, with the same seeds.",
            (),
        )
    best, difference = max(rivals, key=lambda rival: _rank(rival[1]))
    reference = next(line for line in lines if line.arm == difference["reference"])
    facts = [_how_sure(difference), _labels_saved(best, difference, reference)]
    if len(rivals) > 1:
        facts.append(_of_so_many(difference, len(rivals)))
    if lines[0] not in (best, reference):
        facts.append(
            f"{lines[0].arm} has the highest {metric} of all, {lines[0].mean:.3f} against {best.mean:.3f} of "
            f"{best.arm}; the table has what it is held against."
        )
    return _headline(difference, [other for _, other in rivals], metric), tuple(facts)


def _rank(difference: Row) -> tuple[bool, bool, float]:
    """What is shown to be better stands before what seems to be, and what many seeds show before what few do."""
    better = difference["difference"] > 0 and not within_noise(difference)
    return better and difference["n"] >= FEW, better, float(difference["difference"])


def _headline(difference: Row, all_: Sequence[Row], metric: str) -> str:
    arm, size = difference["arm"], f"{abs(difference['difference']):.3f} in {metric}"
    labels = _random_labels(difference)
    side = "above" if difference["difference"] >= 0 else "below"
    if difference["n"] < 2:
        return f"{arm} is {size} {side} {labels} on one seed, which says little: seeds differ by themselves."
    if all(other["high"] < 0 for other in all_) and difference["n"] >= FEW:
        return f"{labels[0].upper()}{labels[1:]} beat every strategy: the best of them, {arm}, is {size} below."
    if within_noise(difference) or difference["difference"] < 0:
        noise = ", within the noise" if within_noise(difference) else ""
        return f"No strategy is shown to beat {labels}: the best, {arm}, is {size} {side}{noise}."
    if not interval_of_the_best(difference, len(all_))[0] > 0:
        many = f" of the best of {len(all_)}" if len(all_) > 1 else ""
        return f"No strategy is shown to beat {labels}: {arm} is {size} above, within the noise{many}."
    if difference["n"] < FEW:
        return f"{arm} is {size} {side} {labels}, as far as {difference['n']} seeds tell, which is not far."
    return f"{arm} beats {labels} by {size}."


def _random_labels(difference: Row) -> str:
    """Random labels, by the arm's name where there are several, such as one for each loss."""
    reference = difference["reference"]
    return "random labels" if reference == "random" else f"random labels ({reference})"


def _of_so_many(difference: Row, compared: int) -> str:
    flattered = f"It is the best of {compared} that were compared, so its lead is flattered by that choice"
    if difference["n"] < 2:
        return f"{flattered}."
    low, high = interval_of_the_best(difference, compared)
    return f"{flattered}: the interval that allows for it is {low:+.3f} to {high:+.3f}."


def _how_sure(difference: Row) -> str:
    if difference["n"] < 2:
        return "How sure: not at all. Three seeds at least, better five, of both strategies are needed."
    few = ", which are few" if difference["n"] < FEW else ""
    return (
        f"How sure: the 95 % interval of the difference of {difference['arm']} and {difference['reference']} is "
        f"{difference['low']:+.3f} to {difference['high']:+.3f} "
        f"(bootstrap over {difference['n']} paired seeds{few})."
    )


def _labels_saved(best: Line, difference: Row, reference: Line) -> str:
    goal = f"{reference.last:.3f}, which {reference.arm} reached with {reference.labels:.0f} labels a site"
    if math.isnan(best.labels):
        return f"Labels saved: none. {best.arm} never reaches {goal}."
    saved = reference.labels - best.labels
    if abs(saved) < 0.5:
        return f"Labels saved: none. {best.arm} needs as many to reach {goal}."
    noise = ", within the noise as well" if within_noise(difference) else ""
    return (
        f"Labels saved: {saved:.0f} a site ({saved / reference.labels:.0%}){noise}. "
        f"{best.arm} needs {best.labels:.0f} to reach {goal}."
    )


def _of_full(lines: Sequence[Line], arms: Sequence[Arm], found: Verdicts) -> tuple[str, ...]:
    """What all labels together reach, and how near the first few come."""
    bounds = [curve.values(found.metric)[-1] for arm in arms if arm.bound for curve in arm.whole]
    if not bounds or not np.mean(bounds) > 0:
        return ()
    bound = float(np.mean(bounds))
    shares = ", ".join(f"{line.arm} {line.last / bound:.0%}" for line in lines[:3])
    return (f"With everything labelled it is {bound:.3f}; reached of that in the last round: {shares}.",)
