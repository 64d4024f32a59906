"""Runs with figures of one's choice, in memory."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from feal.analysis.runs import Run
from feal.rundir.journal import Stage, State
from feal.rundir.records import MetricValue, Round
from tests.runs import tiny

LABELS = (10, 20, 40)


def made(
    strategy: str,
    seed: int,
    values: Sequence[float | None],
    *,
    stage: Stage = "finished",
    missing: int | None = None,
    labels: Sequence[int] = LABELS,
    problems: tuple[str, ...] = (),
    **settings: Any,
) -> Run:
    """A run whose pooled balanced accuracy is `values`, the mean of sites half of it, and HD95 ten times it.

    Two sites have `labels` each; the record of round `missing` is not there.
    """
    rounds = [
        Round(
            round=number,
            labels={"alder": count, "birch": count},
            metrics={
                "balanced_accuracy": MetricValue(pooled=value, mean=value and value / 2),
                "hd95": MetricValue(pooled=value and 10 * value, mean=value),
            },
            seconds={"training": 1.5},
        )
        for number, (count, value) in enumerate(zip(labels, values, strict=False), start=1)
        if number != missing
    ]
    return Run(
        path=Path(f"{strategy}-{seed}"),
        settings=tiny(strategy=strategy, seed=seed, **{"rounds": 3, **settings}),
        state=State(
            configuration={},
            task="classification",
            facts={"classes": ["one", "two"]},
            stage=stage,
            round=len(values) if stage == "finished" else len(values) + 1,
            labels={"alder": 0, "birch": 0},
        ),
        events=tuple(rounds),
        problems=problems,
    )


RANDOM = [made("random", 0, (0.2, 0.3, 0.4)), made("random", 1, (0.4, 0.5, 0.6))]
ENTROPY = [
    made("entropy", 0, (0.2, 0.5, 0.5), **{"strategy.query_model": "local"}),
    made("entropy", 1, (0.4, 0.6, 0.8), **{"strategy.query_model": "local"}),
]
FULL = [made("full", 0, (0.7,), labels=(100,)), made("full", 1, (0.9,), labels=(100,))]
