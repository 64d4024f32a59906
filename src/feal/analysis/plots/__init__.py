"""Plots of runs; importing this package registers all of them."""

from feal.analysis.plots import cost, curves, energy, maps, selection, simplex, uncertainty  # noqa: F401
from feal.analysis.plots.base import PLOTS as PLOTS
from feal.analysis.plots.base import Chart as Chart
from feal.analysis.plots.base import Plot as Plot
from feal.analysis.plots.base import PlotRows as PlotRows
from feal.analysis.plots.base import read_plot_rows as read_plot_rows
from feal.analysis.plots.base import save_plot as save_plot
