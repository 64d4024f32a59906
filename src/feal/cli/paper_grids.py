"""Numbers of the paper as tables: a row for each arm or site, a column for each round, data set or size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from feal.analysis.grids import Entry, Grid
from feal.config.paper import Published

LABELS = ("site", "strategy", "model", "setting")
_SHORT = {"epistemic-": "epi-", "aleatoric-": "ale-", "-global": "-g", "-local": "-l"}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A text and where it stands."""

    block: str
    """The title of its table."""
    label: tuple[str, ...]
    column: str
    text: str
    rank: int | None = None


def number_grids(rows: Iterable[Published]) -> list[Grid]:
    """Published numbers as tables, with the paper's marks."""
    return arrange(
        (
            Cell(block=block(row), label=label(row), column=column(row), text=number(row), rank=row.mark)
            for row in rows
        ),
        labels=LABELS,
    )


def arrange(cells: Iterable[Cell], *, labels: Sequence[str]) -> list[Grid]:
    """A grid for each block, rows and columns in the order in which they come; labels that say nothing go.

    >>> cell = Cell(block="Dice", label=("feal", ""), column="round 2", text="0.5")
    >>> (grid,) = arrange([cell], labels=("a", "b"))
    >>> grid.heading, [[entry.text for entry in row] for row in grid.rows]
    (('a', 'round 2'), [['feal', '0.5']])
    """
    blocks: dict[str, list[Cell]] = {}
    for cell in cells:
        blocks.setdefault(cell.block, []).append(cell)
    return [_grid(title, members, labels) for title, members in blocks.items()]


def block(row: Published) -> str:
    """The title of the table that a number stands in."""
    if row.figure == "seconds":
        return "seconds for one selection"
    if row.site:
        return f"{row.preset}, samples"
    key = row.changes.partition("=")[0]
    return f"{row.preset}, {row.figure.replace('_', ' ')}" + (f" of {row.strategy} by {key}" if key else "")


def label(row: Published) -> tuple[str, ...]:
    """What a number is of, under `LABELS`."""
    if row.changes:
        return "", "", "", _short(row.changes.partition("=")[2])
    return row.site or "", row.strategy or "", row.query_model or "", ""


def column(row: Published) -> str:
    """The heading that a number stands under."""
    if row.site:
        return row.figure
    if row.figure == "seconds":
        return row.preset
    if row.strategy == "full":
        return "all labels"
    return f"round {row.round}" if row.round else "round not said"


def number(row: Published) -> str:
    """A number as the paper prints it."""
    text = f"{row.value:.0f}" if row.site else f"{row.value:.2f}"
    return text + (f" ± {row.sd:.2f}" if row.sd is not None else "")


def _short(value: str) -> str:
    """A setting's value as narrow as can be read.

    >>> _short("[epistemic-global,aleatoric-local]")
    'epi-g + ale-l'
    """
    for long, short in _SHORT.items():
        value = value.replace(long, short)
    return value.strip("[]").replace(",", " + ")


def _grid(title: str, cells: Sequence[Cell], labels: Sequence[str]) -> Grid:
    said = [index for index in range(len(labels)) if any(cell.label[index] for cell in cells)]
    columns = list(dict.fromkeys(cell.column for cell in cells))
    found: dict[tuple[str, ...], dict[str, Entry]] = {}
    for cell in cells:
        found.setdefault(cell.label, {})[cell.column] = Entry(cell.text, cell.rank)
    rows = tuple(
        (*(Entry(label[index]) for index in said), *(by_column.get(name, Entry("")) for name in columns))
        for label, by_column in found.items()
    )
    return Grid(title=title, heading=(*(labels[index] for index in said), *columns), rows=rows, names=len(said))
