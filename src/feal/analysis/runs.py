"""Run directories as analysis reads them: nothing is written, and an unfinished run is as good as it goes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from feal.classes import short_name
from feal.errors import FealError
from feal.experiment.folder import RunFolder, settings_of
from feal.federation.journal import Journal, State
from feal.settings import OPERATIONAL, Settings, Task, flatten

Status = Literal["finished", "waiting", "unfinished"]
Record = Mapping[str, Any]

SHARED = ("dataset", "sites", "validation", "synthetic.", "model", "weights", "weights_digest")
"""Beginnings of settings that runs must have in common to be compared: what is learned, and by what."""

OF_ROUND = {"round", "labels", "metrics", "diagnostics", "seconds"}
"""What a round's record holds in runs of every version."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run directory holds so far."""

    path: Path
    settings: Settings
    state: State
    events: tuple[Record, ...]
    problems: tuple[str, ...] = ()
    """Lines of the log that cannot be read, in a sentence each."""

    @property
    def task(self) -> Task:
        """Classification or segmentation."""
        return "segmentation" if self.state.task == "segmentation" else "classification"

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        return tuple(self.state.facts["classes"])

    @property
    def status(self) -> Status:
        """Finished, waiting for labels, or neither: under way, interrupted or killed."""
        if self.state.stage == "finished":
            return "finished"
        return "waiting" if self.state.stage == "waiting" else "unfinished"

    @cached_property
    def rounds(self) -> tuple[Record, ...]:
        """The record of every round that is done, in order; see `feal.federation.reporting.round_record`."""
        return tuple(event for event in self.events if event["event"] == "round")

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""
        return tuple(sorted(self.state.labels))

    @cached_property
    def decisive(self) -> Mapping[str, Any]:
        """Settings that say what the run computes, by dotted name, without the seed."""
        values = flatten(self.settings.dump())
        return {key: value for key, value in values.items() if key not in (*OPERATIONAL, "seed")}


def find_runs(places: Iterable[Path]) -> list[Path]:
    """Run directories at or below the places, sorted, each once.

    Raises:
        FealError: a place that is not there, or that holds no run.
    """
    found: dict[Path, None] = {}
    for place in places:
        if not place.is_dir():
            raise FealError(f"There is no folder {place}: give a run directory, or a folder of them.")
        below = _below(place)
        if not below:
            raise FealError(f"{place} holds no run: give a run directory, or a folder of them.")
        found |= dict.fromkeys(below)
    return sorted(found)


def read_run(path: Path) -> Run:
    """A run as it stands.

    Raises:
        FealError: no run there, one that has not begun, or one whose configuration or state is damaged.
    """
    settings = settings_of(RunFolder(path))
    journal = Journal(path)
    if not journal.begun():
        raise FealError(f"{path} has not begun yet: go on with `feal resume {path}`, then repeat this.")
    state = journal.load()
    if not state.facts:
        raise FealError(f"{path} is of a version that did not note what its images are: run it again.")
    events, problems = _events(path / "metrics.jsonl", state)
    return Run(path=path, settings=settings, state=state, events=events, problems=problems)


def read_runs(places: Iterable[Path]) -> list[Run]:
    """All runs at or below the places that have begun.

    Raises:
        FealError: no run, none that has begun, or runs of different experiments.
    """
    paths = find_runs(places)
    runs = [read_run(path) for path in paths if Journal(path).begun()]
    if not runs:
        raise FealError(
            f"None of the {len(paths)} runs below {paths[0].parent} has begun: wait, or `feal resume` them."
        )
    for run in runs[1:]:
        _check_alike(runs[0], run)
    return runs


def arms(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs that differ in the seed only, under a name, in the order of names and seeds.

    The name is the strategy with its query model, then, as far as needed to tell arms apart, the loss and every
    other setting in which arms of that name differ.

    Raises:
        FealError: a seed twice in one arm.
    """
    kinds: dict[str, list[Run]] = {}
    for run in runs:
        kinds.setdefault(json.dumps(run.decisive, sort_keys=True), []).append(run)
    groups = [sorted(group, key=lambda run: run.settings.seed) for group in kinds.values()]
    named = dict(zip(_names([group[0] for group in groups]), groups, strict=True))
    for name, group in named.items():
        for one, other in pairwise(group):
            if one.settings.seed == other.settings.seed:
                raise FealError(
                    f"{one.path} and {other.path} are both {name} with seed {one.settings.seed}: leave one out."
                )
    return dict(sorted(named.items()))


def shown_arm(runs: Sequence[Run]) -> tuple[str, list[Run]]:
    """The arm that figures of a single one show: feal's, or else one trained for evidence, or else the first."""
    named = arms(runs)
    return min(named.items(), key=lambda arm: (not _is_feal(arm[1][0]), not _is_evidential(arm[1][0]), arm[0]))


def _is_feal(run: Run) -> bool:
    return short_name(run.settings.strategy) == "feal" and _is_evidential(run)


def _is_evidential(run: Run) -> bool:
    return run.settings.loss == "evidential"


def _below(place: Path) -> list[Path]:
    if RunFolder(place).config.exists():
        return [place]
    return [run for entry in sorted(place.iterdir()) if entry.is_dir() for run in _below(entry)]


def _events(log: Path, state: State) -> tuple[tuple[Record, ...], tuple[str, ...]]:
    """The committed lines of a log, and what is wrong with those that are left out."""
    if not state.log_bytes:
        return (), ()
    try:
        with log.open("rb") as file:
            content = file.read(state.log_bytes)
    except OSError as error:
        return (), (f"{log} cannot be read ({error.strerror}): its figures are missing.",)
    events, problems = [], []
    for number, line in enumerate(content.splitlines(), start=1):
        event = _event(line)
        if event is None:
            problems.append(f"{log}, line {number}: no record can be read there, so it is left out.")
        else:
            events.append(event)
    if len(content) < state.log_bytes:
        problems.append(f"{log} is shorter than what was written: its last figures are missing.")
    return tuple(events), tuple(problems)


def _event(line: bytes) -> Record | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    if not isinstance(event, dict) or "event" not in event:
        return None
    return event if event["event"] != "round" or event.keys() >= OF_ROUND else None


def _check_alike(one: Run, other: Run) -> None:
    for key, value in one.decisive.items():
        there = other.decisive.get(key)
        if key.startswith(SHARED) and there != value:
            raise FealError(
                f"{one.path} and {other.path} are runs of different experiments ({key} is {value} and {there}): "
                "give runs of one kind only."
            )
    if one.classes != other.classes:
        raise FealError(f"{one.path} and {other.path} differ in their classes: give runs of one kind only.")


def _names(kinds: Sequence[Run]) -> list[str]:
    names = [
        " ".join(filter(None, (short_name(run.settings.strategy), run.settings.query_model))) for run in kinds
    ]
    names = _where_needed(names, [f"{name} {run.settings.loss}" for name, run in zip(names, kinds, strict=True)])
    return _where_needed(names, [_with_differences(run, kinds, names) for run in kinds])


def _where_needed(names: Sequence[str], longer: Sequence[str]) -> list[str]:
    return [name if names.count(name) == 1 else more for name, more in zip(names, longer, strict=True)]


def _with_differences(run: Run, kinds: Sequence[Run], names: Sequence[str]) -> str:
    name = names[kinds.index(run)]
    alike = [other for other, called in zip(kinds, names, strict=True) if called == name]
    apart = {key: value for key, value in run.decisive.items() if any(o.decisive.get(key) != value for o in alike)}
    return ", ".join([name, *(f"{key}={value}" for key, value in apart.items())])
