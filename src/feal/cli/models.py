"""Commands that take a model home: predict, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

app = typer.Typer()


@app.command(
    epilog="Examples: `feal predict runs/demo-feal-0 --images my-pictures` · "
    "`feal predict exports/demo-feal-0 --images my-pictures --out predictions/first`"
)
def predict(
    run: Annotated[Path, typer.Argument(help="A run directory, also of a run under way, or an exported folder.")],
    images: Annotated[Path, typer.Option(help="Folder of pictures: PNG, JPEG, TIFF, BMP, also in its folders.")],
    out: Annotated[Path | None, typer.Option(help="New folder; one under predictions/ by default.")] = None,
    round_: Annotated[int | None, typer.Option("--round", help="The newest finished round by default.")] = None,
    values: Annotated[
        bool, typer.Option("--values", help="Segmentation: keep exact uncertainties of pixels as .npy files.")
    ] = False,
) -> None:
    """Predict pictures: class or mask, expected probability, aleatoric and epistemic uncertainty.

    Writes `predictions.csv`; for segmentation also masks (a pixel's value is its class) and uncertainty maps, dark
    where the model is sure: aleatoric u / ln C and epistemic exp((h + lnGamma(C)) / (C - 1)), both from 0 to 1.
    """
    from feal.cli.taking_home import predict_pictures

    predict_pictures(run, images=images, out=out, round=round_, values=values)


@app.command(
    epilog="Examples: `feal export runs/demo-feal-0` · "
    "`feal export runs/demo-feal-0 --format both --round 3 --out exports/third`"
)
def export(
    run: Annotated[Path, typer.Argument(help="A run directory, also of a run under way.")],
    out: Annotated[Path | None, typer.Option(help="New folder; one under exports/ by default.")] = None,
    format_: Annotated[
        Literal["onnx", "torchscript", "both", "none"],
        typer.Option("--format", help="Graph to add to the weights; onnx needs `pip install 'feal[onnx]'`."),
    ] = "torchscript",
    round_: Annotated[int | None, typer.Option("--round", help="The newest finished round by default.")] = None,
) -> None:
    """Export the global model: safetensors, model.json, a model card, and a graph to run without feal."""
    from feal.cli.taking_home import export_model

    export_model(run, out=out, format=format_, round=round_)
