"""`feal list`: the names that settings can have as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from feal.errors import unknown_name_error

if TYPE_CHECKING:
    from feal.registry import Registry

app = typer.Typer()


@app.command("list", epilog="Examples: `feal list strategies` · `feal list presets`")
def list_names(
    what: Annotated[
        str,
        typer.Argument(
            metavar="strategies|losses|presets|datasets|models|transports|annotators", help="What to list."
        ),
    ],
) -> None:
    """List the strategies, losses, presets, data sets, models, transports or annotators that settings can name."""
    from feal.annotation import ANNOTATORS
    from feal.data import SYNTHETIC_DATASETS
    from feal.data.prepare.datasets import DATASET_SOURCES
    from feal.evidential import LOSSES
    from feal.federation.transport import TRANSPORTS
    from feal.models import MODELS

    registries: dict[str, tuple[str, list[Registry[Any]]]] = {
        "datasets": ("data set", [DATASET_SOURCES, SYNTHETIC_DATASETS]),
        "models": ("model", [MODELS]),
        "losses": ("loss", [LOSSES]),
        "transports": ("transport", [TRANSPORTS]),
        "annotators": ("annotator", [ANNOTATORS]),
    }
    if what == "strategies":
        table = _strategies_table()
    elif what == "presets":
        table = _presets_table()
    elif what in registries:
        table = _registry_table(*registries[what])
    else:
        raise unknown_name_error("list of", what, ["strategies", "presets", *registries])
    Console().print(table)


def _strategies_table() -> Table:
    from feal.plugins import parameter_fields
    from feal.selection import STRATEGIES

    table = Table("strategy", "description", box=None, header_style="bold", padding=(0, 2, 1, 0))
    for name in STRATEGIES.names():
        strategy = STRATEGIES.get(name)
        facts = [strategy.source, f"loss {strategy.default_loss}"]
        parameters = parameter_fields(strategy)
        if parameters:
            facts.append(f"parameters {', '.join(parameters)}")
        table.add_row(name, f"{STRATEGIES.summary(name)}\n[dim]{' · '.join(facts)}[/dim]")
    return table


def _presets_table() -> Table:
    from feal.config import ABOUT, preset_names, read_preset

    table = Table("preset", "description", box=None, header_style="bold")
    for name in preset_names():
        table.add_row(name, str(read_preset(name).get(ABOUT, "")))
    return table


def _registry_table(kind: str, registries: list[Registry[Any]]) -> Table:
    table = Table(kind, "description", box=None, header_style="bold")
    for registry in registries:
        for name in registry.names():
            table.add_row(name, registry.summary(name))
    return table
