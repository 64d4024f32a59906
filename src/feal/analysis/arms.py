"""An arm: runs that differ in the seed only, and which of them count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from feal.analysis.curves import Curve, curve_of
from feal.analysis.runs import Run, arms
from feal.classes import short_name

_ORDER = {"random": 0, "feal": 2}
"""What the others are held against comes first, and what is proposed last."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A way to choose, under all seeds that it was run with."""

    name: str
    runs: tuple[Run, ...]
    """In the order of seeds."""

    @property
    def strategy(self) -> str:
        """What a table calls its strategy."""
        return short_name(self.runs[0].settings.strategy)

    @property
    def query_model(self) -> str:
        """The model that is asked; empty for strategies without that choice."""
        return self.runs[0].settings.query_model or ""

    @property
    def apart(self) -> str:
        """What else tells it from arms of the same strategy and query model."""
        return self.name.removeprefix(" ".join(filter(None, (self.strategy, self.query_model)))).strip(" ,")

    @property
    def loss(self) -> str | None:
        """The training loss."""
        return self.runs[0].settings.loss

    @property
    def bound(self) -> bool:
        """Whether everything is labelled at once: the upper bound of the others."""
        return self.runs[0].settings.budget == "all"

    @property
    def finished(self) -> bool:
        """Whether any of its runs is finished."""
        return any(run.status == "finished" for run in self.runs)

    @property
    def counted(self) -> tuple[Run, ...]:
        """Its finished runs; what there is where none is finished."""
        return tuple(run for run in self.runs if run.status == "finished" or not self.finished)

    @cached_property
    def curves(self) -> tuple[Curve, ...]:
        """Curves of the runs that count."""
        return tuple(curve_of(run, arm=self.name) for run in self.counted)

    @cached_property
    def whole(self) -> tuple[Curve, ...]:
        """Curves of finished runs that lack no round."""
        return tuple(
            curve
            for curve in self.curves
            if curve.finished
            and [point.round for point in curve.points] == list(range(1, len(curve.points) + 1))
            # The last record may be the one that cannot be read.
            and len(curve.points) == self._by_seed[curve.seed].state.round
        )

    def remarks(self) -> list[str]:
        """A sentence on the runs that are not finished, and one for each line of a log that cannot be read."""
        open_ = [run for run in self.runs if run.status != "finished"]
        said = []
        if open_:
            runs = ", ".join(f"seed {run.settings.seed} ({_standing(run)})" for run in open_)
            counted = "left out, as others are finished" if self.finished else "shown as far as it is"
            said.append(f"{self.name} is unfinished: {runs}; {counted}.")
        return said + [problem for run in self.runs for problem in run.problems]

    @cached_property
    def _by_seed(self) -> dict[int, Run]:
        return {run.settings.seed: run for run in self.runs}


def _standing(run: Run) -> str:
    waits = ", waits for labels" if run.status == "waiting" else ""
    return f"{len(run.rounds)} of {run.settings.rounds} rounds{waits}"


def arms_of(runs: Sequence[Run]) -> list[Arm]:
    """The arms of runs: full supervision, random, the others by name, feal.

    Raises:
        FealError: a seed twice in one arm.
    """
    found = [Arm(name=name, runs=tuple(group)) for name, group in arms(runs).items()]
    models = ("", "global", "local", "ensemble")
    return sorted(
        found,
        key=lambda arm: (
            not arm.bound,
            _ORDER.get(arm.strategy, 1),
            arm.strategy,
            models.index(arm.query_model),
            arm.name,
        ),
    )
