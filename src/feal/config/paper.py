"""What the paper prints, to hold a run's figures against: `paper.csv`, each table as it stands there.

Shares are per cent, with the standard deviation of three seeds where the table has it. What is in plots only (full
supervision in classification, HD95, the first round, most of OCTA-500) is not here.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from feal.config.overrides import parse

MAIN = ("table-1", "table-6", "figure-19")
"""Where each data set's main figures are."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """A number of the paper."""

    source: str
    """The table, or the figure whose text has it."""
    preset: str
    figure: str
    """A figure of a round's record, `seconds` of a selection, or `train` and `test` samples."""
    site: str | None
    strategy: str | None
    query_model: str | None
    changes: str
    """Settings in which an ablation differs from the preset, as on a command line."""
    round: int | None
    """None where the text does not say, or there is none; full supervision has one round."""
    value: float
    sd: float | None
    mark: int | None
    """1 and 2 where the paper marks the best and the second best."""

    @property
    def overrides(self) -> dict[str, Any]:
        """The settings that tell the run from the preset's, by dotted names."""
        named = {"strategy": self.strategy, "query_model": self.query_model}
        return {key: value for key, value in named.items() if value} | parse(self.changes.split())


def published(preset: str) -> list[Published]:
    """The paper's main figures for a preset, in the order of its tables; none for other presets.

    >>> [row.value for row in published("fed-isic") if row.strategy == "feal"]
    [65.18, 67.77, 68.41, 68.46]
    """
    return [row for source in MAIN for row in printed_in(source) if row.preset == preset]


def printed_in(source: str) -> list[Published]:
    """The numbers of a table, in its order; none where the paper prints none.

    >>> [row.value for row in printed_in("table-4") if row.changes == "evidence.lambda=1e-3"]
    [63.49, 64.57, 66.25, 65.45]
    """
    return [row for row in _rows() if row.source == source]


@cache
def _rows() -> tuple[Published, ...]:
    lines = (resources.files("feal.config") / "paper.csv").read_text().splitlines()
    return tuple(_row(line) for line in csv.DictReader(lines))


def _row(line: dict[str, str]) -> Published:
    return Published(
        source=line["source"],
        preset=line["preset"],
        figure=line["figure"],
        site=line["site"] or None,
        strategy=line["strategy"] or None,
        query_model=line["query_model"] or None,
        changes=line["changes"],
        round=int(line["round"]) if line["round"] else None,
        value=float(line["value"]),
        sd=float(line["sd"]) if line["sd"] else None,
        mark=int(line["mark"]) if line["mark"] else None,
    )
