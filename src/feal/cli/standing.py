"""`feal show`: where a run stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from feal.analysis import read_discrimination
from feal.cli.tables import VALIDATION, command, curve_table, round_table
from feal.errors import FealError
from feal.experiment.folder import RunFolder, settings_of
from feal.experiment.summary import summarize
from feal.federation.journal import Journal, State
from feal.files import is_locked
from feal.selection import short_name
from feal.settings import Settings


def show_run(path: Path) -> None:
    """Print a run's position, its figures so far, and what to do next."""
    console = Console()
    folder = RunFolder(path)
    settings = settings_of(folder)
    journal = Journal(path)
    if not journal.begun():
        console.print(f"It has not begun yet. Go on with: {command('resume', path)}", markup=False, soft_wrap=True)
        return
    state = journal.load()
    summary = summarize(settings, task=state.task, status=state.stage, events=journal.events(state))
    console.print(
        headline(path, settings, state),
        style="bold",
        markup=False,
        soft_wrap=True,
        highlight=False,
    )
    if settings.validation is not None:
        console.print(VALIDATION.format(share=settings.validation), highlight=False)
    if summary["rounds"]:
        rounds = summary["rounds"] if state.task != "classification" else _with_roc_auc(summary["rounds"], path)
        console.print(round_table(rounds[-1], task=state.task, rounds=settings.rounds))
        console.print()
        console.print(curve_table(rounds, task=state.task))
    if is_locked(path):
        console.print("A process is working on it now.")
    elif state.stage == "finished":
        more = command("resume", path, f"rounds={settings.rounds + 2}")
        console.print(f"Extend it with: {more}", markup=False, soft_wrap=True)
    else:
        if state.stage == "waiting":
            console.print(f"See what is awaited: {command('labels', path)}", markup=False, soft_wrap=True)
        console.print(f"Go on with: {command('resume', path)}", markup=False, soft_wrap=True)


def _with_roc_auc(rounds: Sequence[Mapping[str, Any]], path: Path) -> list[Mapping[str, Any]]:
    """The rounds' records with ROC-AUC among the figures, where what the sites kept and their data are at hand."""
    try:
        told = {entry.round: entry for entry in read_discrimination(path, draw=False)}
    except (FealError, OSError):  # most runs of several machines have no such figure: that is no mistake
        return list(rounds)
    figures = {
        number: {"roc_auc": {"sites": entry.sites, "mean": entry.mean, "pooled": entry.pooled}}
        for number, entry in told.items()
    }
    return [{**record, "metrics": {**record["metrics"], **figures.get(record["round"], {})}} for record in rounds]


def headline(path: Path, settings: Settings, state: State) -> str:
    """What a run is and how far it has come, in a line."""
    where = {
        "train": f"in round {state.round} of {settings.rounds}, after {state.step} of "
        f"{settings.communication_rounds} communication rounds",
        "close": f"at the end of round {state.round} of {settings.rounds}",
        "waiting": f"waiting for labels after round {state.round} of {settings.rounds}",
        "finished": f"finished after {state.round} rounds",
    }[state.stage]
    return f"{path}: {short_name(settings.strategy)} on {settings.dataset}, seed {settings.seed}, {where}"
