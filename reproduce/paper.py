"""The paper's tables and figures (`entries.yaml`) and the numbers it prints (`published.csv`).

Metrics are percentages, with the standard deviation over three seeds where the paper has it. What is only plotted
(full supervision in classification, HD95, the first round, most of OCTA-500) is not included.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from feal.config import parse
from feal.errors import unknown_name_error

CITATION = "Chen, Ma, Cui, Xia: Think Twice Before Selection, CVPR 2024"
METRICS = {"fed-isic": "balanced_accuracy", "fed-camelyon": "accuracy"}
"""The metric that the paper reports for classification; for segmentation it is Dice."""

_DATA = Path(__file__).parent


class Published(BaseModel):
    """A number that the paper prints."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    """The table it stands in, or the figure whose text states it."""
    preset: str
    metric: str
    """A metric of a round, `seconds` of a selection, or the number of `train` or `test` samples."""
    site: str | None = None
    strategy: str | None = None
    query_model: str | None = None
    changes: str = ""
    """The settings of an ablation that differ from the preset, as on a command line."""
    round: int | None = None
    """None where the text does not state it or there is none; full supervision has one round."""
    value: float
    sd: float | None = None
    mark: int | None = None
    """1 and 2 where the paper marks the best and the second best."""

    @property
    def overrides(self) -> dict[str, Any]:
        """Return the settings that differ from the preset, by dotted name."""
        named = {"strategy": self.strategy, "strategy.query_model": self.query_model}
        return {key: value for key, value in named.items() if value} | parse(self.changes.split())


class Source(BaseModel):
    """A choice on which the sources differ or are silent; an empty field is one that nothing is known about."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: str
    paper: str = ""
    code: str = ""
    cited: str = ""
    ours: str
    other: str = ""


class Entry(BaseModel):
    """A table or figure; the head of `entries.yaml` explains each field."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    shows: str
    section: str
    presets: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    runs_of: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    numbers_of: str | None = None
    not_printed: str = ""
    text: str = ""
    differences: tuple[str, ...] = ()

    @property
    def published(self) -> list[Published]:
        """Return the numbers that the paper prints, in the paper's order."""
        source = self.numbers_of or self.name
        return [row for row in read_published() if row.source == source and row.preset in self.presets]

    @property
    def is_comparable(self) -> bool:
        """Tell whether there are published results of runs; sizes of data sets are not."""
        return any(row.strategy for row in self.published)

    def run_commands(self, preset: str) -> list[str]:
        """Return the commands that make the runs of a preset."""
        owner = self._owner(preset)
        return [line.format(preset=preset, out=self.out(preset)) for line in owner.runs]

    def view_commands(self, preset: str) -> list[str]:
        """Return the commands that show the runs of a preset."""
        metric = METRICS.get(preset, "dice")
        return [
            line.format(name=self.name, preset=preset, out=self.out(preset), metric=metric) for line in self.views
        ]

    def commands(self) -> list[str]:
        """Return all commands in order; the last one compares with the published results, if there are any."""
        lines = [
            line for preset in self.presets for line in (*self.run_commands(preset), *self.view_commands(preset))
        ]
        if self.is_comparable:
            places = " ".join(self.out(preset) for preset in self.presets)
            lines.append(f"python -m reproduce {self.name} --runs {places}")
        return lines

    def out(self, preset: str) -> str:
        """Return the folder that holds the runs of a preset."""
        return f"runs/{self._owner(preset).name}/{preset}"

    def _owner(self, preset: str) -> Entry:
        others = (find_entry(name) for name in self.runs_of)
        return next((other for other in others if preset in other.presets), self)


def read_entries() -> dict[str, Entry]:
    """Return all tables, then all figures, by name and in the paper's order."""
    return {name: Entry(name=name, **fields) for name, fields in _content()["entries"].items()}


def read_differences() -> Mapping[str, str]:
    """Return how our settings and data differ from the authors', one paragraph for each key."""
    paragraphs: Mapping[str, str] = _content()["differences"]
    return paragraphs


def read_sources() -> tuple[Source, ...]:
    """Return the choices on which the paper, its code and the code that it cites differ or are silent."""
    return tuple(Source(**fields) for fields in _content()["sources"])


def find_entry(name: str) -> Entry:
    """Return the table or figure of that name.

    Raises:
        FealError: there is none; the message suggests the nearest name.

    >>> find_entry("figure-9").out("fed-polyp")
    'runs/table-1/fed-polyp'
    """
    entries = read_entries()
    if name not in entries:
        raise unknown_name_error("table or figure", name, entries)
    return entries[name]


@cache
def read_published() -> tuple[Published, ...]:
    """Return every published number, in the paper's order.

    >>> [row.value for row in read_published() if row.changes == "loss.lambda=1e-3"][:4]
    [63.49, 64.57, 66.25, 65.45]
    """
    with (_DATA / "published.csv").open(newline="") as file:
        lines = [{key: value for key, value in line.items() if value} for line in csv.DictReader(file)]
    return tuple(Published.model_validate(line) for line in lines)


@cache
def _content() -> Mapping[str, Any]:
    content: Mapping[str, Any] = yaml.safe_load((_DATA / "entries.yaml").read_text())
    return content
