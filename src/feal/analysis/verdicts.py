"""What the arms come to: paired differences with intervals, areas, labels saved, and how sure one can be."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from feal.analysis.arms import Arm
from feal.analysis.by_round import known_metric
from feal.analysis.comparison import Row, differences, whole_figures
from feal.analysis.curves import Curve, Over
from feal.analysis.statistics import FEW, labels_to_reach, mean_and_deviation
from feal.errors import FealError, unknown
from feal.federation.statistics import lower_is_better

OF_SELECTION = ("strategy", "query_model", "selection.")
"""Beginnings of settings that say how samples are chosen; arms that differ in others differ in more than that."""

OF_LOSS = ("loss", "counts", "evidence.")
"""Beginnings of settings that say what training minimises."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """An arm over all rounds that the compared ones have; NaN where there is no figure."""

    arm: Arm
    n: int
    outcome: tuple[float, float]
    """Mean of rounds 2 to R: mean and deviation over seeds."""
    area: tuple[float, float]
    """The same of the area under the curve, divided by its span of labels."""
    labels: float = math.nan
    """A site's labels at which the arm's mean curve reaches the share of full supervision."""
    all_labels: float = math.nan
    """A site's labels under full supervision."""
    first_labels: float = math.nan
    """A site's labels in the first round: fewer cannot be told."""
    difference: Row | None = None
    """To the reference, see `feal.analysis.comparison.differences`; None for the reference itself."""
    to_plain: Row | None = None
    """The same to random on the plain loss, where the reference is another: what selection and loss are worth."""
    catching_up: tuple[float, float] = (math.nan, math.nan)
    """A site's labels at which the mean curve is where the reference's ends, and those that the reference has."""


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """All of them, what they are about, and what a reader must know beside."""

    metric: str
    over: Over
    share: float
    rounds: int
    lines: tuple[Verdict, ...]
    sentences: tuple[str, ...]
    """One for each difference."""
    remarks: tuple[str, ...]


def verdicts(
    arms: Sequence[Arm],
    *,
    metric: str | None = None,
    over: Over = "pooled",
    share: float = 0.95,
    to: str | None = None,
) -> Verdicts:
    """Judge every arm that has a finished run without gaps, over the rounds that all of them have.

    Args:
        arms: those that are compared, with a bound or without.
        metric: the task's primary one by default.
        over: figures of all test samples together, or means of the sites'.
        share: of full supervision's figure; where lower is better, full supervision's figure is divided by it.
        to: the arm that the others are held against. By default each has the random arm that is nearest to it,
            on the same loss and otherwise the same settings if there is one, and random on the plain loss beside.

    Raises:
        FealError: an unknown metric, an arm `to` that is not there or not finished, a share out of range.
    """
    if not 0 < share <= 1:
        raise FealError(f"A share of {share:g} is none: give a number above 0 and up to 1, such as --share 0.95.")
    figure = _Figure(known_metric(arms, metric), over)
    judged = {arm.name: arm for arm in arms if not arm.bound and figure.known(arm.whole)}
    references = _references(arms, judged, to)
    bounds = [arm for arm in arms if arm.bound and figure.known(arm.whole)]
    rounds = min((len(curve.points) for arm in judged.values() for curve in arm.whole), default=0)
    curves = {name: _first(figure.known(arm.whole), rounds) for name, arm in judged.items()}
    lines = []
    for name, arm in judged.items():
        reference, bound = _nearest(arm, references), _nearest(arm, bounds)
        plain = _plain(arm, references) if to is None else None
        line = replace(
            _verdict(arm, curves[name], figure),
            difference=_difference(arm, reference, curves, figure),
            to_plain=None if plain is reference else _difference(arm, plain, curves, figure),
        )
        if line.difference:
            line = _with_catching_up(line, curves, figure)
        lines.append(line if bound is None else _with_labels(line, curves[name], bound, figure, share))
    return Verdicts(
        metric=figure.metric,
        over=over,
        share=share,
        rounds=rounds,
        lines=tuple(lines),
        sentences=tuple(row["in_words"] for line in lines for row in (line.difference, line.to_plain) if row),
        remarks=tuple(_remarks(lines, curves, references, bounds, rounds=rounds)),
    )


@dataclass(frozen=True)
class _Figure:
    """What arms are judged by."""

    metric: str
    over: Over

    def values(self, curve: Curve) -> NDArray[np.float64]:
        return curve.values(self.metric, over=self.over)

    def known(self, curves: Sequence[Curve]) -> list[Curve]:
        """Those that have it in every round."""
        return [curve for curve in curves if np.isfinite(self.values(curve)).all()]


def _references(arms: Sequence[Arm], judged: Mapping[str, Arm], to: str | None) -> list[Arm]:
    if to is None:
        return [arm for arm in judged.values() if arm.strategy == "random"]
    if to in judged:
        return [judged[to]]
    names = [arm.name for arm in arms]
    if to not in names:
        raise unknown("arm", to, names)
    raise FealError(f"{to} has no finished run with fewer labels than all: hold arms against another with --to.")


def _nearest(arm: Arm, others: Sequence[Arm]) -> Arm | None:
    """The arm itself, or else the one with the same loss and the fewest other settings that differ."""
    return min(
        others,
        key=lambda other: (other is not arm, other.loss != arm.loss, len(_besides_selection(arm, other))),
        default=None,
    )


def _plain(arm: Arm, references: Sequence[Arm]) -> Arm | None:
    """Random on the plain loss, if nothing else differs."""
    plain = _nearest(arm, [other for other in references if other.loss == "plain"])
    if plain is None or any(not key.startswith(OF_LOSS) for key in _besides_selection(arm, plain)):
        return None
    return plain


def _besides_selection(arm: Arm, other: Arm) -> list[str]:
    """Settings in which two arms differ, but for those that say how samples are chosen."""
    mine, its = arm.runs[0].decisive, other.runs[0].decisive
    return [key for key in mine if mine[key] != its.get(key) and not key.startswith(OF_SELECTION)]


def _difference(
    arm: Arm, reference: Arm | None, curves: Mapping[str, Sequence[Curve]], figure: _Figure
) -> Row | None:
    if reference is None or reference is arm:
        return None
    found = differences(curves, [(arm.name, reference.name)], metric=figure.metric, over=figure.over)
    # Runs of one round have no outcome; their only figure is the last.
    return next((row for row in found if row["figure"] in ("outcome", "last")), None)


def _verdict(arm: Arm, curves: Sequence[Curve], figure: _Figure) -> Verdict:
    whole = [whole_figures(curve, metric=figure.metric, over=figure.over) for curve in curves]
    outcome, area = (mean_and_deviation([entry[key] for entry in whole]) for key in ("outcome", "area"))
    return Verdict(
        arm=arm,
        n=len(curves),
        outcome=(float(outcome[0]), float(outcome[1])),
        area=(float(area[0]), float(area[1])),
        first_labels=float(np.mean([curve.labels()[0] for curve in curves])),
    )


def _with_labels(line: Verdict, curves: Sequence[Curve], bound: Arm, figure: _Figure, share: float) -> Verdict:
    whole = figure.known(bound.whole)
    best = float(np.mean([figure.values(curve)[-1] for curve in whole]))
    level = best / share if lower_is_better(figure.metric) else best * share
    return replace(
        line,
        labels=_labels_at(level, curves, figure),
        all_labels=float(np.mean([curve.labels()[-1] for curve in whole])),
    )


def _with_catching_up(line: Verdict, curves: Mapping[str, Sequence[Curve]], figure: _Figure) -> Verdict:
    assert line.difference is not None
    theirs = curves[line.difference["reference"]]
    level = float(np.mean([figure.values(curve)[-1] for curve in theirs]))
    all_labels = float(np.mean([curve.labels()[-1] for curve in theirs]))
    return replace(line, catching_up=(_labels_at(level, curves[line.arm.name], figure), all_labels))


def _labels_at(level: float, curves: Sequence[Curve], figure: _Figure) -> float:
    """A site's labels at which the mean curve is as good as a level; NaN if it never is."""
    sign = -1 if lower_is_better(figure.metric) else 1
    labels, _ = mean_and_deviation([curve.labels() for curve in curves])
    values, _ = mean_and_deviation([figure.values(curve) for curve in curves])
    return labels_to_reach(labels, sign * values, sign * level)


def _first(curves: Sequence[Curve], rounds: int) -> list[Curve]:
    return [replace(curve, points=curve.points[:rounds]) for curve in curves]


def _remarks(
    lines: Sequence[Verdict],
    curves: Mapping[str, Sequence[Curve]],
    references: Sequence[Arm],
    bounds: Sequence[Arm],
    *,
    rounds: int,
) -> list[str]:
    if not lines:
        return ["No arm has a finished run yet, so none is held against another."]
    said = []
    longest = max(len(curve.points) for line in lines for curve in line.arm.whole)
    if longest > rounds:
        said.append(f"Some runs have {longest} rounds: arms are compared over the first {rounds}, which all have.")
    if not references:
        said.append("No finished run of random is there to hold the others against: name another arm with --to.")
    if not bounds:
        said.append("No finished run of full is there, so labels to reach a share of it are not known.")
    pairs = [(line.arm, _nearest(line.arm, references)) for line in lines]
    held = [(arm, reference) for arm, reference in pairs if reference is not None and reference is not arm]
    said += _unpaired(held, curves)
    said += _more_than_selection(held)
    return said + _too_few([line.difference["n"] for line in lines if line.difference])


def _too_few(pairs: Sequence[int]) -> list[str]:
    if not pairs or min(pairs) >= FEW:
        return []
    if max(pairs) == 1:
        return ["A single seed has no interval: sweep more of them, such as seed=0,1,2,3,4."]
    return [f"Intervals of fewer than {FEW} pairs are narrower than they say: more seeds make them sound."]


def _unpaired(held: Sequence[tuple[Arm, Arm]], curves: Mapping[str, Sequence[Curve]]) -> list[str]:
    """A sentence for all arms that have the same seeds in common with their reference, and not all."""
    alike: dict[str, list[str]] = {}
    for arm, reference in held:
        mine, its = ({curve.seed for curve in curves[name]} for name in (arm.name, reference.name))
        if not mine & its:
            how = f"no seed in common with {reference.name}, so no difference of pairs"
            alike.setdefault(how, []).append(arm.name)
        elif mine != its:
            alone = [
                f"{name} alone has {_listed(seeds)}"
                for name, seeds in ((arm.name, mine - its), (reference.name, its - mine))
                if seeds
            ]
            how = f"paired with {reference.name} over the common seeds {_listed(mine & its)} ({'; '.join(alone)})"
            alike.setdefault(how, []).append(arm.name)
    return [f"{', '.join(names)}: {how}." for how, names in alike.items()]


def _listed(seeds: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(seeds)))


def _more_than_selection(held: Sequence[tuple[Arm, Arm]]) -> list[str]:
    """A sentence for all arms that differ from their reference in the same settings besides the selection's."""
    alike: dict[tuple[str, str], list[str]] = {}
    for arm, reference in held:
        apart = _besides_selection(arm, reference)
        if apart:
            alike.setdefault((reference.name, ", ".join(apart)), []).append(arm.name)
    return [
        f"{', '.join(names)}: not only the selection differs from {reference}'s, but also {apart}."
        for (reference, apart), names in alike.items()
    ]
