"""Published numbers and our results as Markdown tables, aligned so that they can be read on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from reproduce.compare import Pair, describe_data
from reproduce.paper import Published

LABELS = ("site", "strategy", "query model", "setting", "")
_MARKS = {None: "{}", 1: "**{}**", 2: "_{}_"}


class Cell(NamedTuple):
    """A text and its place: the title of its table, the labels of its row (see `LABELS`), its column."""

    title: str
    labels: tuple[str, ...]
    column: str
    text: str


def published_tables(rows: Iterable[Published]) -> str:
    """Return published numbers as tables, with the paper's marks."""
    return render(
        Cell(_title(row), (*row_labels(row), ""), _column(row), _MARKS[row.mark].format(_number(row)))
        for row in rows
    )


def comparison_tables(pairs: Iterable[Pair]) -> str:
    """Return our results below the published numbers; the title states if images or network differ."""
    return render(cell for pair in pairs for cell in _compared_cells(pair))


def render(cells: Iterable[Cell]) -> str:
    """Return one Markdown table for each title; rows and columns keep their order.

    >>> print(render([Cell("Dice", ("", "feal", "", "", ""), "round 2", "0.5")]))
    **Dice**
    <BLANKLINE>
    | strategy | round 2 |
    |----------|---------|
    | feal     | 0.5     |
    """
    blocks: dict[str, list[Cell]] = {}
    for cell in cells:
        blocks.setdefault(cell.title, []).append(cell)
    return "\n\n".join(f"**{title}**\n\n{_table(block)}" for title, block in blocks.items())


def markdown(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with aligned columns."""
    widths = [max(map(len, column)) for column in zip(heading, *rows, strict=True)]
    lines = [
        f"| {' | '.join(text.ljust(width) for text, width in zip(row, widths, strict=True))} |"
        for row in (heading, *rows)
    ]
    return "\n".join([lines[0], f"|{'|'.join('-' * (width + 2) for width in widths)}|", *lines[1:]])


def row_labels(row: Published) -> tuple[str, ...]:
    """Return what identifies the row of a number: site, strategy, query model, setting.

    >>> terms = "strategy.terms=[epistemic-global,aleatoric-local]"
    >>> row_labels(Published(source="table-2", preset="fed-isic", metric="dice", value=1, changes=terms))
    ('', '', '', 'epistemic-global + aleatoric-local')
    """
    if row.changes:
        return "", "", "", row.changes.partition("=")[2].strip("[]").replace(",", " + ")
    return row.site or "", row.strategy or "", row.query_model or "", ""


def _compared_cells(pair: Pair) -> Iterator[Cell]:
    row, ours = pair.published, pair.ours
    texts = {"paper": _number(row), "ours": "-", "difference": "", "seeds": ""}
    if ours is not None:
        sd = "" if ours.sd is None else f" ± {ours.sd:.2f}"
        texts |= {
            "ours": f"{ours.mean:.2f}{sd}",
            "difference": f"{ours.mean - row.value:+.2f}",
            "seeds": str(ours.seeds),
        }
    note = describe_data(pair.match.differences)
    title = _title(row) + (f" (ours: {note})" if note else "")
    for line, text in texts.items():
        yield Cell(title, (*row_labels(row), line), _column(row), text)


def _table(cells: Sequence[Cell]) -> str:
    used = [at for at in range(len(LABELS)) if any(cell.labels[at] for cell in cells)]
    columns = list(dict.fromkeys(cell.column for cell in cells))
    texts: dict[tuple[str, ...], dict[str, str]] = {}
    for cell in cells:
        texts.setdefault(cell.labels, {})[cell.column] = cell.text
    rows: list[list[str]] = []
    above: tuple[str, ...] = ()
    for labels, found in texts.items():
        # A row of several lines is named on the first of them.
        names = ["" if at < 4 and labels[:4] == above else labels[at] for at in used]
        rows.append([*names, *(found.get(column, "") for column in columns)])
        above = labels[:4]
    return markdown([*(LABELS[at] for at in used), *columns], rows)


def _title(row: Published) -> str:
    if row.metric == "seconds":
        return "seconds for one selection"
    if row.site:
        return f"{row.preset}, samples"
    key = row.changes.partition("=")[0]
    return f"{row.preset}, {row.metric.replace('_', ' ')}" + (f" of {row.strategy} by {key}" if key else "")


def _column(row: Published) -> str:
    if row.site:
        return row.metric
    if row.metric == "seconds":
        return row.preset
    if row.strategy == "full":
        return "all labels"
    return f"round {row.round}" if row.round else "round not stated"


def _number(row: Published) -> str:
    text = f"{row.value:.0f}" if row.site else f"{row.value:.2f}"
    return text + (f" ± {row.sd:.2f}" if row.sd is not None else "")
