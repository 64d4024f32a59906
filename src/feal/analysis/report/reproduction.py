"""How to make the runs again: versions, effective configuration, command lines, the data's fingerprint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from feal.analysis.runs import Run, arms
from feal.errors import FealError
from feal.experiment.folder import RunFolder
from feal.experiment.origin import read_origin
from feal.federation.store import Store
from feal.settings import flatten

Origin = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Command:
    """What was typed for a run, as far as it is known, and where it lies."""

    arm: str
    seed: int
    folder: str
    typed: str | None


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """All that a reader needs to repeat the runs."""

    configuration: str
    """Of the run that is first among the commands, as YAML."""
    varied: Mapping[str, tuple[str, ...]]
    """Settings in which the runs differ, with their values."""
    versions: tuple[tuple[str, str], ...]
    """What the runs were made by; several values of one kind are all there."""
    manifests: tuple[str, ...]
    commands: tuple[Command, ...]


def reproduction(runs: Sequence[Run]) -> Reproduction:
    """What the run directories say about how they were made."""
    named = arms(runs)
    first = next(iter(named.values()))[0]
    origins = {run.path: read_origin(run.path) for run in runs}
    entries = [entry for group in origins.values() for entry in group]
    return Reproduction(
        configuration=yaml.safe_dump(first.settings.dump(), sort_keys=False, allow_unicode=True),
        varied=_varied(runs),
        versions=_versions(entries),
        manifests=tuple(sorted({digest for run in runs for digest in manifests_of(run, origins[run.path])})),
        commands=tuple(
            Command(arm=arm, seed=run.settings.seed, folder=str(run.path), typed=_typed(origins[run.path]))
            for arm, group in named.items()
            for run in group
        ),
    )


def manifests_of(run: Run, origins: Sequence[Origin]) -> set[str]:
    """SHA-256 of the prepared data's manifest, as the run or else its sites noted it."""
    noted = {str(entry["manifest"]) for entry in origins if entry.get("manifest")}
    return noted or {digest for place in _stores(run.path) if (digest := _tied_to(place)) is not None}


def _varied(runs: Sequence[Run]) -> dict[str, tuple[str, ...]]:
    flat = [flatten(run.settings.dump()) for run in runs]
    values = {key: sorted({str(settings.get(key)) for settings in flat}) for key in flat[0]}
    return {key: tuple(found) for key, found in values.items() if len(found) > 1}


def _versions(entries: Iterable[Origin]) -> tuple[tuple[str, str], ...]:
    found: dict[str, dict[str, None]] = {}
    for entry in entries:
        packages = entry.get("packages")
        named = {key: entry.get(key) for key in ("feal", "python", "machine")}
        for key, value in {**named, **(packages if isinstance(packages, dict) else {})}.items():
            if value is not None:
                found.setdefault(key, {})[str(value)] = None
    return tuple((key, ", ".join(values)) for key, values in found.items())


def _typed(origins: Sequence[Origin]) -> str | None:
    return next((str(entry["command"]) for entry in origins if entry.get("command")), None)


def _stores(run: Path) -> list[Path]:
    return sorted(RunFolder(run).sites.glob("*/site.sqlite"))[:1]


def _tied_to(place: Path) -> str | None:
    try:
        with closing(Store(place, read_only=True)) as store:
            return store.data()
    except FealError:
        return None
