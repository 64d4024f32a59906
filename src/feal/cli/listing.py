"""`feal list`: what a configuration can name."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from feal.config import ABOUT, preset_names, read_preset
from feal.data import DATASETS
from feal.errors import unknown
from feal.models import MODELS
from feal.selection import STRATEGIES


def show_list(what: str) -> None:
    """Print names with a line each."""
    tables = {"strategies": _strategies, "presets": _presets, "datasets": _datasets, "models": _models}
    if what not in tables:
        raise unknown("list of", what, tables)
    Console().print(tables[what]())


def _strategies() -> Table:
    table = Table("strategy", "what it does", "query models", "loss", box=None, header_style="bold")
    for name in STRATEGIES.names():
        strategy = STRATEGIES.get(name)
        models = ", ".join(strategy.query_models) or "-"
        table.add_row(name, STRATEGIES.summary(name), models, strategy.default_loss)
    return table


def _presets() -> Table:
    table = Table("preset", "what it is", box=None, header_style="bold")
    for name in preset_names():
        table.add_row(name, str(read_preset(name).get(ABOUT, "")))
    return table


def _datasets() -> Table:
    table = Table("data set", "what it is", box=None, header_style="bold")
    for name in DATASETS.names():
        table.add_row(name, DATASETS.summary(name))
    return table


def _models() -> Table:
    table = Table("model", "what it is", box=None, header_style="bold")
    for name in MODELS.names():
        table.add_row(name, MODELS.summary(name))
    return table
