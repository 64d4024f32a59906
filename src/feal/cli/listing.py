"""`feal list`: what a configuration can name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table

from feal.annotation import ANNOTATORS
from feal.cli.paper import show_paper
from feal.config import ABOUT, preset_names, read_preset
from feal.data import DATASETS
from feal.data.preparation.downloads import DOWNLOADS
from feal.errors import FealError, unknown
from feal.federation.engines import ENGINES
from feal.models import MODELS
from feal.registry import Registry
from feal.selection import STRATEGIES


def show_list(what: str, *, paper: bool = False) -> None:
    """Print names with a line each; of presets also what the paper reports, if asked for."""
    if paper and what == "presets":
        show_paper()
        return
    if paper:
        raise FealError("--paper is for presets: `feal list presets --paper`.")
    tables: dict[str, Callable[[], Table]] = {
        "strategies": _strategies,
        "presets": _presets,
        "datasets": partial(_named, "data set", DOWNLOADS, DATASETS),
        "models": partial(_named, "model", MODELS),
        "engines": partial(_named, "engine", ENGINES),
        "annotators": partial(_named, "annotator", ANNOTATORS),
    }
    if what not in tables:
        raise unknown("list of", what, tables)
    Console().print(tables[what]())


def _strategies() -> Table:
    table = Table("strategy", "what it does", box=None, header_style="bold", padding=(0, 2, 1, 0))
    for name in STRATEGIES.names():
        strategy = STRATEGIES.get(name)
        facts = [strategy.source, f"loss {strategy.default_loss}"]
        if strategy.query_models:
            facts.append(f"query_model {' | '.join(strategy.query_models)}")
        if strategy.settings:
            facts.append(f"settings {', '.join(strategy.settings)}")
        table.add_row(name, f"{STRATEGIES.summary(name)}\n[dim]{' · '.join(facts)}[/dim]")
    return table


def _presets() -> Table:
    table = Table("preset", "what it is", box=None, header_style="bold")
    for name in preset_names():
        table.add_row(name, str(read_preset(name).get(ABOUT, "")))
    return table


def _named(kind: str, *registries: Registry[Any]) -> Table:
    table = Table(kind, "what it is", box=None, header_style="bold")
    for registry in registries:
        for name in registry.names():
            table.add_row(name, registry.summary(name))
    return table
