"""Provenance: versions, effective configuration, command lines and data checksums of runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import yaml

from feal.analysis.runs import Run, group_by_arm
from feal.errors import FealError
from feal.rundir.artifacts import RunOrigin, read_origins
from feal.rundir.layout import RunDirectory
from feal.rundir.site_store import Store
from feal.settings import flatten


@dataclass(frozen=True, kw_only=True)
class RunCommand:
    """The command line of a run, if it is recorded, and its directory."""

    arm: str
    seed: int
    folder: str
    typed: str | None


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """All that a reader needs to repeat the runs."""

    configuration: str
    """Of the first run among the commands, as YAML."""
    varied: Mapping[str, tuple[str, ...]]
    """Settings in which the runs differ, with their values."""
    versions: tuple[tuple[str, str], ...]
    """Name and version of the software; all values where runs differ."""
    manifests: tuple[str, ...]
    commands: tuple[RunCommand, ...]


def read_provenance(runs: Sequence[Run]) -> Provenance:
    """Return what the run directories record about how they were made."""
    named = group_by_arm(runs)
    first = next(iter(named.values()))[0]
    origins = {run.path: read_origins(run.path) for run in runs}
    entries = [entry for group in origins.values() for entry in group]
    return Provenance(
        configuration=yaml.safe_dump(first.settings.dump(), sort_keys=False, allow_unicode=True),
        varied=_list_varied(runs),
        versions=_list_versions(entries),
        manifests=tuple(sorted({digest for run in runs for digest in list_manifests(run, origins[run.path])})),
        commands=tuple(
            RunCommand(
                arm=arm, seed=run.settings.seed, folder=str(run.path), typed=_find_command(origins[run.path])
            )
            for arm, group in named.items()
            for run in group
        ),
    )


def list_manifests(run: Run, origins: Sequence[RunOrigin]) -> set[str]:
    """Return the SHA-256 of the prepared data's manifest, as recorded by the run or else by its sites."""
    noted = {entry.manifest for entry in origins if entry.manifest}
    return noted or {digest for place in _first_store(run.path) if (digest := _read_digest(place)) is not None}


def _list_varied(runs: Sequence[Run]) -> dict[str, tuple[str, ...]]:
    flat = [flatten(run.settings.dump()) for run in runs]
    values = {key: sorted({str(settings.get(key)) for settings in flat}) for key in flat[0]}
    return {key: tuple(found) for key, found in values.items() if len(found) > 1}


def _list_versions(entries: Iterable[RunOrigin]) -> tuple[tuple[str, str], ...]:
    found: dict[str, dict[str, None]] = {}
    for entry in entries:
        named = {"feal": entry.feal, "python": entry.python, "machine": entry.machine}
        for key, value in {**named, **entry.packages}.items():
            if value is not None:
                found.setdefault(key, {})[value] = None
    return tuple((key, ", ".join(values)) for key, values in found.items())


def _find_command(origins: Sequence[RunOrigin]) -> str | None:
    return next((entry.command for entry in origins if entry.command), None)


def _first_store(run: Path) -> list[Path]:
    return [site.database for site in RunDirectory(run).site_directories()[:1]]


def _read_digest(place: Path) -> str | None:
    try:
        with closing(Store(place, read_only=True)) as store:
            return store.data_digest()
    except FealError:
        return None
