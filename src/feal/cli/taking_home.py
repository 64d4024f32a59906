"""`feal predict` and `feal export`: what a person sees of them."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from feal.cli.bars import Bar
from feal.cli.tables import command, number, say
from feal.experiment.folder import free_folder
from feal.inference import Audience, Format, Predicted, TrainedModel, export, open_trained, predict_folder


def predict_pictures(
    model_folder: Path, *, images: Path, out: Path | None, round: int | None, values: bool
) -> None:
    """Predict a folder of pictures and print what came out."""
    out = out or free_folder(Path("predictions"), model_folder.resolve().name)
    model = open_trained(model_folder, round=round)
    console = Console()
    say(console, f"{_described(model)}\n", style="bold")
    with _Bar(console) as bar:
        predicted = predict_folder(model, images, out, values=values, audience=bar)
    console.print(_table(predicted, model))
    left_out = f", {predicted.skipped} left out" if predicted.skipped else ""
    say(console, f"\n{predicted.images} pictures predicted{left_out}: {predicted.folder / 'predictions.csv'}")
    if model.facts.task == "segmentation":
        say(console, f"  masks:             {predicted.folder / 'masks'}")
        say(console, f"  uncertainty maps:  {predicted.folder / 'maps'}")
    say(console, f"  what is what:      {predicted.folder / 'README.md'}")


def export_model(model_folder: Path, *, out: Path | None, format: Format, round: int | None) -> None:
    """Export a model and print where its files lie."""
    out = out or free_folder(Path("exports"), model_folder.resolve().name)
    model = open_trained(model_folder, round=round)
    console = Console()
    say(console, _described(model), style="bold")
    for path in export(model, out, format=format):
        say(console, f"  {path}  ({_size(path)})")
    say(console, f"Use it with: {command('predict', out, '--images', 'FOLDER')}")


class _Bar(Bar, Audience):
    """Pictures as they are looked at, and those that could not be."""

    interrupted = "Interrupted: no predictions were written, and the run is as it was."

    def looked(self, done: int, total: int) -> None:
        self.moved("looking at pictures", done, total)

    def left_out(self, sentence: str) -> None:
        say(self.console, f"Left out: {sentence}", style="yellow")


def _described(model: TrainedModel) -> str:
    facts = model.facts
    strategy = facts.origin.settings["strategy"]
    return f"{facts.model} for {facts.task}, round {facts.origin.round} of {strategy} on {facts.origin.dataset}"


def _table(predicted: Predicted, model: TrainedModel) -> Table:
    whole = model.facts.task == "classification"
    table = Table("class", box=None, header_style="bold")
    table.add_column("pictures" if whole else "share of pixels", justify="right")
    for name, amount in predicted.by_class.items():
        table.add_row(name, f"{amount:.0f}" if whole else f"{100 * amount:.1f} %")
    table.add_section()
    table.add_row("mean aleatoric", number(predicted.aleatoric))
    table.add_row("mean epistemic", number(predicted.epistemic))
    return table


def _size(path: Path) -> str:
    size = path.stat().st_size
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
