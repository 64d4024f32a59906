"""`feal data`: prepare, check and look at data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from feal.settings import Task

app = typer.Typer(help="Prepare, check and look at data sets.", no_args_is_help=True)


@app.callback()
def _data() -> None:
    """Prepare, check and look at data sets."""


@app.command(
    epilog="Examples: `feal data prepare fed-isic --from ~/isic` · "
    "`feal data prepare folder --from pictures --task classification --name mine` · "
    "`feal data prepare my_set.py:MySet --from pictures --to prepared/mine --skip-bad`"
)
def prepare(
    name: Annotated[
        str, typer.Argument(help="A data set (`feal list datasets`), `folder`, or FILE.py:Class of your own.")
    ],
    source: Annotated[Path, typer.Option("--from", help="Folder that holds the download or your pictures.")],
    to: Annotated[
        Path | None, typer.Option(help="Prepared folder; by default below $FEAL_DATA or the cache.")
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=8, max=4096, help="Height and width; by default as in the paper, or 224.")
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Go on without the files that cannot be used; they are listed.")
    ] = False,
    processes: Annotated[
        int | None, typer.Option(min=1, help="How many to decode with; by default one a processor.")
    ] = None,
    task: Annotated[Task | None, typer.Option(help="`folder`: what is to be learned.")] = None,
    called: Annotated[str | None, typer.Option("--name", help="`folder`: what the set is called.")] = None,
    table: Annotated[
        Path | None, typer.Option("--csv", help="`folder`: site, image, label or mask, patient, split.")
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="`folder`: names of the classes, by commas, in the order of their numbers.")
    ] = None,
) -> None:
    """Check a download, or pictures of your own, and write them as a prepared data set.

    `folder` takes site/class/*.png, or site/image/ with site/mask/, or a CSV. A second call goes on where the
    first ended; one that finds the set prepared does nothing.
    """
    from feal.cli.preparing import Own, prepare_dataset

    names = [one.strip() for one in classes.split(",")] if classes else []
    own = Own(task=task, name=called, table=table, classes=names)
    prepare_dataset(name, source, to, own=own, size=size, skip_bad=skip_bad, processes=processes)


@app.command(
    epilog="Examples: `feal data check prepared/mine` · `feal data check fed-isic` · "
    "`feal data check fed-isic size=128`"
)
def check(
    dataset: Annotated[str, typer.Argument(help="A data set (`feal list datasets`) or a prepared folder.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Which one: size=128, ...")
    ] = None,
) -> None:
    """Verify a prepared data set: every file's checksum, the tables, every label or mask."""
    from feal.cli.preparing import showing_findings
    from feal.cli.sheets import check_dataset

    with showing_findings():
        check_dataset(dataset, overrides or [])


@app.command(
    epilog="Examples: `feal data show synthetic-lesions` · `feal data show prepared/mine` · "
    "`feal data show fed-isic size=128 --out sheets`"
)
def show(
    dataset: Annotated[str, typer.Argument(help="A data set (`feal list datasets`) or a prepared folder.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Which one: size=128; of a synthetic set also sites=3, ..."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the contact sheets.")] = Path("contact-sheets"),
) -> None:
    """Write a contact sheet for each site, and count its samples by split and class."""
    from feal.cli.sheets import show_dataset

    show_dataset(dataset, overrides or [], out)
