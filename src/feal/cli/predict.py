"""`feal predict`: apply the model of a run to images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from feal.cli.app import app
from feal.cli.console import ProgressBar, format_number, make_table, print_plain

if TYPE_CHECKING:
    from feal.inference import PredictionSummary, TrainedModel

FinishedRound = Annotated[int | None, typer.Option("--round", help="The last finished round by default.")]


@app.command(
    epilog="Examples: `feal predict runs/demo-feal-0 --images my-images` · "
    "`feal predict exports/demo-feal-0 --images my-images --out predictions/first`"
)
def predict(
    run: Annotated[
        Path, typer.Argument(help="A run directory (the run may be in progress) or an exported model.")
    ],
    images: Annotated[Path, typer.Option(help="Folder of PNG, JPEG, TIFF or BMP images, with its subfolders.")],
    out: Annotated[Path | None, typer.Option(help="New folder; one in predictions/ by default.")] = None,
    round_: FinishedRound = None,
    values: Annotated[
        bool, typer.Option("--values", help="Segmentation: also write exact pixel uncertainties as .npy files.")
    ] = False,
) -> None:
    """Predict images: class or mask, expected probability, aleatoric and epistemic uncertainty.

    Writes `predictions.csv`; for segmentation also masks (a pixel's value is its class) and uncertainty maps, dark
    where the model is certain: aleatoric u / ln C and epistemic exp((h + lnGamma(C)) / (C - 1)), both from 0 to 1.
    """
    from feal.inference import load_model, predict_images
    from feal.rundir.layout import free_path

    out = out or free_path(Path("predictions"), run.resolve().name)
    model = load_model(run, round=round_)
    print_plain(f"{describe_model(model)}\n", style="bold")
    with _PredictionProgress() as progress:
        summary = predict_images(model, images, out, values=values, callback=progress)
    Console().print(_summary_table(summary, model))
    skipped = f", {summary.skipped} skipped" if summary.skipped else ""
    print_plain(f"\n{summary.images} images predicted{skipped}: {summary.folder / 'predictions.csv'}")
    if model.info.task == "segmentation":
        print_plain(f"  masks:             {summary.folder / 'masks'}")
        print_plain(f"  uncertainty maps:  {summary.folder / 'maps'}")
    print_plain(f"  explanation:       {summary.folder / 'README.md'}")


class _PredictionProgress(ProgressBar):
    """Shows the progress of a prediction and the images that cannot be read."""

    def __init__(self) -> None:
        super().__init__(Console(), interrupted="Interrupted: no predictions were written; the run is unchanged.")

    def on_image(self, done: int, total: int) -> None:
        self.update("predicting images", done, total)

    def on_skip(self, message: str) -> None:
        self.print(f"Skipped: {message}", style="yellow")


def _summary_table(summary: PredictionSummary, model: TrainedModel) -> Table:
    is_classification = model.info.task == "classification"
    amounts = [
        (name, f"{amount:.0f}" if is_classification else f"{100 * amount:.1f} %")
        for name, amount in summary.by_class.items()
    ]
    means = [
        ("mean aleatoric", format_number(summary.aleatoric)),
        ("mean epistemic", format_number(summary.epistemic)),
    ]
    return make_table(["class", "images" if is_classification else "share of pixels"], [*amounts, *means])


def describe_model(model: TrainedModel) -> str:
    """Describe a model and where it comes from in one line."""
    from feal.plugins import short_name

    info = model.info
    strategy = short_name(info.origin.settings["strategy"]["name"])
    source = f"round {info.origin.round} of {strategy} on {info.origin.dataset}"
    return f"{short_name(info.model.name)} for {info.task}, {source}"
