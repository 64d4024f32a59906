"""`feal list`: the names that settings can have as values."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from feal.cli.app import app
from feal.cli.console import make_table
from feal.errors import unknown_name_error

if TYPE_CHECKING:
    from feal.registry import Registry


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
    from feal.config import ABOUT, preset_names, read_preset
    from feal.data import SYNTHETIC_DATASETS
    from feal.data.prepare.datasets import DATASET_SOURCES
    from feal.evidential import LOSSES
    from feal.federation.transport import TRANSPORTS
    from feal.models import MODELS
    from feal.selection import STRATEGIES

    registries: dict[str, tuple[str, list[Registry[Any]]]] = {
        "datasets": ("data set", [DATASET_SOURCES, SYNTHETIC_DATASETS]),
        "models": ("model", [MODELS]),
        "losses": ("loss", [LOSSES]),
        "transports": ("transport", [TRANSPORTS]),
        "annotators": ("annotator", [ANNOTATORS]),
    }
    rows: list[tuple[str, str | Text]]
    if what == "strategies":
        kind, rows = "strategy", [(name, _describe_strategy(name)) for name in STRATEGIES.names()]
    elif what == "presets":
        kind, rows = "preset", [(name, str(read_preset(name).get(ABOUT, ""))) for name in preset_names()]
    elif what in registries:
        kind, several = registries[what]
        rows = [(name, registry.summary(name)) for registry in several for name in registry.names()]
    else:
        raise unknown_name_error("list of", what, ["strategies", "presets", *registries])
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
