"""Figures of runs, one file each; importing this package registers all of them."""

from feal.analysis.figures import (
    class_yield,
    cost,
    curves,
    energy,
    relaxation,
    reliability,
    simplex_rounds,
    simplex_strategies,
    uncertainty,
    uncertainty_maps,
    zero_evidence,
)
from feal.analysis.figures.contract import FIGURES, Figure, Rows, data_of

__all__ = [
    "FIGURES",
    "Figure",
    "Rows",
    "class_yield",
    "cost",
    "curves",
    "data_of",
    "energy",
    "relaxation",
    "reliability",
    "simplex_rounds",
    "simplex_strategies",
    "uncertainty",
    "uncertainty_maps",
    "zero_evidence",
]
