"""`feal labels`: the labels of a run, pending ones, and their export."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from feal.cli.app import app
from feal.cli.console import make_table, print_plain
from feal.errors import FealError, unknown_name_error

if TYPE_CHECKING:
    from feal.rundir.site_store import RoundLabels

SITE_RUNS = "runs"
"""The directory of all runs in the state directory of a deployed site."""
LABEL_COLUMNS = [
    *("site", "sample", "round", "rank", "score", "model", "asked", "label", "class", "mask"),
    *("answered", "by", "corrected", "superseded"),
]
DECLINED = "cannot be labelled"


@app.command(epilog="Examples: `feal labels runs/demo-feal-0` · `feal labels runs/demo-feal-0 --export labels`")
def labels(
    folder: Annotated[Path, typer.Argument(help="The run directory, or the directory of a deployed site.")],
    site: Annotated[str | None, typer.Option(help="Only this site.")] = None,
    export: Annotated[Path | None, typer.Option(help="New folder for all labels with their history.")] = None,
) -> None:
    """Show the labels of each round and which are pending, or export all of them."""
    runs = _list_runs(folder)
    if export is not None and len(runs) > 1:
        raise FealError(f"{folder} holds {len(runs)} runs: name the one to export, such as {runs[-1]}.")
    for run in runs:
        if run != folder:
            print_plain(f"{run}", style="bold")
        _show_labels(run, site=site, export=export)
    if not runs:
        print_plain(f"{folder} has not taken part in a run yet.")


def _list_runs(folder: Path) -> list[Path]:
    """List the run directory itself or, for a deployed site, all its runs, the latest last."""
    from feal.federation.transport.deploy.config import SITE_FILE, read_site_config
    from feal.rundir.layout import RunDirectory

    if (folder / SITE_FILE).is_file():
        folder = read_site_config(folder).state
    if RunDirectory(folder).config.exists() or not (folder / SITE_RUNS).is_dir():
        return [folder]
    found = (RunDirectory(run).config for run in (folder / SITE_RUNS).iterdir())
    configs = sorted((config.stat().st_mtime_ns, config) for config in found if config.exists())
    return [config.parent for _, config in configs]


def _show_labels(folder: Path, *, site: str | None, export: Path | None) -> None:
    from feal.rundir.journal import read_settings
    from feal.rundir.layout import RunDirectory, SiteDirectory
    from feal.rundir.site_store import Store

    settings = read_settings(folder)
    sites = {found.name: found.path for found in RunDirectory(folder).site_directories()}
    if site is not None:
        if site not in sites:
            raise unknown_name_error(f"site in {folder}", site, sites)
        sites = {site: sites[site]}
    if not sites:
        print_plain(f"{folder} has not requested any label yet.")
        return
    for name, path in sites.items():
        with closing(Store(SiteDirectory(path).database, read_only=True)) as store:
            rounds = store.labels_by_round()
        Console().print(_rounds_table(name, rounds))
        for line in _describe_pending(path, rounds) if settings.annotator.name == "folder" else ():
            print_plain(line)
        print_plain("")
    if export is not None:
        written = export_labels(sites, export, classes=_class_names(folder, settings.dataset.name))
        print_plain(f"{written} rows written to {export / 'labels.csv'}")


def _rounds_table(site: str, rounds: Mapping[int, RoundLabels]) -> Table:
    headings = ("round", "asked", "labels", "declined", "pending", "corrected", "first answer", "last (UTC)")
    rows = [
        [
            *(number, counts.asked, counts.labelled, counts.declined, counts.pending, counts.corrected),
            *map(_format_time, (counts.first, counts.last)),
        ]
        for number, counts in rounds.items()
    ]
    table = make_table(headings, rows, words=0, title=site)
    table.collapse_padding, table.pad_edge = True, False  # all columns fit into 80 characters
    return table


def _describe_pending(site: Path, rounds: Mapping[int, RoundLabels]) -> list[str]:
    from feal.annotation.folder import ANNOTATION_FOLDER, REJECTED, round_folder

    lines = [
        f"  {counts.pending} pending in round {number}: {round_folder(site, number)}"
        for number, counts in rounds.items()
        if counts.pending
    ]
    rejected = site / ANNOTATION_FOLDER / REJECTED
    return [*lines, *([f"  rejected answers: {rejected}"] if rejected.is_file() else [])]


def _format_time(stamp: str | None) -> str:
    return "-" if stamp is None else stamp[:16].replace("T", " ")


def _class_names(folder: Path, dataset: str) -> tuple[str, ...]:
    """Return the names of the classes from the run or its prepared data; none if neither is there."""
    from feal.data import open_prepared
    from feal.rundir.journal import Journal

    journal = Journal(folder)
    if journal.has_state():
        return tuple(map(str, journal.load().facts.get("classes", ())))
    try:
        return open_prepared(dataset).classes
    except FealError:
        return ()


def export_labels(sites: Mapping[str, Path], out: Path, *, classes: Sequence[str]) -> int:
    """Write `labels.csv` and masks into a new folder; return the number of rows.

    Raises:
        FealError: the folder is not empty, or cannot be written.
    """
    from feal.fileio import wrap_os_error, write_text

    try:
        is_taken = out.exists() and (not out.is_dir() or any(out.iterdir()))
    except OSError as error:
        raise wrap_os_error(error) from error
    if is_taken:
        raise FealError(f"{out} exists and is not empty: name a new folder for the export.")
    text = io.StringIO()
    writer = csv.DictWriter(text, LABEL_COLUMNS, lineterminator="\n")
    writer.writeheader()
    rows = [row for site, folder in sites.items() for row in _export_site(site, folder, out, classes)]
    writer.writerows(rows)
    write_text(out / "labels.csv", text.getvalue())
    return len(rows)


def _export_site(site: str, folder: Path, out: Path, classes: Sequence[str]) -> Iterator[dict[str, object]]:
    """Write the masks of a site and yield the rows of its labels."""
    import numpy as np

    from feal.annotation.request import name_image
    from feal.data.images import encode_png, mask_to_pil
    from feal.fileio import write_bytes
    from feal.rundir.layout import SiteDirectory
    from feal.rundir.site_store import Store

    names: dict[int | str, str] = dict(enumerate(classes))
    superseded: dict[str, int] = {}
    with closing(Store(SiteDirectory(folder).database, read_only=True)) as store:
        for record in store.records():
            mask = ""
            superseded[record.sample] = superseded.get(record.sample, 0) + record.superseded
            if isinstance(record.label, np.ndarray):
                stem = Path(f"{record.round:03}-{name_image(record.rank, record.sample)}").stem
                version = f"-superseded-{superseded[record.sample]}" if record.superseded else ""
                mask = f"masks/{site}/{stem}{version}.png"
                count = max(len(classes), int(record.label.max(initial=0)) + 1)
                write_bytes(out / mask, encode_png(mask_to_pil(record.label, classes=count)))
            label = record.label if isinstance(record.label, int) else ""
            is_declined = record.label is None and record.answered is not None
            yield {
                **vars(record),
                "site": site,
                "label": label,
                "class": DECLINED if is_declined else names.get(label, ""),
                "mask": mask,
                "superseded": "yes" if record.superseded else "",
            }
