"""`feal paper`: every table and figure of the paper, the commands that make it, and its numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Literal

from rich.console import Console

from feal.analysis.grids import Grid, markdown
from feal.analysis.tables import table_text
from feal.cli.grids import show_grid, wide_console
from feal.cli.paper_grids import number_grids
from feal.cli.tables import say
from feal.config import ABOUT, load, preset_names, read_preset
from feal.config.paper import Published, published
from feal.config.paper_map import CITATION, Entry, entries, entry_named
from feal.config.paper_page import paper_page
from feal.settings import Settings

Format = Literal["table", "markdown", "csv"]

MARKS = {
    "table": "¹ best and ² second best, as the paper marks them.",
    "markdown": "Bold and underlined: what the paper marks as the best and the second best.",
}
UNSTATED = (
    "The paper states lambda, n and tau for fed-isic and fed-polyp alone, and no batch_size: "
    "those of the nearest preset and of the authors' code stand in."
)
TERMS = "epi: epistemic, ale: aleatoric uncertainty; g, l: of the global, the local model."


def show_entries(*, format: Format) -> None:
    """Print all tables and figures with their commands; Markdown is docs/paper-map.md."""
    if format == "markdown":
        print(paper_page(), end="")
    elif format == "csv":
        print(table_text([_overview(entry) for entry in entries()]), end="")
    else:
        console = wide_console()
        for entry in entries():
            _show_shortly(console, entry)
        say(console, f"Of {CITATION}, and its supplement. `feal paper NAME` shows the numbers.")


def show_entry(name: str, *, format: Format) -> None:
    """Print what the paper prints of one table or figure, its commands, and how ours differs."""
    entry = entry_named(name)
    rows = entry.published()
    if format == "csv":
        print(table_text([asdict(row) for row in rows]), end="")
        return
    console = wide_console()
    say(console, f"{entry.title}, section {entry.section}", style="bold" if format == "table" else None)
    say(console, f"{entry.shows}.\n")
    show_grids(console, number_grids(rows), format=format)
    for sentence in _about_numbers(entry, rows, format=format):
        paragraph(console, sentence)
    if entry.commands():
        fence = "```" if format == "markdown" else ""
        say(console, "\n".join(("\nCommands\n", *([fence] if fence else []), *entry.commands(), fence)))
    if entry.differs:
        say(console, "How ours differs from the authors'\n")
        for difference in entry.differences():
            paragraph(console, f"- {difference}", indent="  ")


def show_paper() -> None:
    """Print every preset that the paper has figures for, with its settings: `feal list presets --paper`."""
    console = wide_console()
    for name in preset_names():
        rows = published(name)
        if rows:
            console.print(f"\n[bold]{name}[/bold]  {read_preset(name).get(ABOUT, '')}")
            console.print(f"[dim]{_settings(load(name))}[/dim]")
            show_grids(console, number_grids(rows), format="table")
    say(console, f"Per cent, means of three seeds (± standard deviation), as printed in {CITATION}.")
    paragraph(console, UNSTATED)


def show_grids(console: Console, grids: Iterable[Grid], *, format: Format) -> None:
    """Print tables one below the other."""
    for grid in grids:
        if format == "markdown":
            say(console, markdown(grid))
        else:
            show_grid(console, grid)
        console.print()


def _show_shortly(console: Console, entry: Entry) -> None:
    numbers = len(entry.published())
    shipped = f"{numbers} published numbers" if numbers else "no published numbers"
    say(console, f"{entry.name}  ({entry.section}; {shipped})", style="bold")
    say(console, f"  {entry.shows}")
    first, *others = entry.presets or (None,)
    if first is not None:
        lines = [*entry.making(first), *entry.looking(first)]
        if others:
            lines.append(f"... and the same of {', '.join(others)}")
        say(console, "\n".join(f"    {line}" for line in (*lines, *entry.comparing())), style="dim")
    console.print()


def _overview(entry: Entry) -> dict[str, object]:
    return {
        "name": entry.name,
        "section": entry.section,
        "shows": entry.shows,
        "numbers": len(entry.published()),
        "commands": "\n".join(entry.commands()),
    }


def _about_numbers(entry: Entry, rows: Sequence[Published], *, format: Format) -> list[str]:
    sentences = []
    if rows:
        unit = "" if rows[0].site or rows[0].figure == "seconds" else "Per cent, three seeds. "
        where = entry_named(entry.source).title
        sentences.append(f"{unit}Source: {CITATION}, {where}.")
    if any(row.mark for row in rows):
        sentences.append(MARKS[format])
    if any("selection.terms" in row.changes for row in rows):
        sentences.append(TERMS)
    if entry.unprinted:
        sentences.append(f"Not printed in the paper: {entry.unprinted}.")
    if entry.says:
        sentences.append(f"The text: {entry.says}")
    return sentences


def paragraph(console: Console, text: str, *, indent: str = "") -> None:
    """Print prose, broken between words."""
    width = min(console.width, 115)
    say(console, textwrap.fill(text, width=width, subsequent_indent=indent, break_on_hyphens=False))


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
