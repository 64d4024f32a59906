"""Our runs beside published numbers: the arm that corresponds to each number, and its result."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from feal.analysis.arms import Arm, make_arms
from feal.analysis.runs import Over, Run, RunCollection, find_runs, open_run, read_runs
from feal.config import load
from feal.config.overrides import COMPONENTS
from feal.errors import FealError
from feal.settings import Settings, flatten, is_operational
from reproduce.paper import Entry, Published

_IRRELEVANT = ("seed", "device", "threads", "diagnostics", "evaluate_every", "weights_digest")
"""Settings that a published number does not depend on, besides the operational ones."""
_PERCENTAGES = ("accuracy", "balanced_accuracy", "dice")

Difference = tuple[Any, Any]
"""The value of a setting in our runs, and the value it should have."""


@dataclass(frozen=True, kw_only=True)
class Match:
    """The arm that corresponds to a published row, and the settings in which it differs from that row."""

    arm: Arm
    differences: Mapping[str, Difference]


@dataclass(frozen=True, kw_only=True)
class Result:
    """Mean and standard deviation (None for one seed) over the seeds that have a value."""

    mean: float
    sd: float | None
    seeds: int


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A published number and our result for it, None where our runs have not reached that round."""

    published: Published
    match: Match
    ours: Result | None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All published numbers for which there are runs."""

    pairs: tuple[Pair, ...]
    missing: tuple[Published, ...]
    """Numbers of the presets that were run for which there is no run."""
    left_out: tuple[str, ...]
    """Runs that cannot be used, one sentence each."""


def compare_runs(entry: Entry, places: Sequence[Path], *, over: Over = "mean") -> Comparison:
    """Find the runs that correspond to the published numbers of a table or figure.

    Raises:
        FealError: the paper prints no results here, or none of the runs corresponds to one.
    """
    show = f"`python -m reproduce {entry.name}` shows"
    if not entry.is_comparable:
        reason = "prints only sizes of data sets" if entry.published else "prints no numbers"
        raise FealError(f"The paper {reason} for {entry.name}, so no run can be compared: {show} what there is.")
    runs, left_out = _read_by_preset(entry, places)
    if not runs:
        raise FealError(left_out[0])
    groups = {preset: make_arms(members) for preset, members in runs.items()}
    keys = {key for row in entry.published for key in row.overrides} | {"strategy", "strategy.query_model"}
    matches: dict[tuple[object, ...], Match | None] = {}
    pairs, missing = [], []
    for row in (row for row in entry.published if row.preset in groups):
        settings = (row.preset, row.strategy, row.query_model, row.changes)
        if settings not in matches:
            matches[settings] = find_match(load(row.preset, row.overrides), groups[row.preset], keys=keys)
        match = matches[settings]
        if match is None:
            missing.append(row)
            continue
        for published in _at_rounds(row, match.arm):
            ours = result_of(match.arm, metric=row.metric, round=published.round, over=over)
            pairs.append(Pair(published=published, match=match, ours=ours))
    if not pairs:
        raise FealError(f"None of the runs corresponds to a row of {entry.name}: {show} the commands.")
    return Comparison(pairs=tuple(pairs), missing=tuple(missing), left_out=tuple(left_out))


def find_match(wanted: Settings, arms: Sequence[Arm], *, keys: Collection[str]) -> Match | None:
    """Return the arm with the wanted settings, else the only one that agrees in the settings `keys`.

    Raises:
        FealError: several arms agree in `keys`, and none of them in all settings.
    """
    keys = {f"{key}.name" if key in COMPONENTS else key for key in keys}
    candidates = [
        match for arm in arms if (match := _compare_settings(wanted, arm)).differences.keys().isdisjoint(keys)
    ]
    exact = [match for match in candidates if not match.differences]
    if exact or len(candidates) < 2:
        return next(iter(exact or candidates), None)
    one, other = candidates[:2]
    named = {**one.differences, **other.differences}
    differing = ", ".join(key for key in named if one.differences.get(key) != other.differences.get(key))
    raise FealError(
        f"{one.arm.runs[0].path} and {other.arm.runs[0].path} match one row and differ in {differing}: "
        "give the runs of only one of them."
    )


def result_of(arm: Arm, *, metric: str, round: int | None, over: Over = "mean") -> Result | None:
    """Return the result of an arm after a round, as a percentage; `seconds` is the time of one selection.

    None if no run has it. Unfinished seeds count only if none is finished.
    """
    values = [value for run in arm.counted_runs if (value := _value(run, metric, round, over)) is not None]
    if not values:
        return None
    return Result(mean=mean(values), sd=stdev(values) if len(values) > 1 else None, seeds=len(values))


def describe_data(differences: Mapping[str, Difference]) -> str:
    """Describe how the images or the network differ from the paper's; empty if they do not.

    >>> describe_data({"sites": (["alder"], ["alder", "birch"]), "model.name": ("tiny-cnn", "unet")})
    'sites alder only; tiny-cnn instead of unet'
    """
    notes = []
    if "sites" in differences:
        ours, wanted = (", ".join(sites or ["all"]) for sites in differences["sites"])
        is_subset = wanted == "all" or set(ours.split(", ")) < set(wanted.split(", "))
        notes.append(f"sites {ours} only" if is_subset else f"sites {ours} instead of {wanted}")
    for key in ("model.name", "weights", "dataset.size", "validation", "training.trainable"):
        if key in differences:
            ours, wanted = ("the default" if value is None else value for value in differences[key])
            notes.append(f"{'' if key == 'model.name' else f'{key} '}{ours} instead of {wanted}")
    return "; ".join(notes)


def _read_by_preset(entry: Entry, places: Sequence[Path]) -> tuple[dict[str, RunCollection], list[str]]:
    """Read the runs of each preset, and explain which ones cannot be used."""
    presets = {load(preset).dataset.name: preset for preset in entry.presets}
    paths: dict[str, list[Path]] = {}
    left_out: list[str] = []
    for path in find_runs(places):
        try:
            dataset = open_run(path).settings.dataset.name
        except FealError as error:
            left_out.append(str(error))
            continue
        if dataset not in presets:
            raise FealError(
                f"{path} is a run on {dataset}, and {entry.name} is about {', '.join(entry.presets)}: "
                "give runs on these data sets only."
            )
        paths.setdefault(presets[dataset], []).append(path)
    runs = {preset: read_runs(members) for preset, members in paths.items()}
    return runs, [*left_out, *(sentence for reading in runs.values() for sentence in reading.left_out)]


def _compare_settings(wanted: Settings, arm: Arm) -> Match:
    run = arm.runs[0]
    values = flatten(wanted.dump())
    differences = {
        key: (run.decisive.get(key), value)
        for key, value in values.items()
        if key not in _IRRELEVANT and not is_operational(key) and run.decisive.get(key) != value
    }
    # Another network or loss has other parameters: its name says enough.
    swapped = tuple(key.removesuffix("name") for key in differences if key.endswith(".name"))
    differences = {
        key: values for key, values in differences.items() if key.endswith(".name") or not key.startswith(swapped)
    }
    return Match(arm=arm, differences=differences)


def _at_rounds(row: Published, arm: Arm) -> list[Published]:
    """Repeat a number for each of our rounds if the text does not state its round."""
    if row.round is not None or row.metric == "seconds":
        return [row]
    rounds = max((run.rounds for run in arm.counted_runs), key=len)
    return [row.model_copy(update={"round": record.round}) for record in rounds]


def _value(run: Run, metric: str, round_: int | None, over: Over) -> float | None:
    if metric == "seconds":
        return _selection_seconds(run)
    values = next((record.metrics.get(metric) for record in run.rounds if record.round == round_), None)
    value = None if values is None else getattr(values, over)
    if value is None:
        return None
    return float(value) * (100 if metric.startswith(_PERCENTAGES) else 1)


def _selection_seconds(run: Run) -> float | None:
    """Average over the rounds that asked for labels; the last round observes the pool but selects nothing."""
    seconds = [
        record.seconds["select"]
        for record in run.rounds
        if "select" in record.seconds and any(site.asked for site in record.diagnostics.selection.values())
    ]
    return mean(seconds) if seconds else None
