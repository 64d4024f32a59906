"""The best of all arms: by how much, how sure one can be of the best of so many, and how many labels it saves."""

from __future__ import annotations

import math

from feal.analysis.comparison import Row
from feal.analysis.statistics import FEW, student_interval
from feal.analysis.verdicts import Verdict, Verdicts
from feal.federation.statistics import lower_is_better


def on_the_best(found: Verdicts) -> tuple[str, ...]:
    """Sentences on the arm with the best outcome of all; none where nothing is held against a reference.

    The best of k is the luckiest of k, too: its difference counts as more than noise only if Student's interval
    of the level 1 - 0.05 / k (Bonferroni) has 0 outside, which holds for all k at once in 95 of 100 cases.
    """
    compared = [line for line in found.lines if line.difference]
    if not compared or found.rounds < 2:
        return ()
    sign = -1 if lower_is_better(found.metric) else 1
    best = max(found.lines, key=lambda line: sign * line.outcome[0])
    which = f"Best of {len(found.lines)} arms: {best.arm.name} ({best.outcome[0]:.3f})"
    if best.difference is None:
        return (f"{which}, which others are held against: none of them is better.",)
    return f"{which}.", _how_sure(best.difference, len(compared), sign), _labels_saved(best)


def interval_of_the_best(difference: Row, compared: int) -> tuple[float, float]:
    """Student's interval of a difference that was picked from so many, of the level 1 - 0.05 / compared."""
    level = 1 - 0.05 / compared
    return student_interval(difference["difference"], difference["sd"], difference["n"], level=level)


def _how_sure(difference: Row, compared: int, sign: int) -> str:
    against, n = difference["reference"], difference["n"]
    if n < 2:
        return f"It was held against {against} on one seed, which shows nothing."
    low, high = interval_of_the_best(difference, compared)
    of_all = f", {100 - 5 / compared:.4g} % as {compared} were compared" if compared > 1 else ""
    interval = f"{difference['difference']:+.3f} to {against} ({low:+.3f} to {high:+.3f}{of_all}, {n} pairs)"
    if not min(sign * low, sign * high) > 0:
        return f"Its difference of {interval} is within the noise: none is shown to be better than {against}."
    few = ", as far as so few pairs tell" if n < FEW else ""
    return f"Its difference of {interval} is more than the noise{few}."


def _labels_saved(best: Verdict) -> str:
    needed, had = best.catching_up
    assert best.difference is not None
    reference = best.difference["reference"]
    if math.isnan(needed):
        return f"It never reaches what {reference} reached at last, so it saves no labels."
    if needed <= best.first_labels:
        return f"It is where {reference} ends after {had:.0f} labels a site from its first round on."
    return (
        f"It is where {reference} ends after {had:.0f} labels a site with {needed:.0f}: {had - needed:.0f} saved."
    )
