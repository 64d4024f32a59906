"""Runs by hand: settings and records of rounds, without any training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from feal.analysis.runs import Run
from feal.rundir.journal import State
from feal.rundir.records import Event, Round
from tests.runs import tiny

CLASSES = ("one", "two", "three")
SITES = ("alder", "birch")


def record(number: int, **changes: Any) -> Round:
    """The record of a round of two sites; see `fields`."""
    return Round.model_validate(fields(number, **changes))


def fields(number: int, **changes: Any) -> dict[str, Any]:
    """The same as it is written; `accuracy` sets the pooled figure, the sites' are 0.1 below and 0.3 above it."""
    accuracy = changes.pop("accuracy", 0.5)
    sites = dict.fromkeys(SITES) if accuracy is None else {"alder": accuracy - 0.1, "birch": accuracy + 0.3}
    mean = None if accuracy is None else accuracy + 0.1
    figures = {"pooled": accuracy, "mean": mean, "sites": sites}
    error = {"pooled": 0.25, "mean": 0.25, "sites": dict.fromkeys(SITES, 0.25)}
    return {
        "event": "round",
        "round": number,
        "labels": {"alder": 4 * number, "birch": 6 * number},
        "metrics": {"balanced_accuracy": figures, "calibration_error": error},
        "diagnostics": {},
        "left_out": {},
        "energy": {},
        "seconds": {},
        **changes,
    }


def run(
    strategy: str = "random",
    rounds: Sequence[Round] = (),
    *,
    seed: int = 0,
    stage: str = "finished",
    path: Path = Path("nowhere"),
    events: Sequence[Event] = (),
    **changes: Any,
) -> Run:
    """A run with these records, and others before them."""
    settings = tiny(strategy=strategy, seed=seed, **changes)
    state = State(
        configuration=settings.dump(),
        task="classification",
        facts={"classes": CLASSES},
        stage=stage,
        labels=dict.fromkeys(SITES, 4),
    )
    return Run(path=path, settings=settings, state=state, events=(*events, *rounds))
