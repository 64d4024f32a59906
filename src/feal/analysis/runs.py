"""Run directories as analysis reads them: nothing is written, and an unfinished run is as good as it goes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, overload

from feal.analysis.records import read_log
from feal.classes import short_name
from feal.errors import FealError
from feal.experiment.folder import RunFolder, settings_of
from feal.federation.journal import Journal, State
from feal.files import damaged
from feal.settings import OPERATIONAL, Settings, Task, flatten

Status = Literal["finished", "waiting", "unfinished"]
Record = Mapping[str, Any]

SHARED = ("dataset", "sites", "validation", "synthetic.", "model", "weights", "weights_digest")
"""Beginnings of settings that runs must have in common to be compared: what is learned, and by what."""

FEW_NAMED = 3
"""Repeats of runs that are told one by one."""

TRACES = ("config.yaml", "state.json", "metrics.jsonl")
"""A folder with any of these is a run, or what is left of one."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run directory holds so far."""

    path: Path
    settings: Settings
    state: State
    events: tuple[Record, ...]
    problems: tuple[str, ...] = ()
    """Lines of the log that cannot be used, in a sentence each."""
    spare: frozenset[str] = frozenset()
    """Settings that are known to change nothing in it."""

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
        return {key: value for key, value in values.items() if key not in (*OPERATIONAL, *self.spare, "seed")}

    @property
    def kind(self) -> str:
        """The same for all runs that differ in the seed only."""
        return json.dumps(self.decisive, sort_keys=True)


@dataclass(frozen=True, kw_only=True)
class Reading(Sequence[Run]):
    """The runs at or below some places that can be used, and what became of the others."""

    runs: tuple[Run, ...]
    not_begun: int = 0
    unused: int = 0
    """Damaged runs, and such as repeat another."""
    left_out: tuple[str, ...] = ()
    """Sentences on the unused ones."""

    def __len__(self) -> int:
        return len(self.runs)

    @overload
    def __getitem__(self, at: int) -> Run: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Run, ...]: ...
    def __getitem__(self, at: int | slice) -> Run | tuple[Run, ...]:
        return self.runs[at]


def find_runs(places: Iterable[Path]) -> list[Path]:
    """Run directories at or below the places, sorted, each once.

    Raises:
        FealError: a place that is not there, or that holds no run.
    """
    found: list[Path] = []
    seen: set[Path] = set()
    for place in places:
        if not place.is_dir():
            raise FealError(f"There is no folder {place}: give a run directory, or a folder of them.")
        again = place.resolve() in seen
        below = _below(place, seen)
        if not below and not again:
            raise FealError(f"{place} holds no run: give a run directory, or a folder of them.")
        found += below
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
    if not isinstance(state.facts.get("classes"), list):
        raise FealError(f"{path} is of a version that did not note what its images are: run it again.")
    events, problems = read_log(
        path / "metrics.jsonl", length=state.log_bytes, classes=len(state.facts["classes"])
    )
    return Run(path=path, settings=settings, state=state, events=events, problems=problems)


def read_runs(places: Iterable[Path]) -> Reading:
    """All runs at or below the places that can be used; the others are told, and do not stop anything.

    Of runs with the same settings and seed one is kept: a finished one, or else the one that is furthest.

    Raises:
        FealError: no run, none that can be used, or runs of different experiments.
    """
    paths = find_runs(places)
    runs: list[Run] = []
    left_out: list[str] = []
    not_begun = 0
    for path in paths:
        try:
            if _not_begun(path):
                not_begun += 1
            else:
                runs.append(read_run(path))
        except FealError as error:
            left_out.append(f"{error} It is left out.")
        except OSError as error:
            left_out.append(f"{path} cannot be read ({error.strerror}): it is left out.")
    if not runs and left_out:
        raise FealError(left_out[0].removesuffix(" It is left out.") + _more(len(left_out) - 1))
    if not runs:
        raise FealError(
            f"None of the {len(paths)} runs below {paths[0].parent} has begun: wait, or `feal resume` them."
        )
    for run in runs[1:]:
        _check_alike(runs[0], run)
    kept, repeats = _each_once(_with_spare(runs))
    return Reading(
        runs=tuple(kept),
        not_begun=not_begun,
        unused=len(left_out) + len(runs) - len(kept),
        left_out=(*left_out, *repeats),
    )


def arms(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs that differ in the seed only, under a name, in the order of names and seeds.

    The name is the strategy with its query model, then, as far as needed to tell arms apart, the loss and every
    other setting in which arms of that name differ.

    Raises:
        FealError: a seed twice in one arm.
    """
    kinds: dict[str, list[Run]] = {}
    for run in runs:
        kinds.setdefault(run.kind, []).append(run)
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


def _below(place: Path, seen: set[Path]) -> list[Path]:
    """Runs at or below a place; what was seen by another way, such as a link, is not looked at again."""
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
        # Whoever reads it says why it cannot be read.
        return [place]
    return [run for folder in folders for run in _below(folder, seen)]


def _not_begun(path: Path) -> bool:
    """Whether a run is still to begin; where something is missing of one that has begun, that is said.

    Raises:
        FealError: the configuration, or the state, is gone.
        OSError: the folder cannot be read.
    """
    there = {entry.name for entry in path.iterdir()}
    for name in ("config.yaml", "state.json"):
        if name not in there and not there.isdisjoint(TRACES[1:]):
            raise damaged(path / name, "it is missing")
    return "state.json" not in there


def _more(others: int) -> str:
    return f" {others} more cannot be used either." if others else ""


def _with_spare(runs: Sequence[Run]) -> list[Run]:
    """Runs with the settings that change nothing in them, where runs of one strategy and loss differ in any.

    Only what this software comes with is asked: whoever looks at runs does not carry out their authors' code.
    """
    ways: dict[tuple[str, str | None], set[str]] = {}
    for run in runs:
        choosing = {
            key: value for key, value in run.decisive.items() if key.startswith(("selection.", "evidence."))
        }
        ways.setdefault((run.settings.strategy, run.settings.loss), set()).add(
            json.dumps(choosing, sort_keys=True)
        )
    if all(len(several) == 1 for several in ways.values()):
        return list(runs)
    from feal.selection.heeding import unheeded

    own = [":" in run.settings.strategy for run in runs]
    return [
        run if is_own else replace(run, spare=unheeded(run.settings))
        for run, is_own in zip(runs, own, strict=True)
    ]


def _each_once(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """Runs of which no two have the same settings and seed, and sentences on those that are left out."""
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
                (same if _figures(run) == _figures(best) else differing).append(f"{run.path} repeats {best.path}")
    said = [f"{what} (settings and seed), though their figures differ: it is left out." for what in differing]
    if same:
        more = f", and {len(same) - FEW_NAMED} more" if len(same) > FEW_NAMED else ""
        said.append(f"{', '.join(same[:FEW_NAMED])} (settings, seed and figures){more}: left out.")
    return kept, said


def _figures(run: Run) -> list[object]:
    return [(record["round"], record["metrics"]) for record in run.rounds]


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
