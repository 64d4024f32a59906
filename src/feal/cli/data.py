"""`feal data`: prepare, check and show data sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from feal.cli.app import app
from feal.cli.console import ProgressBar, command_line, make_table, print_plain
from feal.errors import FealError

if TYPE_CHECKING:
    from feal.data import PreparedSet
    from feal.data.prepare.base import DatasetSource, Finding

data_app = typer.Typer(help="Prepare, check and show data sets.", no_args_is_help=True)
app.add_typer(data_app, name="data")

IMAGE_FOLDER = "folder"
"""The data set name for a user's own images."""
_SHOWN_LEAKS, _SHOWN_SAMPLES = 5, 4

Dataset = Annotated[str, typer.Argument(help="A data set (`feal list datasets`) or a prepared folder.")]


@data_app.command(
    epilog="Examples: `feal data prepare fed-isic --from ~/isic` · "
    "`feal data prepare folder --from images --task classification --name mine` · "
    "`feal data prepare my_set.py:MySet --from images --to prepared/mine --skip-bad`"
)
def prepare(
    name: Annotated[
        str, typer.Argument(help="A data set (`feal list datasets`), `folder`, or your own FILE.py:Class.")
    ],
    source: Annotated[Path, typer.Option("--from", help="Folder with the download or your images.")],
    to: Annotated[
        Path | None, typer.Option(help="Prepared folder; by default in $FEAL_DATA or the cache.")
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=8, max=4096, help="Height and width; by default as in the paper, or 224.")
    ] = None,
    split: Annotated[
        Literal["shipped", "8:2"] | None,
        typer.Option(
            help="Keep the split of the download (8:2 where it has none), or split every site 8:2; by default as "
            "in the paper, or shipped."
        ),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out the files that cannot be used; they are listed.")
    ] = False,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads for decoding; by default one per core.")
    ] = None,
    task: Annotated[
        Literal["classification", "segmentation"] | None, typer.Option(help="`folder`: the task.")
    ] = None,
    called: Annotated[str | None, typer.Option("--name", help="`folder`: the name of the data set.")] = None,
    table: Annotated[
        Path | None, typer.Option("--csv", help="`folder`: a table of site, image, label or mask, patient, split.")
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(help="`folder`: names of the classes in the order of their numbers, comma-separated."),
    ] = None,
) -> None:
    """Check a download or your own images and write them as a prepared data set.

    `folder` takes site/class/*.png, or site/image/ with site/mask/, or a CSV file. Repeat the command to continue
    after an interruption; a data set that is prepared already is left as it is.
    """
    from feal.data import open_prepared
    from feal.data.locate import data_roots, name_set_folder
    from feal.data.prepare.image_folder import open_image_folder
    from feal.data.prepare.pipeline import prepare_dataset
    from feal.plugins import short_name

    if name == IMAGE_FOLDER:
        if task is None:
            raise FealError("`folder` needs a task: add --task classification or --task segmentation.")
        names = [one.strip() for one in classes.split(",")] if classes else []
        called = called or source.resolve().name
        dataset: DatasetSource = open_image_folder(source, task=task, name=called, table=table, classes=names)
    elif task or called or table or classes:
        raise FealError(
            f"{short_name(name)} takes no --task, --name, --csv or --classes: they are for `{IMAGE_FOLDER}`."
        )
    else:
        dataset = _find_source(name)
    to = to or data_roots()[0] / name_set_folder(dataset, size=size, split=split)
    interrupted = "Interrupted; the images decoded so far are kept: repeat the command to continue."
    with _print_findings(), ProgressBar(Console(), interrupted=interrupted) as bar:
        result = prepare_dataset(
            dataset,
            source,
            to,
            size=size,
            split=split,
            threads=threads,
            skip_bad=skip_bad,
            progress=bar.update,
        )
    data = open_prepared(to)
    shape = f"{data.width} x {data.height} pixels, {data.channels} channels"
    print_plain(f"{data.name}: {data.task}, {shape}\n", style="bold")
    Console().print(_counts_table(data))
    _print_source(result.source)
    done = "is prepared" if result.fresh else "was already prepared from the same files: nothing was done"
    print_plain(f"\n{to} {done}")
    print_plain(f"  show it:  {command_line('data', 'show', to)}")


@data_app.command(
    epilog="Examples: `feal data check prepared/mine` · `feal data check fed-isic` · "
    "`feal data check fed-isic size=128`"
)
def check(
    dataset: Dataset,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Which variant: size=128, ...")
    ] = None,
) -> None:
    """Verify a prepared data set: every file's checksum, the tables, every label or mask."""
    from feal.data import open_prepared
    from feal.data.verify import find_problems

    data = open_prepared(_locate(dataset, overrides or []))
    with _print_findings():
        _raise_if_altered(data, find_problems(data))
    Console().print(_counts_table(data))
    print_plain(f"{data.root} is intact: {len(data.sites)} sites, every file as it was prepared.")


@data_app.command(
    "show",
    epilog="Examples: `feal data show synthetic-lesions` · `feal data show prepared/mine` · "
    "`feal data show fed-isic size=128 --out sheets`",
)
def show_dataset(
    dataset: Dataset,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...", help="Which variant: size=128; for a synthetic set also sites=3, ..."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the contact sheets.")] = Path("contact-sheets"),
) -> None:
    """Write a contact sheet for each site, and count its samples by split and class."""
    from feal.data import open_prepared
    from feal.data.images import write_contact_sheet
    from feal.data.verify import find_altered

    data = open_prepared(_locate(dataset, overrides or []))
    _raise_if_altered(data, [one for name in data.sites for one in find_altered(data, name, cached=True)])
    sheets = {name: out / f"{name}.png" for name in data.sites}
    for name, sheet in sheets.items():
        write_contact_sheet(data.site(name), sheet)
    print_plain(f"{data.name}: {data.task}, {', '.join(data.classes)}")
    Console().print(_counts_table(data))
    for sheet in sheets.values():
        print_plain(str(sheet))


def _find_source(name: str) -> DatasetSource:
    from feal.data.prepare.base import DatasetSource, create_source
    from feal.data.prepare.datasets import DATASET_SOURCES
    from feal.plugins import find_class

    found = find_class(
        name, registry=DATASET_SOURCES, base=DatasetSource, derive="feal.data.prepare.DatasetSource"
    )
    return create_source(found)


def _locate(dataset: str, overrides: Sequence[str]) -> Path:
    """Find the folder of a data set; the overrides are its parameters, or `data=FOLDER`."""
    from feal.data import locate

    options: dict[str, Any] = {}
    if overrides:
        from feal.config import parse

        options = parse(overrides)
    data = options.pop("data", None)
    params = {key.removeprefix("dataset."): value for key, value in options.items()}
    return locate(dataset, params=params, data=data)


def _raise_if_altered(data: PreparedSet, problems: Iterable[tuple[Path, str]]) -> None:
    """Raise a `FindingsError` if there are problems with files."""
    from feal.data.prepare.base import Finding, FindingsError

    found = [Finding(file=str(path.relative_to(data.root)), problem=problem) for path, problem in problems]
    if found:
        first = f"{found[0].file}: {found[0].problem}"
        raise FindingsError(
            f"{data.root} is not as it was prepared, {len(found)} problems (the first: {first}): "
            "copy it again, or remove the folder and prepare it again.",
            found,
        )


@contextmanager
def _print_findings() -> Iterator[None]:
    """Print the findings of a `FindingsError` as a table, before its message ends the command."""
    from feal.data.prepare.base import FindingsError

    try:
        yield
    except FindingsError as error:
        Console().print(_findings_table(error.findings))
        raise


def _print_source(source: Mapping[str, Any]) -> None:
    """Print what a user should know about the source: missing sites, duplicates, left-out files, leaks."""
    from feal.data.prepare.base import Finding

    for site in source["absent"]:
        print_plain(f"Warning: the site {site} is not in this folder.", style="yellow")
    for sentence in source["remarks"]:
        print_plain(f"Note: {sentence}", style="yellow")
    for site, count in source["repeats"].items():
        text = f"Note: {count} images of site {site} are exact copies of others of that site."
        print_plain(text, style="yellow")
    if source["left_out"]:
        text = f"\nLeft out, {len(source['left_out'])} findings (also in the manifest):"
        print_plain(text, style="yellow")
        Console().print(_findings_table([Finding(**finding) for finding in source["left_out"]]))
    if source["leaks_found"]:
        count = source["leaks_found"]
        text = f"\nLeaks, {count} groups of near-duplicate images across train and test or sites:"
        print_plain(text, style="yellow")
        for leak in source["leaks"][:_SHOWN_LEAKS]:
            members = zip(leak["sites"], leak["splits"], leak["samples"], strict=True)
            shown = " = ".join(" ".join(member) for member in islice(members, _SHOWN_SAMPLES))
            more = f" and {leak['pictures'] - _SHOWN_SAMPLES} more" if leak["pictures"] > _SHOWN_SAMPLES else ""
            print_plain(f"  {leak['kind']}: {shown}{more}")
        if count > _SHOWN_LEAKS:
            print_plain(f"  ... source.leaks in the manifest lists {len(source['leaks'])} of them.")


def _counts_table(data: PreparedSet) -> Table:
    """Make the table of samples by site, split and class; a mask counts for every class in it."""
    from feal.data import open_labels

    has_unlabelled = any(data.site(name).unlabelled for name in data.sites)
    rows = []
    for name in data.sites:
        site = data.site(name)
        for split, counts in open_labels(site).count_classes().items():
            numbers = (counts if has_unlabelled else counts[:-1]).tolist()
            rows.append([name if split == "train" else "", split, len(site.ids(split)), *numbers])
    headings = ["site", "split", "samples", *data.classes, *(["unlabelled"] if has_unlabelled else [])]
    return make_table(headings, rows, words=2)


def _findings_table(findings: Sequence[Finding]) -> Table:
    rows = [(finding.file, finding.problem) for finding in findings]
    return make_table(["file", "problem"], rows, words=2)
