"""Class yield: how many labels of each class a strategy found, against random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from feal.analysis.curves import curve_of
from feal.analysis.figures.contract import FIGURES, Rows
from feal.analysis.figures.dots import printed_dots, web_dots
from feal.analysis.figures.seeds import estimate, series_of
from feal.analysis.figures.style import seeds, unfinished_note
from feal.analysis.runs import Run, arms

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Print
    from plotly.graph_objects import Figure as Web

Found = Mapping[int, NDArray[np.float64]]
"""Labels of each class that a run chose, [classes], by seed."""


@FIGURES.register("yield", summary="labels found of each class, against random; rare classes on top")
class Yield:
    """Labels (segmentation: pixels) that were chosen, so without those that every run begins with."""

    title: ClassVar[str] = "Class yield"
    reading: ClassVar[str] = (
        "A dot is a strategy: how many labels of a class it has found since the first round, as a multiple of "
        "what random found with the same seeds; beyond the line at 1 it finds more. The rarest classes are on "
        "top, each with the number that random found on average: small numbers move much by chance."
    )
    section: ClassVar[str] = "selection"
    needs: ClassVar[str] = "two rounds at least, of runs whose sites' folders are at hand"

    @staticmethod
    def data(runs: Sequence[Run]) -> Rows:
        """A row for each arm, round from the second on (the last one first) and class, the rarest first."""
        groups = arms(runs)
        found = {arm: _found(group) for arm, group in groups.items() if group[0].settings.strategy != "full"}
        rounds = sorted({number for by_round in found.values() for number in by_round}, reverse=True)
        against = next((arm for arm in found if groups[arm][0].settings.strategy == "random"), None)
        return [
            row
            for number in rounds
            for arm, by_round in found.items()
            for row in _rows(
                {
                    **series_of(arm, groups[arm]),
                    "unit": "pixels" if groups[arm][0].task == "segmentation" else "labels",
                },
                number,
                by_round.get(number, {}),
                found[against].get(number, {}) if against is not None else {},
                classes=_rarest_first(found, against, groups[arm][0].classes),
            )
        ]

    @staticmethod
    def web(rows: Rows) -> Web:
        """Dots by class; a menu chooses the round."""
        return web_dots(_drawn(rows), x_title=_x_title(rows), line=_line(rows), note=unfinished_note(rows))

    @staticmethod
    def printed(rows: Rows) -> Print:
        """Dots by class, of the first round among the rows: the last one."""
        return printed_dots(_drawn(rows), x_title=_x_title(rows), line=_line(rows), note=unfinished_note(rows))


def _found(group: Sequence[Run]) -> dict[int, dict[int, NDArray[np.float64]]]:
    """Labels by class that were chosen after the first round, by round and seed."""
    found: dict[int, dict[int, NDArray[np.float64]]] = {}
    for run in group:
        curve = curve_of(run, found=True)
        counts = curve.found()
        for point, so_far in zip(curve.points[1:], counts[1:] - counts[:1], strict=True):
            if so_far.sum():
                found.setdefault(point.round, {})[run.settings.seed] = so_far
    return found


def _rarest_first(
    found: Mapping[str, Mapping[int, Found]], against: str | None, classes: Sequence[str]
) -> list[tuple[int, str]]:
    """Classes with their place, by what random found in its last round, or else all arms together."""
    arms_ = [found[against]] if against is not None else list(found.values())
    total = sum(
        (counts for by_round in arms_ if by_round for counts in by_round[max(by_round)].values()),
        start=np.zeros(len(classes)),
    )
    return sorted(enumerate(classes), key=lambda entry: total[entry[0]])


def _rows(
    series: dict[str, Any], number: int, own: Found, random: Found, *, classes: Sequence[tuple[int, str]]
) -> Rows:
    both = own.keys() & random.keys()
    rows = []
    for place, name in classes if own else ():
        theirs = sum(random[seed][place] for seed in both)
        ours = sum(own[seed][place] for seed in both)
        rows.append(
            {
                **series,
                "round": number,
                "class": name,
                **estimate((float(counts[place]) for counts in own.values()), within=(0.0, np.inf)),
                "share": float(np.mean([counts[place] / counts.sum() for counts in own.values()])),
                "random": float(theirs) / len(both) if both else None,
                "ratio": float(ours / theirs) if theirs else None,
            }
        )
    return rows


def _line(rows: Rows) -> float | None:
    return 1.0 if any(row["ratio"] is not None for row in rows) else None


def _x_title(rows: Rows) -> str:
    unit = rows[0]["unit"]
    return f"{unit.capitalize()} found (random = 1)" if _line(rows) else f"Share of the {unit} found"


def _drawn(rows: Rows) -> Rows:
    """Dots: against random where it is there, and shares of all labels where it is not."""
    against = _line(rows) is not None
    labels = {row["class"]: row["class"] for row in rows}
    for row in reversed(rows if against else []):
        if row["random"] is not None:
            labels[row["class"]] = f"{row['class']} ({counted(row['random'])})"
    return [
        {
            "name": row["arm"],
            "line": labels[row["class"]],
            "x": row["ratio"] if against else row["share"],
            "choice": f"after round {row['round']}",
            "hover": _hover(row),
        }
        for row in rows
        if not against or row["strategy"] != "random"
    ]


def counted(number: float) -> str:
    """A mean count, with a decimal where that matters.

    >>> counted(24680.4), counted(3.25), counted(7.0)
    ('24,680', '3.2', '7')
    """
    return f"{number:,.0f}" if number >= 10 or number == round(number) else f"{number:.1f}"


def _hover(row: dict[str, Any]) -> str:
    against = f"<br>random: {counted(row['random'])}" if row["random"] is not None else ""
    ratio = f", so {row['ratio']:.2f} times as many" if row["ratio"] is not None else ""
    interval = (
        f" (95 % interval {counted(row['low'])} to {counted(row['high'])})" if row["low"] is not None else ""
    )
    return (
        f"<b>{row['arm']}</b>, {row['class']}<br>{counted(row['value'])} {row['unit']} since round 1{interval}, "
        f"{row['share']:.1%} of its own{against}{ratio}<br>{seeds(row['n'])}"
    )
