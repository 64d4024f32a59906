"""`feal labels`: who answered what and when, what is awaited, and all of it for export."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.table import Table

from feal.annotation.folder import FOLDER, REFUSED, round_folder
from feal.cli.export import export_labels
from feal.cli.tables import say
from feal.data import open_prepared
from feal.deployment.places import SITE, site_place
from feal.errors import FealError, unknown
from feal.experiment.folder import RunFolder, settings_of
from feal.federation.history import Standing
from feal.federation.store import Store
from feal.files import read_json
from feal.settings import Settings

_STORE = "site.sqlite"
KEPT = "runs"
"""Where the state folder of a deployed site has its runs."""


def show_labels(path: Path, *, site: str | None, export: Path | None) -> None:
    """Print how labels stand in a run, or in all that a deployed site keeps, and where they are awaited."""
    runs = _runs(path)
    console = Console()
    if export is not None and len(runs) > 1:
        raise FealError(
            f"{path} keeps {len(runs)} runs: name one of them to export its labels, such as {runs[-1]}."
        )
    for run in runs:
        if run != path:
            say(console, f"{run}", style="bold")
        _show(console, run, site=site, export=export)
    if not runs:
        say(console, f"{path} has taken part in no run yet.")


def _runs(path: Path) -> list[Path]:
    """The run in a folder; or those that a deployed site keeps in its state folder, the latest last."""
    if (path / SITE).is_file():
        path = site_place(path).state
    if RunFolder(path).config.exists() or not (path / KEPT).is_dir():
        return [path]
    found = (RunFolder(run).config for run in (path / KEPT).iterdir())
    configs = sorted((config.stat().st_mtime_ns, config) for config in found if config.exists())
    return [config.parent for _, config in configs]


def _show(console: Console, path: Path, *, site: str | None, export: Path | None) -> None:
    folder = RunFolder(path)
    settings = settings_of(folder)
    sites = _sites(folder, site)
    if not sites:
        say(console, f"{path} has asked for no label yet.")
        return
    for name, place in sites.items():
        with closing(Store(place / _STORE, read_only=True)) as store:
            standing = store.standing()
        console.print(_table(name, standing))
        for line in _awaited(place, standing) if settings.annotator == "folder" else ():
            say(console, line)
        console.print()
    if export is not None:
        written = export_labels(sites, export, classes=_classes(path, settings))
        say(console, f"{written} rows are in {export / 'labels.csv'}")


def _sites(folder: RunFolder, wanted: str | None) -> dict[str, Path]:
    found = {path.parent.name: path.parent for path in sorted(folder.sites.glob(f"*/{_STORE}"))}
    if wanted is None:
        return found
    if wanted not in found:
        raise unknown(f"site in {folder.path}", wanted, found)
    return {wanted: found[wanted]}


def _table(site: str, standing: Standing) -> Table:
    table = Table(
        title=site, title_justify="left", title_style="bold", box=None, collapse_padding=True, pad_edge=False
    )
    for heading in ("round", "asked", "labelled", "cannot", "awaited", "corrected", "first answer", "last (UTC)"):
        table.add_column(heading, justify="right")
    for number, counts in standing.rounds.items():
        figures = (number, counts.asked, counts.labelled, counts.declined, counts.pending, counts.corrected)
        table.add_row(*map(str, figures), _time(counts.first), _time(counts.last))
    return table


def _awaited(site: Path, standing: Standing) -> list[str]:
    lines = [
        f"  {counts.pending} of round {number} awaited in {round_folder(site, number)}"
        for number, counts in standing.rounds.items()
        if counts.pending
    ]
    refused = site / FOLDER / REFUSED
    return [*lines, *([f"  refused answers are listed in {refused}"] if refused.is_file() else [])]


def _time(stamp: str | None) -> str:
    return "-" if stamp is None else stamp[:16].replace("T", " ")


def _classes(path: Path, settings: Settings) -> tuple[str, ...]:
    """Names of the classes, as the run or else its prepared folder tells them; none if neither does."""
    state = path / "state.json"
    content = read_json(state) if state.exists() else {}
    facts = content.get("facts") if isinstance(content, Mapping) else None
    if isinstance(facts, Mapping) and facts.get("classes"):
        return tuple(map(str, facts["classes"]))
    try:
        return open_prepared(settings.dataset).classes
    except FealError:
        return ()
