"""Plots of runs; importing this package registers all of them."""

from feal.analysis.plots import cost, curves, energy, maps, selection, simplex, uncertainty  # noqa: F401
from feal.analysis.plots.base import PLOTS, Chart, Plot, PlotRows, read_plot_rows, save_plot

__all__ = ["PLOTS", "Chart", "Plot", "PlotRows", "read_plot_rows", "save_plot"]
