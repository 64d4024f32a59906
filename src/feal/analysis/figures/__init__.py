"""Figures of runs, one file each; importing this package registers all of them."""

from feal.analysis.figures import curves as _curves  # noqa: F401
from feal.analysis.figures.contract import FIGURES, Figure, Rows

__all__ = ["FIGURES", "Figure", "Rows"]
