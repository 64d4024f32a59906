"""Build the report: its content as plain data, then one HTML page; everything is escaped, no network is needed."""

import base64
import gzip
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from feal import __version__
from feal.analysis.arms import group_by_arm, make_arms
from feal.analysis.conclusions import Conclusions, describe_verdict, draw_conclusions
from feal.analysis.plots import PLOTS, Chart, Plot, read_plot_rows, save_plot
from feal.analysis.plots.base import VEGALITE
from feal.analysis.plots.theme import arm_colour
from feal.analysis.report.thumbnails import Gallery, make_gallery
from feal.analysis.runs import Run, RunCollection
from feal.analysis.tables import Grid, make_round_grid, tabulate_rounds
from feal.errors import FealError
from feal.rundir.artifacts import RunOrigin, read_origins
from feal.rundir.layout import RunDirectory
from feal.rundir.site_store import Store
from feal.settings import flatten

SECTIONS = {
    "conclusions": ("Conclusions", "Question and conclusions"),
    "learning": ("Learning", "How the strategies learn"),
    "selection": ("Selection", "What was selected"),
    "uncertainty": ("Uncertainty", "Uncertainty"),
    "shift": ("Domain shift", "Domain shift between sites"),
    "cost": ("Cost", "Cost"),
    "reproduce": ("Reproduce", "How to reproduce the runs"),
}
"""Sections in order, each with a short name for its tab and a title."""
PIXELS_PER_INCH = 130
"""Of pictures, so that their type is as large as that of charts."""
_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True, kw_only=True)
class ShownPlot:
    """A plot as a Vega-Lite specification or as a picture, or the reason why there is none."""

    name: str
    title: str
    reading: str
    chart: str = ""
    """JSON."""
    picture: str = ""
    """A data URI."""
    width: int = 0
    """Of the picture in pixels."""
    note: str = ""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """All that a reader needs to repeat the runs."""

    configuration: str
    """Of the first run, as YAML."""
    varied: Mapping[str, Sequence[str]]
    """Settings in which the runs differ, with their values."""
    versions: Mapping[str, str]
    """Versions of the software by name; all values where runs differ."""
    manifests: tuple[str, ...]
    """SHA-256 of the prepared data's manifest."""
    commands: Mapping[Path, str | None]
    """Command lines by run directory, as far as they are recorded."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """The content of a report; without conclusions where there is nothing to report yet."""

    title: str
    about: str
    notices: tuple[str, ...] = ()
    plots: tuple[tuple[str, ShownPlot], ...] = ()
    """With the names of their sections."""
    conclusions: Conclusions | None = None
    rounds: Grid | None = None
    """The paper's table: arms by round."""
    runs: tuple[tuple[str, Run], ...] = ()
    """With the names of their arms."""
    provenance: Provenance | None = None
    gallery: Gallery | None = None
    made: str = f"Made by feal {__version__}."


def build_report(runs: Sequence[Run], *, pictures: bool = False) -> Report:
    """Return the report over runs of one experiment, on request with thumbnails of the selected images.

    Raises:
        FealError: the runs do not fit together, or the requested images are missing.
    """
    arms = group_by_arm(runs)
    named = tuple((arm.name, run) for arm in arms for run in arm.runs)
    conclusions = draw_conclusions(runs)
    first = runs[0]
    sites = sorted({site for run in runs for site in run.sites})
    return Report(
        title=f"{first.settings.dataset.name}: {_count(len(arms), 'selection strategy', 'selection strategies')}",
        about=f"{_count(len(runs), 'run')} of {first.task} with {first.settings.model.name} at "
        f"{_count(len(sites), 'site')} ({', '.join(sites)})",
        notices=list_notices(runs),
        plots=tuple(
            (section, _show(name, runs, pictures=pictures))
            for section in SECTIONS
            for name in PLOTS.names()
            if PLOTS.get(name).section == section
        ),
        conclusions=conclusions,
        rounds=make_round_grid(tabulate_rounds(make_arms(runs))) if any(run.rounds for run in runs) else None,
        runs=named,
        provenance=_read_provenance(runs, first=named[0][1]),
        gallery=make_gallery(runs, first=[result.arm.name for result in conclusions.results])
        if pictures
        else None,
    )


def list_notices(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return what a reader must know first: what is unfinished, unreadable or evaluated on a validation split."""
    waiting = sum(run.status == "waiting" for run in runs)
    unfinished = sum(run.status == "unfinished" for run in runs)
    progress = [
        f"{_count(count, 'run')} of {len(runs)} {'is' if count == 1 else 'are'} {what}."
        for count, what in ((unfinished, "not finished"), (waiting, "waiting for labels"))
        if count
    ]
    split = runs[0].settings.validation
    evaluation = (
        [f"Evaluated on a validation split ({split:.0%} of the training data); the test split is not used."]
        if split
        else []
    )
    left_out = runs.left_out if isinstance(runs, RunCollection) else ()
    return (*progress, *evaluation, *left_out, *(problem for run in runs for problem in run.problems))


def render_page(report: Report, *, live: str | None = None) -> str:
    """Return the whole page; `live` is the version of a page that follows runs (see `server`)."""
    scripts = [bundle_vega(), _read("report.js"), *([_read("live.js")] if live is not None else [])]
    return _templates().get_template("page.html").render(
        report=report,
        hashes=[base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts],
        style=Markup(_read("report.css")),
        body=Markup(render_body(report)),
        charts=pack_charts(report),
        scripts=[Markup(script) for script in scripts],
        live=live,
    )  # fmt: skip


def render_body(report: Report) -> str:
    """Return the content of the page's `main` element, without the charts' data."""
    return _templates().get_template("body.html").render(report=report)


def pack_charts(report: Report) -> dict[str, dict[str, str]]:
    """Return for each chart its title, a digest that changes with it, and its specification, compressed.

    Rows repeat so much that those of a long sweep shrink to a tenth.
    """
    return {
        plot.name: {
            "digest": hashlib.blake2b(plot.chart.encode(), digest_size=8).hexdigest(),
            "title": plot.title,
            "packed": base64.b64encode(gzip.compress(plot.chart.encode(), mtime=0)).decode(),
        }
        for _, plot in report.plots
        if plot.chart
    }


@cache
def bundle_vega() -> str:
    """Return one script with Vega, Vega-Lite and Vega-Embed, which sets `vegaEmbed`."""
    import vl_convert

    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGALITE)
    return f"(() => {{{bundle}}})();"


def _show(name: str, runs: Sequence[Run], *, pictures: bool) -> ShownPlot:
    plot = PLOTS.get(name)
    about: dict[str, Any] = {"name": name, "title": plot.title, "reading": plot.reading}
    try:
        rows = read_plot_rows(plot, runs, pictures=pictures)
    except FealError as error:
        return ShownPlot(**about, reason=str(error))
    if not rows:
        return ShownPlot(**about, reason=_explain_missing(plot, runs, pictures=pictures))
    drawing = plot.draw(rows)
    if isinstance(drawing, Chart):
        chart = json.dumps(drawing.to_spec(), separators=(",", ":"))
        return ShownPlot(**about, chart=chart, note=drawing.note)
    content = base64.b64encode(save_plot(drawing, "svg")).decode()
    width = round(PIXELS_PER_INCH * drawing.get_figwidth())
    return ShownPlot(**about, picture=f"data:image/svg+xml;base64,{content}", width=width)


def _explain_missing(plot: Plot, runs: Sequence[Run], *, pictures: bool) -> str:
    if plot.shows_patients and not pictures and runs[0].task == "segmentation":
        return "it shows patients' images; make the report with --pictures to include it."
    return f"these runs do not contain what it needs: {plot.needs}."


def _read_provenance(runs: Sequence[Run], *, first: Run) -> Provenance:
    origins = {run.path: read_origins(run.path) for run in runs}
    flat = [flatten(run.settings.dump()) for run in runs]
    values = {key: sorted({str(settings.get(key)) for settings in flat}) for key in flat[0]}
    return Provenance(
        configuration=yaml.safe_dump(first.settings.dump(), sort_keys=False, allow_unicode=True),
        varied={key: found for key, found in values.items() if len(found) > 1},
        versions=_list_versions(entry for entries in origins.values() for entry in entries),
        manifests=tuple(sorted(set().union(*(_list_manifests(*origin) for origin in origins.items())))),
        commands={
            path: next((entry.command for entry in entries if entry.command), None)
            for path, entries in origins.items()
        },
    )


def _list_versions(entries: Iterable[RunOrigin]) -> dict[str, str]:
    rows = [{"feal": it.feal, "python": it.python, "machine": it.machine, **it.packages} for it in entries]
    keys = dict.fromkeys(key for row in rows for key in row)
    found = {key: ", ".join(dict.fromkeys(filter(None, (row.get(key) for row in rows)))) for key in keys}
    return {key: versions for key, versions in found.items() if versions}


def _list_manifests(path: Path, origins: Sequence[RunOrigin]) -> set[str]:
    """Return the digests of the data that a run recorded, or else its first site."""
    recorded = {entry.manifest for entry in origins if entry.manifest}
    for site in RunDirectory(path).site_directories()[:1] if not recorded else ():
        try:
            with closing(Store(site.database, read_only=True)) as store:
                recorded = {digest} if (digest := store.data_digest()) else set()
        except FealError:
            continue
    return recorded


def _count(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {
        "colour": arm_colour,
        "number": lambda value: "-" if math.isnan(value) else f"{value:.3f}",
        "verdict": describe_verdict,
        "last_value": lambda run: run.values()[-1] if run.rounds else math.nan,
        "signed": lambda value: f"{value:+.3f}",
        "whole": lambda value: "-" if math.isnan(value) else f"{value:.0f}",
    }
    environment.globals["sections"] = SECTIONS
    environment.policies["json.dumps_kwargs"] = {}
    return environment


@cache
def _read(name: str) -> str:
    return (_TEMPLATES / name).read_text()
