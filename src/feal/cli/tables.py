"""Tables of a run's figures."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from feal.federation.statistics import SHOWN

if TYPE_CHECKING:
    from feal.federation.messages import LabelsReply

VALIDATION = "Judged by a validation fold of {share:.0%} of the training part; the test part rests."


def round_table(record: Mapping[str, Any], *, task: str, rounds: int) -> Table:
    """One round: labels, the metrics and the evidence, by site and over all."""
    metrics = _shown(task, record)
    table = Table(title=f"Round {record['round']} of {rounds}", title_justify="left", title_style="bold", box=None)
    table.add_column("site")
    headings = [_heading(metric) for metric in metrics]
    for heading in ("labels", *headings, "aleatoric", "epistemic", "zero evidence"):
        table.add_column(heading, justify="right")
    by_site = record["diagnostics"].get("sites", {})
    figures = record["metrics"]
    for site in figures[metrics[0]]["sites"]:
        numbers = [number(figures[metric]["sites"].get(site)) for metric in metrics]
        table.add_row(site, str(record["labels"].get(site, 0)), *numbers, *_evidence(by_site.get(site, {})))
    table.add_row(
        "total, mean",
        str(sum(record["labels"].values())),
        *(number(figures[metric]["mean"]) for metric in metrics),
        *_evidence(record["diagnostics"]),
        style="bold",
    )
    table.add_row("pooled", "", *(number(figures[metric]["pooled"]) for metric in metrics), end_section=True)
    return table


def curve_table(rounds: Sequence[Mapping[str, Any]], *, task: str) -> Table:
    """The run so far: labels and the metrics' means and pooled figures, by round."""
    metrics = _shown(task, *rounds)
    table = Table(box=None, header_style="bold")
    columns = [heading for metric in metrics for heading in (f"{_heading(metric)} (mean)", "(pooled)")]
    for heading in ("round", "labels", *columns):
        table.add_column(heading, justify="right")
    for record in rounds:
        labels = str(sum(record["labels"].values()))
        figures = [record["metrics"].get(metric, {}) for metric in metrics]
        numbers = [number(figure.get(over)) for figure in figures for over in ("mean", "pooled")]
        table.add_row(str(record["round"]), labels, *numbers)
    return table


def _shown(task: str, *records: Mapping[str, Any]) -> list[str]:
    """The task's figures on the screen that any of the records has: a run of long ago may lack some."""
    return [metric for metric in SHOWN[task] if any(metric in record["metrics"] for record in records)]


def _heading(metric: str) -> str:
    return {"hd95": "HD95", "roc_auc": "ROC-AUC"}.get(metric, metric.replace("_", " "))


def labels_table(sites: Mapping[str, LabelsReply], *, round: int, waiting: bool) -> Table:
    """How labelling stands at each site, and where below the run's folder answers are awaited."""
    from feal.annotation.folder import round_folder

    table = Table(title=f"Labels for round {round}", title_justify="left", title_style="bold", box=None)
    table.add_column("site")
    for heading in ("asked", "answered", "awaited", "refused"):
        table.add_column(heading, justify="right")
    if waiting:
        table.add_column("request", overflow="fold")
    for site, reply in sites.items():
        cells = [str(reply.asked), str(reply.asked - reply.pending), str(reply.pending), str(reply.refused)]
        place = str(round_folder(Path("sites") / site, round)) if reply.pending else "-"
        table.add_row(site, *cells, *([place] if waiting else []))
    return table


def say(console: Console, text: str, *, style: str | None = None) -> None:
    """Print a text as it stands: paths are neither coloured nor broken."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def command(*words: object) -> str:
    """A command of ours to copy.

    >>> command("resume", "my runs/first")
    "feal resume 'my runs/first'"
    """
    return shlex.join(["feal", *map(str, words)])


def number(value: float | None) -> str:
    """Three decimals, or a dash where there is no figure."""
    return "-" if value is None else f"{value:.3f}"


def _evidence(figures: Mapping[str, Any]) -> tuple[str, str, str]:
    zero = figures.get("zero_evidence")
    share = "-" if zero is None else f"{100 * zero:.0f} %"
    return number(figures.get("aleatoric")), number(figures.get("epistemic")), share
