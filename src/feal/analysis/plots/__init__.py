"""Plots of runs; importing this package registers all of them."""

from feal.analysis.plots import calibration, cost, curves, energy, maps, selection, simplex, uncertainty
from feal.analysis.plots.base import PLOTS, Chart, Plot, PlotRows, read_plot_rows, save_plot, shows_patients

__all__ = [
    "PLOTS",
    "Chart",
    "Plot",
    "PlotRows",
    "calibration",
    "cost",
    "curves",
    "energy",
    "maps",
    "read_plot_rows",
    "save_plot",
    "selection",
    "shows_patients",
    "simplex",
    "uncertainty",
]
