"""`feal export`: write the model of a run to a folder that can be shared."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from feal.cli.app import app
from feal.cli.console import command_line, print_plain
from feal.cli.predict import FinishedRound, describe_model


@app.command(
    epilog="Examples: `feal export runs/demo-feal-0` · "
    "`feal export runs/demo-feal-0 --format both --round 3 --out exports/third`"
)
def export(
    run: Annotated[Path, typer.Argument(help="A run directory; the run may be in progress.")],
    out: Annotated[Path | None, typer.Option(help="New folder; one in exports/ by default.")] = None,
    format_: Annotated[
        Literal["onnx", "torchscript", "both", "none"],
        typer.Option("--format", help="Graph to add to the weights."),
    ] = "torchscript",
    round_: FinishedRound = None,
) -> None:
    """Export the global model: safetensors, model.json, a model card, and a graph that runs without feal."""
    from feal.inference import export_model, load_model
    from feal.rundir.layout import free_path

    out = out or free_path(Path("exports"), run.resolve().name)
    model = load_model(run, round=round_)
    print_plain(describe_model(model), style="bold")
    for path in export_model(model, out, format=format_):
        print_plain(f"  {path}  ({_format_size(path)})")
    print_plain(f"Use it with: {command_line('predict', out, '--images', 'FOLDER')}")


def _format_size(path: Path) -> str:
    size = path.stat().st_size
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
