"""Runs beside figures that others published: which arm a figure is to be held against, and what it came to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from feal.analysis.arms import Arm
from feal.analysis.curves import Over
from feal.analysis.runs import Run
from feal.analysis.statistics import mean_and_deviation
from feal.errors import FealError
from feal.selection.heeding import unheeded
from feal.settings import OPERATIONAL, Settings, Task, flatten

SAME_SET = ("dataset", "sites", "validation", "model")
"""Settings without which figures are of other images or another network altogether."""

BESIDE_THE_POINT = ("seed", "device", "threads", "diagnostics", "evaluate_every", "weights_digest")
"""Settings that a published figure says nothing about."""

_PER_CENT = ("accuracy", "balanced_accuracy", "dice")


@dataclass(frozen=True, kw_only=True)
class Match:
    """An arm, and in what its settings are not those wanted: its own and the wanted value by name."""

    arm: Arm
    unlike: Mapping[str, tuple[Any, Any]]


@dataclass(frozen=True, kw_only=True)
class Ours:
    """A figure of an arm: mean and standard deviation (None for one seed) over the seeds that have it."""

    mean: float
    sd: float | None
    seeds: int


def check_same_set(run: Run, wanted: Settings, *, preset: str, about: str) -> None:
    """Refuse a run of other images or another network than the preset's.

    Raises:
        FealError: with the first setting at fault.
    """
    values = _compared(wanted, run.task)
    for key in SAME_SET:
        if run.decisive[key] != values[key]:
            raise FealError(
                f"{run.path} is no run of {preset}, which {about} is about ({key} is {run.decisive[key]}, "
                f"not {values[key]}): give runs of {preset}."
            )


def match(wanted: Settings, arms: Iterable[Arm], *, told_by: Collection[str]) -> Match | None:
    """The arm with the wanted settings, else the only one that agrees in what rows are told apart by.

    Raises:
        FealError: several arms agree, and none of them in everything.
    """
    fitting = [found for arm in arms if not (found := _match(wanted, arm)).unlike.keys() & set(told_by)]
    exact = [found for found in fitting if not found.unlike]
    if exact or len(fitting) < 2:
        return next(iter(exact or fitting), None)
    one, other = fitting[:2]
    keys = ", ".join(key for key in {**one.unlike, **other.unlike} if one.unlike.get(key) != other.unlike.get(key))
    raise FealError(
        f"{one.arm.runs[0].path} and {other.arm.runs[0].path} would both stand for one row, and differ in {keys}: "
        "give the runs of one of them only."
    )


def _match(wanted: Settings, arm: Arm) -> Match:
    own = arm.runs[0].decisive
    spare = unheeded(wanted)
    values = {key: value for key, value in _compared(wanted, arm.runs[0].task).items() if key not in spare}
    return Match(
        arm=arm, unlike={key: (own.get(key), value) for key, value in values.items() if own.get(key) != value}
    )


def ours(arm: Arm, *, figure: str, round: int | None, over: Over = "mean") -> Ours | None:
    """An arm's figure after a round, shares in per cent; `seconds` is the time of one selection over all sites.

    None where no run that counts has it.
    """
    found = [value for run in arm.counted if (value := _value(run, figure, round, over)) is not None]
    if not found:
        return None
    mean, deviation = mean_and_deviation(found)
    return Ours(mean=float(mean), sd=float(deviation) if len(found) > 1 else None, seeds=len(found))


def _value(run: Run, figure: str, round_: int | None, over: Over) -> float | None:
    if figure == "seconds":
        return _selection_seconds(run)
    record = next((record for record in run.rounds if record["round"] == round_), None)
    value = None if record is None else record["metrics"].get(figure, {}).get(over)
    if value is None:
        return None
    return float(value) * (100 if figure.startswith(_PER_CENT) else 1)


def _selection_seconds(run: Run) -> float | None:
    """Mean over the rounds at whose end labels were asked for; the last one's look at the pool chooses nothing."""
    asking = [
        record["seconds"]["select"]
        for record in run.rounds
        if "select" in record["seconds"] and any(site["asked"] for site in _selection(record))
    ]
    return sum(asking) / len(asking) if asking else None


def _selection(record: Mapping[str, Any]) -> Collection[Mapping[str, Any]]:
    chosen: Mapping[str, Mapping[str, Any]] = record["diagnostics"].get("selection", {})
    return chosen.values()


def _compared(wanted: Settings, task: Task) -> dict[str, Any]:
    """The wanted settings as a run of that task notes them, as far as they matter here."""
    values = flatten(wanted.dump())
    if values["evidence.squared"] is None:
        values["evidence.squared"] = task == "segmentation"
    return {key: value for key, value in values.items() if key not in (*OPERATIONAL, *BESIDE_THE_POINT)}
