"""A figure: tidy data from runs, and two thin ways to draw them, for the web and for print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from feal.analysis.runs import Run
from feal.registry import Registry

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Print
    from plotly.graph_objects import Figure as Web

Rows = list[dict[str, Any]]
"""A tidy table: the same keys in every row, plain values; None where there is no figure."""


class Figure(Protocol):
    """What people look at; `data` alone computes, `web` and `printed` only draw what it gave."""

    title: ClassVar[str]
    reading: ClassVar[str]
    """How to read it, in two sentences."""
    section: ClassVar[str]
    """Where it stands in the report: learning, selection, uncertainty, shift, cost."""

    @staticmethod
    def data(runs: Sequence[Run]) -> Rows:
        """The figure's numbers; no row where the runs hold nothing to show.

        Raises:
            FealError: the runs do not fit together.
        """

    @staticmethod
    def web(rows: Rows) -> Web:
        """An interactive drawing of the rows."""

    @staticmethod
    def printed(rows: Rows) -> Print:
        """A drawing of the rows for a publication."""


FIGURES: Registry[type[Figure]] = Registry("figure")


def data_of(figure: type[Figure], runs: Sequence[Run], *, pictures: bool = False) -> Rows:
    """A figure's data; one of patients' pictures has none unless they are asked for.

    Such a figure says `shows_patients = True`, and its `data` takes `pictures`, which is false unless given.
    """
    data: Any = figure.data
    rows: Rows = data(runs, pictures=pictures) if shows_patients(figure) else data(runs)
    return rows


def shows_patients(figure: type[Figure]) -> bool:
    """Whether a figure is of patients' pictures."""
    return bool(getattr(figure, "shows_patients", False))
