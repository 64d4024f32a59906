"""`feal data show` and `feal data check`: what a prepared data set holds, and whether it is whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from feal.cli.tables import say
from feal.config import parse
from feal.config.overrides import build
from feal.data import DATASETS, PreparedSet, located, open_prepared
from feal.data.checking import class_counts, problems, wrong_with
from feal.data.contact_sheet import contact_sheet
from feal.data.preparation.contract import Finding
from feal.data.preparation.findings import FindingsError
from feal.data.stamps import altered_once


def show_dataset(dataset: str, overrides: Sequence[str], out: Path) -> None:
    """Write a contact sheet for every site and print its samples by split and class."""
    data = open_prepared(_folder(dataset, overrides))
    _refuse(data, [(path, wrong_with(path)) for name in data.sites for path in altered_once(data, name)])
    for name in data.sites:
        contact_sheet(data.site(name), out / f"{name}.png")
    console = Console()
    say(console, f"{data.name}: {data.task}, {', '.join(data.classes)}")
    console.print(counts_table(data))
    for name in data.sites:
        say(console, str(out / f"{name}.png"))


def check_dataset(dataset: str, overrides: Sequence[str]) -> None:
    """Verify a prepared data set and print its counts, or everything that is wrong with it."""
    data = open_prepared(_folder(dataset, overrides))
    _refuse(data, problems(data))
    console = Console()
    console.print(counts_table(data))
    say(console, f"{data.root} is whole: {len(data.sites)} sites, every file as it was prepared.")


def _refuse(data: PreparedSet, wrong: Iterable[tuple[Path, str]]) -> None:
    """Raise a `FindingsError` over files with which something is wrong, if there are any."""
    found = [Finding(file=str(path.relative_to(data.root)), problem=problem) for path, problem in wrong]
    if found:
        first = f"{found[0].file}: {found[0].problem}"
        raise FindingsError(
            f"{data.root} is not as it was prepared, {len(found)} problems (the first: {first}): "
            "copy it again, or remove the folder and prepare it again.",
            found,
        )


def _folder(dataset: str, overrides: Sequence[str]) -> Path:
    """The data set as overrides say: the size of a prepared one, or all that a synthetic one has."""
    options = parse(overrides)
    if dataset in DATASETS.names():
        options = {f"synthetic.{key.removeprefix('synthetic.')}": value for key, value in options.items()}
    return located(build({"dataset": dataset, "model": "any", **options}, source="the command line"))


def counts_table(data: PreparedSet) -> Table:
    """Samples by site, split and class; in segmentation, samples whose mask shows a class."""
    table = Table("site", "split", box=None, header_style="bold")
    unlabelled = any(data.site(name).unlabelled for name in data.sites)
    for heading in ("samples", *data.classes, *(["unlabelled"] if unlabelled else [])):
        table.add_column(heading, justify="right", overflow="fold")
    for name in data.sites:
        site = data.site(name)
        for split, counts in class_counts(site).items():
            cells = [len(site.ids(split)), *(counts if unlabelled else counts[:-1]).tolist()]
            table.add_row(name if split == "train" else "", split, *map(str, cells))
    return table


def findings_table(findings: Sequence[Finding]) -> Table:
    """Files and what is wrong with them."""
    table = Table(box=None, header_style="bold")
    for heading in ("file", "problem"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        table.add_row(Text(finding.file), Text(finding.problem))
    return table
