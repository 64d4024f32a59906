"""`feal list`: the names that settings can have as values."""

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from feal.cli.app import app
from feal.cli.console import make_table
from feal.errors import unknown_name_error

if TYPE_CHECKING:
    from feal.registry import Registry

_REGISTRIES = {
    "datasets": (
        "data set",
        [("feal.data.prepare.datasets", "DATASET_SOURCES"), ("feal.data", "SYNTHETIC_DATASETS")],
    ),
    "models": ("model", [("feal.models", "MODELS")]),
    "losses": ("loss", [("feal.evidential", "LOSSES")]),
    "transports": ("transport", [("feal.federation.transport", "TRANSPORTS")]),
    "annotators": ("annotator", [("feal.annotation", "ANNOTATORS")]),
}
"""What each list is of, and where its registries are, which are imported when they are needed."""


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
    rows: list[tuple[str, str | Text]]
    if what == "strategies":
        from feal.selection import STRATEGIES

        kind, rows = "strategy", [(name, _describe_strategy(name)) for name in STRATEGIES.names()]
    elif what == "presets":
        from feal.config import ABOUT, preset_names, read_preset

        kind, rows = "preset", [(name, str(read_preset(name).get(ABOUT, ""))) for name in preset_names()]
    elif what in _REGISTRIES:
        kind, places = _REGISTRIES[what]
        registries: list[Registry[Any]] = [getattr(import_module(module), name) for module, name in places]
        rows = [(name, registry.summary(name)) for registry in registries for name in registry.names()]
    else:
        raise unknown_name_error("list of", what, ["strategies", "presets", *_REGISTRIES])
    Console().print(make_table([kind, "description"], rows, words=2))


def _describe_strategy(name: str) -> Text:
    from feal.plugins import parameter_fields
    from feal.selection import STRATEGIES

    strategy = STRATEGIES.get(name)
    facts = [strategy.source, f"loss {strategy.default_loss}"]
    parameters = parameter_fields(strategy)
    if parameters:
        facts.append(f"parameters {', '.join(parameters)}")
    return Text.assemble(STRATEGIES.summary(name), "\n", (" · ".join(facts), "dim"), "\n")
