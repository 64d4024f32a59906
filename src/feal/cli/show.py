"""`feal show`: the state of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from feal.cli.app import app
from feal.cli.console import (
    command_line,
    make_curve_table,
    make_round_table,
    print_forecast,
    print_plain,
    print_validation,
)
from feal.errors import FealError

if TYPE_CHECKING:
    from feal.rundir.records import Round


@app.command("show", epilog="Example: `feal show runs/demo-feal-0`")
def show_run(folder: Annotated[Path, typer.Argument(help="The run directory.")]) -> None:
    """Show how far a run is, its metrics so far, and what to do next."""
    from feal.fileio import is_locked
    from feal.rundir.journal import Journal, read_settings

    settings = read_settings(folder)
    journal = Journal(folder)
    resume = command_line("resume", folder)
    if not journal.has_state():
        print_plain(f"The run has not started yet. Continue with: {resume}")
        return
    state = journal.load()
    rounds = journal.rounds(state)
    print_plain(describe_run(folder), style="bold")
    print_validation(settings.validation)
    if rounds:
        rounds = _add_roc_auc(rounds, folder) if state.task == "classification" else rounds
        Console().print(make_round_table(rounds[-1], task=state.task, rounds=settings.rounds), "")
        Console().print(make_curve_table(rounds, task=state.task))
        print_forecast(rounds)
    if is_locked(folder):
        print_plain("A process is working on it now.")
    elif state.stage == "finished":
        print_plain(f"Extend it with: {resume} rounds={settings.rounds + 2}")
    else:
        if state.stage == "waiting":
            print_plain(f"Show which labels are pending: {command_line('labels', folder)}")
        print_plain(f"Continue with: {resume}")


def describe_run(folder: Path) -> str:
    """Describe a run that has started, and how far it is, in one line."""
    from feal.plugins import short_name
    from feal.rundir.journal import Journal, read_settings

    settings, state = read_settings(folder), Journal(folder).load()
    position = {
        "train": f"in round {state.round} of {settings.rounds}, after {state.step} of "
        f"{settings.communication_rounds} communication rounds",
        "close": f"at the end of round {state.round} of {settings.rounds}",
        "waiting": f"waiting for labels after round {state.round} of {settings.rounds}",
        "finished": f"finished after {state.round} rounds"
        + (f" of {settings.rounds}, ended by stop_below" if state.stopped else ""),
    }[state.stage]
    strategy = short_name(settings.strategy.name)
    return f"{folder}: {strategy} on {settings.dataset.name}, seed {settings.seed}, {position}"


def _add_roc_auc(rounds: tuple[Round, ...], folder: Path) -> tuple[Round, ...]:
    """Add ROC-AUC to the metrics, if the sites' outputs and data are on this machine."""
    from feal.analysis.outputs import read_discrimination
    from feal.rundir.records import MetricValue

    try:
        known = {entry.round: entry for entry in read_discrimination(folder, draw=False)}
    except (FealError, OSError):  # runs on several machines usually have none
        return rounds
    areas = {
        number: {"roc_auc": MetricValue(mean=entry.mean, pooled=entry.pooled, sites=dict(entry.sites))}
        for number, entry in known.items()
    }
    return tuple(
        record.model_copy(update={"metrics": {**record.metrics, **areas.get(record.round, {})}})
        for record in rounds
    )
