"""Where triangles stand on a sheet: a row a predicted class, a column a round or a strategy."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feal.analysis.figures.contract import Rows
from feal.analysis.simplex import CORNERS, HEIGHT, log_density, positions, raster

LETTERS = "ABC"
"""What the corners are called: left, right, top."""
STEPS = 48
"""Cells across a triangle."""
ACROSS = 5
"""Columns before the next ones go below."""

_PITCH = (1.2, HEIGHT + 0.5)
LEFT = 1.15
"""Room for what stands before each row, where a triangle's side is 1."""
_LINE = 0.22
"""Height of a line of text, on a screen as narrow as a telephone's."""
_WRAP = 10
FAINTEST, BRIGHTEST = -1, 3
"""Decimal logarithms of the densities beyond which colours do not change."""

Floats = NDArray[np.float64]
Text = tuple[float, float, str]
"""Where (x, y) and what."""


@dataclass(frozen=True)
class Panel:
    """A row and the place of its triangle's left corner."""

    row: dict[str, Any]
    x: float
    y: float

    @property
    def alpha(self) -> list[float]:
        """The mean concentration; nothing where no sample is predicted so."""
        values = [self.row[f"alpha_{letter}"] for letter in "abc"]
        return [] if None in values else values

    @property
    def note(self) -> Text:
        """How many samples, below the triangle."""
        count = self.row["samples"]
        return self.x + 0.5, self.y - 0.15, f"n = {count}" if count else "none"

    def at(self, points: Floats) -> Floats:
        """Places in a triangle [..., 2] as places on the sheet."""
        moved: Floats = points + np.array([self.x, self.y])
        return moved

    def mean(self) -> Floats:
        """Where the expected probabilities lie, [2]."""
        alpha = np.array(self.alpha)
        return self.at(positions(alpha / alpha.sum()))

    def picture(self) -> NDArray[np.float32]:
        """Decimal logarithm of the density over the uniform Dirichlet's, [h, w], as far as colours go."""
        x, y, points = raster(STEPS)
        density = log_density(self.alpha, points)
        evidence = np.array(self.alpha) - 1
        if evidence.sum() > 0:
            # A peak may be narrower than a cell, which must not hide it.
            mode = evidence / evidence.sum()
            right, up = positions(mode)
            density[abs(y - up).argmin(), abs(x - right).argmin()] = log_density(self.alpha, mode)
        relative = (density - math.log(2)) / math.log(10)
        return relative.clip(FAINTEST, BRIGHTEST).astype(np.float32)


@dataclass(frozen=True)
class Sheet:
    """All triangles, in blocks of at most `ACROSS` columns, with what is written around them."""

    panels: list[Panel]
    headings: list[Text]
    labels: list[Text]
    width: float
    height: float

    @property
    def filled(self) -> list[Panel]:
        """Triangles with something in them."""
        return [panel for panel in self.panels if panel.alpha]

    @property
    def letters(self) -> list[Text]:
        """Names of the corners, in the first column; none nearer to the next triangle than to its own."""
        beside = CORNERS + np.array([[0.0, -0.1], [0.0, -0.1], [0.0, 0.15]])
        return [
            (*panel.at(place).tolist(), letter)
            for panel in self.panels
            for place, letter in zip(beside, LETTERS, strict=True)
            if not panel.x
        ]

    @property
    def brightest(self) -> float:
        """Where colours end: at the densest place of all triangles, but within reason."""
        densest = max((float(panel.picture().max()) for panel in self.filled), default=0.0)
        return min(float(BRIGHTEST), max(1.0, densest))

    @property
    def ticks(self) -> dict[int, str]:
        """Powers of ten that the colours stand for."""
        written = {power: f"{10.0**power:g}" for power in range(FAINTEST, int(self.brightest) + 1)}
        beyond = {FAINTEST: "≤", BRIGHTEST: "≥"}
        return {power: f"{beyond.get(power, '')} {text}".strip() for power, text in written.items()}


def sheet_of(rows: Rows) -> Sheet:
    """Give every row its place."""
    corners = [rows[0][f"class_{letter}"] for letter in "abc"] if rows else []
    columns = list(dict.fromkeys(row["column"] for row in rows))
    panels, headings, labels = [], [], []
    top = 0.0
    blocks = math.ceil(len(columns) / ACROSS)
    across = math.ceil(len(columns) / max(1, blocks))
    for start in range(0, len(columns), max(1, across)):
        block = [(name, textwrap.wrap(name, _WRAP)) for name in columns[start : start + across]]
        top -= 0.3 + _LINE * max(len(lines) for _, lines in block)
        headings += [(p * _PITCH[0] + 0.5, top + 0.25, "\n".join(lines)) for p, (_, lines) in enumerate(block)]
        for line, letter in enumerate(LETTERS):
            bottom = top - HEIGHT
            labels.append((-0.15, bottom + HEIGHT / 2, f"predicted\n{letter}"))
            for place, (name, _) in enumerate(block):
                own = [row for row in rows if (row["column"], row["predicted"]) == (name, corners[line])]
                panels += [Panel(row, place * _PITCH[0], bottom) for row in own]
            top -= _PITCH[1]
    return Sheet(panels, headings, labels, across * _PITCH[0], -top)
