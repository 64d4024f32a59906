"""Every table and figure of the paper: what it shows, and the commands that make it (`paper.yaml`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

from feal.config.paper import Published, printed_in
from feal.errors import unknown

METRIC = {"fed-isic": "balanced_accuracy", "fed-camelyon": "accuracy"}
"""What the paper judges classification by; segmentation is judged by Dice."""

CITATION = "Chen, Ma, Cui, Xia: Think Twice Before Selection, CVPR 2024"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A table or figure; `paper.yaml` says what each field is."""

    name: str
    shows: str
    section: str
    presets: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    runs_of: tuple[str, ...] = ()
    looks: tuple[str, ...] = ()
    numbers: str | None = None
    unprinted: str = ""
    says: str = ""
    differs: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Its name as the paper writes it.

        >>> entry_named("table-2").title
        'Table 2'
        """
        return self.name.capitalize().replace("-", " ")

    @property
    def source(self) -> str:
        """The entry whose numbers these are."""
        return self.numbers or self.name

    def published(self) -> list[Published]:
        """The numbers that the paper prints of it, in its order."""
        return [row for row in printed_in(self.source) if row.preset in self.presets]

    def comparable(self) -> bool:
        """Whether runs can be held against its numbers; sizes of data sets are no run's."""
        return any(row.strategy for row in self.published())

    def making(self, preset: str) -> list[str]:
        """Commands that make a preset's runs."""
        owner = self._owner(preset)
        return [line.format(preset=preset, out=self.out(preset)) for line in owner.runs]

    def looking(self, preset: str) -> list[str]:
        """Commands that show a preset's runs."""
        words = {
            "name": self.name,
            "preset": preset,
            "out": self.out(preset),
            "metric": METRIC.get(preset, "dice"),
        }
        return [line.format(**words) for line in self.looks]

    def comparing(self) -> list[str]:
        """The command that puts ours beside theirs, where there is anything to compare with."""
        places = " ".join(self.out(preset) for preset in self.presets)
        return [f"feal paper {self.name} --runs {places}"] if self.comparable() else []

    def commands(self) -> list[str]:
        """All commands in their order."""
        by_preset = [line for preset in self.presets for line in (*self.making(preset), *self.looking(preset))]
        return [*by_preset, *self.comparing()]

    def out(self, preset: str) -> str:
        """Where the commands put a preset's runs."""
        return f"runs/{self._owner(preset).name}/{preset}"

    def differences(self) -> list[str]:
        """How our settings and data differ from the authors', a paragraph each."""
        return [differences()[key] for key in self.differs]

    def _owner(self, preset: str) -> Entry:
        """The entry whose runs these are."""
        others = (entry_named(name) for name in self.runs_of)
        return next((other for other in others if preset in other.presets), self)


def entries() -> list[Entry]:
    """All of them: tables, then figures, in the paper's order."""
    return [_entry(name, fields) for name, fields in _content()["entries"].items()]


def differences() -> Mapping[str, str]:
    """In what our settings and data are not the authors', by key."""
    paragraphs: Mapping[str, str] = _content()["differences"]
    return paragraphs


def entry_named(name: str) -> Entry:
    """The table or figure of that name.

    Raises:
        FealError: there is none, with the nearest spelling.

    >>> entry_named("figure-9").out("fed-polyp")
    'runs/table-1/fed-polyp'
    """
    known = _content()["entries"]
    if name not in known:
        raise unknown("table or figure", name, known)
    return _entry(name, known[name])


def _entry(name: str, fields: Mapping[str, Any]) -> Entry:
    settled: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()
    }
    return Entry(name=name, **settled)


@cache
def _content() -> Mapping[str, Any]:
    content: Mapping[str, Any] = yaml.safe_load((resources.files("feal.config") / "paper.yaml").read_text())
    return content
