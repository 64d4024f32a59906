"""Read-only access to run directories; unfinished runs count up to their last complete round."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from feal.errors import FealError
from feal.fileio import damage_error
from feal.metrics import primary_metric
from feal.rundir.journal import Journal, State, read_settings
from feal.rundir.layout import RunDirectory
from feal.rundir.records import Event, Round, read_log
from feal.settings import Settings, Task, flatten, is_operational

Status = Literal["finished", "waiting", "unfinished"]
Over = Literal["pooled", "mean"]
"""A metric of all sites' test samples together, or the mean of the sites' values."""

SHARED = ("dataset", "sites", "validation", "model", "weights", "weights_digest")
"""Prefixes of settings that runs must share to be compared: the data and the network."""

MAX_NAMED = 3
"""Repeated runs that are listed by name."""

_NAMES = RunDirectory(Path())
TRACES = (_NAMES.config.name, _NAMES.state.name, _NAMES.log.name)
"""Files of which any one marks a directory as a run, or as the rest of one."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """The content of a run directory so far."""

    path: Path
    settings: Settings
    state: State
    events: tuple[Event, ...]
    problems: tuple[str, ...] = ()
    """A sentence for each line of the log that cannot be used."""

    @property
    def task(self) -> Task:
        """Return the task, classification or segmentation."""
        return "segmentation" if self.state.task == "segmentation" else "classification"

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the names of the classes."""
        return tuple(self.state.facts["classes"])

    @property
    def status(self) -> Status:
        """Return whether it is finished, waiting for labels, or neither: running, interrupted or killed."""
        return self.state.stage if self.state.stage in ("finished", "waiting") else "unfinished"

    @property
    def is_complete(self) -> bool:
        """Return whether it is finished and has the record of every round; the last may be unreadable too."""
        numbers = [record.round for record in self.rounds]
        return self.status == "finished" and numbers == list(range(1, self.state.round + 1))

    @cached_property
    def rounds(self) -> tuple[Round, ...]:
        """Return the records of the complete rounds, in order."""
        return tuple(event for event in self.events if isinstance(event, Round))

    @property
    def sites(self) -> tuple[str, ...]:
        """Return the names of the sites, sorted."""
        return tuple(sorted(self.state.labels))

    @cached_property
    def decisive(self) -> Mapping[str, Any]:
        """Return the settings that determine what the run computes, by dotted name, without the seed."""
        values = flatten(self.settings.dump())
        return {key: value for key, value in values.items() if key != "seed" and not is_operational(key)}

    @property
    def kind(self) -> str:
        """Return a key that runs share if they differ in the seed only."""
        return json.dumps(self.decisive, sort_keys=True)

    def values(self, metric: str | None = None, *, over: Over = "pooled") -> NDArray[np.float64]:
        """Return a metric, by default the task's primary one, [rounds]; NaN where a round has none."""
        name = metric or primary_metric(self.task)
        return np.array([getattr(record.metrics.get(name), over, None) for record in self.rounds], dtype=float)

    def labels_per_site(self) -> NDArray[np.float64]:
        """Return the mean number of labels of a site that each round was trained on, [rounds]."""
        labels = [record.labels.values() for record in self.rounds]
        return np.array([sum(counts) / max(1, len(counts)) for counts in labels], dtype=float)

    def cut(self, rounds: int) -> Self:
        """Return the run as it was after so many rounds."""
        events = (event for event in self.events if not isinstance(event, Round) or event.round <= rounds)
        return replace(self, events=tuple(events))


@dataclass(frozen=True, kw_only=True)
class RunCollection(Sequence[Run]):
    """The usable runs at or below some directories, and what happened to the others."""

    runs: tuple[Run, ...]
    not_started: int = 0
    unused: int = 0
    """Damaged runs, and runs that repeat another."""
    left_out: tuple[str, ...] = ()
    """A sentence for each unused run."""

    def __len__(self) -> int:
        return len(self.runs)

    def __getitem__(self, at: Any) -> Any:
        return self.runs[at]


def find_runs(places: Iterable[Path]) -> list[Path]:
    """Return the run directories at or below the places, sorted, each once.

    Raises:
        FealError: a place does not exist, or holds no run.
    """
    found: dict[Path, Path] = {}
    for place in places:
        if not place.is_dir():
            raise FealError(f"There is no directory {place}: give a run directory, or a directory of them.")
        below = _below(place, set())
        if not below:
            raise FealError(f"{place} holds no run: give a run directory, or a directory of them.")
        for path in below:
            found.setdefault(path.resolve(), path)
    return sorted(found.values())


def open_run(folder: str | PathLike[str]) -> Run:
    """Read a run directory, finished or not: settings, records of rounds, notes.

    Raises:
        FealError: there is no run, it has not started, or its configuration or state is damaged.
    """
    path = Path(folder)
    settings = read_settings(path)
    journal = Journal(path)
    if not journal.has_state():
        raise FealError(f"{path} has not started yet: continue it with `feal resume {path}`, then repeat this.")
    state = journal.load()
    if not isinstance(state.facts.get("classes"), list):
        raise damage_error(journal.run.state, "the classes and sizes of the images are missing")
    events, problems = read_log(
        RunDirectory(path).log, length=state.log_bytes, classes=len(state.facts["classes"])
    )
    return Run(path=path, settings=settings, state=state, events=events, problems=problems)


def read_runs(places: Iterable[Path]) -> RunCollection:
    """Read all usable runs at or below the places; the others are reported in the collection.

    Of runs with the same settings and seed one is kept: a finished one, or else the one with the most rounds.

    Raises:
        FealError: there is no run, none is usable, or the runs are of different experiments.
    """
    paths = find_runs(places)
    runs: list[Run] = []
    left_out: list[str] = []
    not_started = 0
    for path in paths:
        try:
            if _has_not_started(path):
                not_started += 1
            else:
                runs.append(open_run(path))
        except FealError as error:
            left_out.append(f"{error} It is left out.")
        except OSError as error:
            left_out.append(f"{path} cannot be read ({error.strerror}): it is left out.")
    if not runs and left_out:
        others = f" {len(left_out) - 1} more cannot be used either." if len(left_out) > 1 else ""
        raise FealError(left_out[0].removesuffix(" It is left out.") + others)
    if not runs:
        raise FealError(
            f"None of the {len(paths)} runs below {paths[0].parent} has started: wait, or `feal resume` them."
        )
    for run in runs[1:]:
        _check_alike(runs[0], run)
    kept, repeats = _each_once(runs)
    return RunCollection(
        runs=tuple(kept),
        not_started=not_started,
        unused=len(left_out) + len(runs) - len(kept),
        left_out=(*left_out, *repeats),
    )


def _below(place: Path, seen: set[Path]) -> list[Path]:
    """Return runs at or below a place; what was already found by another path, such as a link, is skipped."""
    where = place.resolve()
    if where in seen:
        return []
    seen.add(where)
    try:
        inside = {entry.name: entry for entry in place.iterdir()}
        if not inside.keys().isdisjoint(TRACES):
            return [place]
        folders = [entry for _, entry in sorted(inside.items()) if entry.is_dir()]
    except OSError:
        # Reading it as a run gives the reason.
        return [place]
    return [run for folder in folders for run in _below(folder, seen)]


def _has_not_started(path: Path) -> bool:
    """Return whether a run is still to start.

    Raises:
        FealError: it has started, and its configuration or state is missing.
        OSError: the directory cannot be read.
    """
    there = {entry.name for entry in path.iterdir()}
    for name in TRACES[:2]:
        if name not in there and not there.isdisjoint(TRACES[1:]):
            raise damage_error(path / name, "it is missing")
    return _NAMES.state.name not in there


def _each_once(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """Return runs of which no two have the same settings and seed, and sentences on the repeats."""
    alike: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        alike.setdefault((run.kind, run.settings.seed), []).append(run)
    kept: list[Run] = []
    same: list[str] = []
    differing: list[str] = []
    for group in alike.values():
        best = max(group, key=lambda run: (run.status == "finished", len(run.rounds)))
        kept.append(best)
        for run in group:
            if run is not best:
                (same if _metrics(run) == _metrics(best) else differing).append(f"{run.path} repeats {best.path}")
    notes = [f"{what} (same settings and seed), but their metrics differ: it is left out." for what in differing]
    if same:
        more = f", and {len(same) - MAX_NAMED} more" if len(same) > MAX_NAMED else ""
        notes.append(f"{', '.join(same[:MAX_NAMED])} (same settings, seed and metrics){more}: left out.")
    return kept, notes


def _metrics(run: Run) -> list[object]:
    return [(record.round, record.metrics) for record in run.rounds]


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
