"""`feal data show`: contact sheets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from feal.config import parse
from feal.config.overrides import build
from feal.data import locate, open_prepared
from feal.data.contact_sheet import contact_sheet


def show_dataset(dataset: str, overrides: Sequence[str], out: Path) -> None:
    """Write a contact sheet for every site and print how many samples each has."""
    options = {f"synthetic.{key.removeprefix('synthetic.')}": value for key, value in parse(overrides).items()}
    settings = build({"dataset": dataset, "model": "any", **options}, source="the command line")
    data = open_prepared(locate(dataset, data=settings.data, synthetic=settings.synthetic.model_dump()))
    table = Table("site", box=None, header_style="bold")
    for heading in ("train", "test", "contact sheet"):
        table.add_column(heading, justify="left" if heading == "contact sheet" else "right", overflow="fold")
    for name in data.sites:
        site = data.site(name)
        path = out / f"{name}.png"
        contact_sheet(site, path)
        table.add_row(name, str(len(site.ids("train"))), str(len(site.ids("test"))), str(path))
    Console().print(f"{data.name}: {data.task}, {', '.join(data.classes)}", markup=False, soft_wrap=True)
    Console().print(table)
