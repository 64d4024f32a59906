"""`feal list presets --paper`: the paper's settings, and the figures it reports with them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table

from feal.config import ABOUT, load, preset_names, read_preset
from feal.config.paper import Published, published
from feal.settings import Settings


def show_paper() -> None:
    """Print every preset that the paper has figures for."""
    console = Console()
    for name in preset_names():
        rows = published(name)
        if rows:
            console.print(f"\n[bold]{name}[/bold]  {read_preset(name).get(ABOUT, '')}")
            console.print(f"[dim]{_settings(load(name))}[/dim]")
            for figure in dict.fromkeys(row.figure for row in rows):
                console.print(_table(figure, [row for row in rows if row.figure == figure]))
    console.print(
        "\nPer cent, means of three seeds (± standard deviation), as printed in Chen, Ma, Cui, Xia: "
        "Think Twice Before Selection, CVPR 2024."
    )


def _settings(settings: Settings) -> str:
    selection, training = settings.selection, settings.training
    return " · ".join(
        (
            f"model {settings.model}",
            f"budget {settings.budget}",
            f"communication_rounds {settings.communication_rounds}",
            f"lambda {settings.evidence.lambda_:g}",
            f"n {selection.n}, tau {selection.tau:g}",
            f"lr {training.lr:g}",
            f"weight_decay {training.weight_decay:g}",
            f"batch_size {training.batch_size}",
        )
    )


def _table(figure: str, rows: Sequence[Published]) -> Table:
    columns = [f"round {number}" for number in sorted({row.round for row in rows if row.round and row.round > 1})]
    table = Table(figure.replace("_", " "), "model", *(columns or [""]), box=None, header_style="bold")
    for (strategy, model), group in groupby(rows, key=lambda row: (row.strategy, row.query_model)):
        name = "full, once" if strategy == "full" else strategy
        table.add_row(name, model or "", *map(_cell, group))
    return table


def _cell(row: Published) -> str:
    return f"{row.mean:.2f}" + (f" ± {row.sd:.2f}" if row.sd is not None else "")
