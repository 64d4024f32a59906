"""`feal data`: look at data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Look at data sets.", no_args_is_help=True)


@app.callback()
def _data() -> None:
    """Look at data sets."""


@app.command(
    epilog="Examples: `feal data show synthetic-lesions` · `feal data show synthetic-polyps size=96 --out sheets`"
)
def show(
    dataset: Annotated[str, typer.Argument(help="A data set (`feal list datasets`) or a prepared folder.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Settings of a synthetic set: size=64, sites=3, ..."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the contact sheets.")] = Path("contact-sheets"),
) -> None:
    """Write a contact sheet for each site: what its images look like, class by class."""
    from feal.cli.sheets import show_dataset

    show_dataset(dataset, overrides or [], out)
