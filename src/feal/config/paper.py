"""What the paper reports for its data sets, to hold a run's figures against.

Per cent, as printed: classification from the supplement's table (mean and standard deviation of three seeds),
segmentation from the main table (the standard deviations of feal on Fed-Polyp from the table on losses). The
figures of full supervision in classification and most of OCTA-500's are in plots only and not here.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, kw_only=True)
class Published:
    """A figure of the paper."""

    preset: str
    figure: str
    strategy: str
    query_model: str | None
    round: int | None
    """None where the text does not say."""
    mean: float
    sd: float | None


def published(preset: str) -> list[Published]:
    """The paper's figures for a preset, in the order of its tables; none for other presets.

    >>> [row.mean for row in published("fed-isic") if row.strategy == "feal"]
    [65.18, 67.77, 68.41, 68.46]
    """
    lines = (resources.files("feal.config") / "paper.csv").read_text().splitlines()
    return [_row(line) for line in csv.DictReader(lines) if line["preset"] == preset]


def _row(line: dict[str, str]) -> Published:
    return Published(
        preset=line["preset"],
        figure=line["figure"],
        strategy=line["strategy"],
        query_model=line["query_model"] or None,
        round=int(line["round"]) if line["round"] else None,
        mean=float(line["mean"]),
        sd=float(line["sd"]) if line["sd"] else None,
    )
