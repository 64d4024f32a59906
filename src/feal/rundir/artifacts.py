"""Write and read what a run keeps besides its metrics: selections, outputs for single samples, origin.

Selections and outputs name single samples, so they stay at the site.
"""

from __future__ import annotations

import csv
import io
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, ValidationError

from feal import __version__
from feal.errors import FealError
from feal.fileio import damage_error, read_json, read_tensors, write_json, write_text
from feal.rundir.layout import RunDirectory, SiteDirectory
from feal.rundir.records import Record

if TYPE_CHECKING:
    import torch

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "monai", "safetensors", "pydantic", "flwr", "ray")
"""Packages whose version can change a run's bits or metrics."""


@dataclass(frozen=True, kw_only=True)
class SelectedSample:
    """A sample that a strategy selected: its rank from 1, its score, and the parts of the score by name."""

    sample: str
    rank: int
    score: float
    parts: Mapping[str, float]


def write_selection(
    site: SiteDirectory, round_: int, ids: Sequence[str], parts: Mapping[str, torch.Tensor]
) -> None:
    """Write the samples queried for a round as CSV: sample id, rank, and every part of the score."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["sample", "rank", *parts])
    columns = [part.tolist() for part in parts.values()]
    for row, sample in enumerate(ids):
        writer.writerow([sample, row + 1, *(repr(column[row]) for column in columns)])
    write_text(site.selection(round_), table.getvalue(), durable=False)


def read_selection(site: SiteDirectory, round_: int) -> list[SelectedSample]:
    """Read the samples queried for a round, by rank; an empty list where there was no query.

    Raises:
        FealError: the table is damaged.
    """
    path = site.selection(round_)
    try:
        with path.open(newline="") as file:
            return [_selected_sample(row) for row in csv.DictReader(file)]
    except FileNotFoundError:
        return []
    except (OSError, csv.Error, ValueError, LookupError, TypeError) as error:
        raise damage_error(path, str(error)) from error


def _selected_sample(row: Mapping[str, str]) -> SelectedSample:
    parts = {name: float(value) for name, value in row.items() if name not in ("sample", "rank", "score")}
    return SelectedSample(sample=row["sample"], rank=int(row["rank"]), score=float(row["score"]), parts=parts)


def read_outputs(path: Path) -> dict[str, torch.Tensor]:
    """Read a file of model outputs for single samples, whose `rows` name them; empty where a site kept none."""
    return read_tensors(path) if path.is_file() else {}


class RunOrigin(Record):
    """Software, machine, data and command line that a run was started or resumed with."""

    feal: str | None = None
    python: str | None = None
    packages: dict[str, str] = Field({})
    machine: str | None = None
    manifest: str | None = None
    """Digest of the data's manifest, where the data are on this machine."""
    command: str | None = None


def record_origin(run: RunDirectory, *, manifest: str | None) -> None:
    """Append software, machine and command line to `origin.json`, unless the last entry is the same.

    So a run that is resumed elsewhere, or with other versions, has several entries in order.
    """
    entry = RunOrigin(
        feal=__version__,
        python=platform.python_version(),
        packages={name: found for name in PACKAGES if (found := _version(name)) is not None},
        machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        manifest=manifest,
        command=_command(),
    )
    before = read_origins(run.path)
    if not before or before[-1] != entry:
        write_json(run.origin, [origin.model_dump() for origin in (*before, entry)])


def read_origins(path: Path) -> list[RunOrigin]:
    """Read the entries of `origin.json` in a run directory, leaving out damaged ones."""
    try:
        content = read_json(RunDirectory(path).origin)
    except FealError:
        return []
    origins = []
    for entry in content if isinstance(content, list) else ():
        try:
            origins.append(RunOrigin.model_validate(entry))
        except ValidationError:
            continue
    return origins


def _command() -> str | None:
    """Return the command line, if it is one of `feal`."""
    program = Path(sys.argv[0]).stem if sys.argv else ""
    return shlex.join(["feal", *sys.argv[1:]]) if program in ("feal", "-c") and len(sys.argv) > 1 else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
