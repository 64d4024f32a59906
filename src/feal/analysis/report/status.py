"""The present status of runs, read from their directories without disturbing them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from feal.analysis.runs import find_runs
from feal.errors import FealError
from feal.fileio import lock_holder
from feal.plugins import short_name
from feal.rundir.journal import Journal, State
from feal.rundir.layout import RunDirectory
from feal.rundir.site_store import Store

RunStage = Literal["running", "waiting", "stopped", "unreadable", "not started", "finished"]
"""In the order in which they are listed."""
MAX_LISTED = 12
"""Runs that are listed one by one."""


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """A run: its name below the directory, its stage, and the details in words."""

    name: str
    stage: RunStage
    detail: str
    share: float
    """Of its rounds that are done."""
    key: str
    """Changes whenever there are new metrics."""


@dataclass(frozen=True, kw_only=True)
class DirectoryStatus:
    """All runs below a directory."""

    summary: str
    runs: tuple[RunStatus, ...] = ()

    @property
    def version(self) -> str:
        """Return a key that changes whenever a report over the runs would."""
        keys = json.dumps([run.key for run in self.runs])
        return hashlib.blake2b(keys.encode(), digest_size=8).hexdigest()

    def to_json(self) -> dict[str, object]:
        """Return what the live page shows."""
        listed = [run for run in self.runs if run.stage != "finished"] if len(self.runs) > 1 else self.runs
        lines = [{"name": run.name, "detail": run.detail} for run in listed[:MAX_LISTED]]
        if len(listed) > MAX_LISTED:
            lines.append({"name": "", "detail": f"and {len(listed) - MAX_LISTED} more"})
        done = round(sum(run.share for run in self.runs), 3)
        return {"summary": self.summary, "done": done, "all": len(self.runs), "runs": lines}


def read_run_statuses(place: Path) -> DirectoryStatus:
    """Return the status of the runs at or below a directory, which may be empty or missing."""
    if not place.is_dir():
        return DirectoryStatus(summary=f"{place} is gone: waiting for it; the report below is from before.")
    try:
        paths = find_runs([place])
    except (FealError, OSError):
        return DirectoryStatus(summary=f"There is no run in {place} yet: waiting for one.")
    order = get_args(RunStage)
    runs = sorted(
        (_read_run_status(path, place) for path in paths), key=lambda run: (order.index(run.stage), run.name)
    )
    return DirectoryStatus(summary=_summarize(runs), runs=tuple(runs))


def _read_run_status(path: Path, place: Path) -> RunStatus:
    name = str(path.relative_to(place)) if path != place else path.name
    journal = Journal(path)
    is_running = lock_holder(path) is not None
    try:
        if not journal.has_state():
            detail = "is starting" if is_running else f"has not started: feal resume {path}"
            stage: RunStage = "running" if is_running else "not started"
            return RunStatus(name=name, stage=stage, detail=detail, share=0.0, key=name)
        state = journal.load()
    except FealError as error:
        return RunStatus(name=name, stage="unreadable", detail=str(error), share=0.0, key=f"{name} {error}")
    rounds = max(1, state.round if state.stage == "finished" else int(state.configuration["rounds"]))
    settled = state.stage if state.stage in ("finished", "waiting") else ""
    return RunStatus(
        name=f"{name} ({short_name(state.configuration['strategy']['name'])}, seed {state.configuration['seed']})",
        stage=_find_stage(state, is_running),
        detail=_describe(path, state, rounds, is_running),
        share=_share_done(state, rounds),
        key=f"{name} {state.round_bytes} {settled}",
    )


def _find_stage(state: State, is_running: bool) -> RunStage:
    if state.stage == "finished":
        return "finished"
    if state.stage == "waiting":
        return "waiting"
    return "running" if is_running else "stopped"


def _share_done(state: State, rounds: int) -> float:
    if state.stage == "finished":
        return 1.0
    if state.stage == "train":
        steps = max(1, int(state.configuration["communication_rounds"]))
        return min(1.0, (max(0, state.round - 1) + state.step / steps) / rounds)
    return min(1.0, state.round / rounds)


def _describe(path: Path, state: State, rounds: int, is_running: bool) -> str:
    if state.stage == "finished":
        return f"finished after {rounds} round{'s' * (rounds > 1)}"
    if state.stage == "waiting":
        return f"waiting for labels of round {state.round + 1} of {rounds}{_count_pending(path)}"
    if state.stage == "close":
        where = f"closing round {state.round} of {rounds}" if state.round else "querying the first labels"
    else:
        steps = state.configuration["communication_rounds"]
        where = f"round {state.round} of {rounds}, communication round {state.step + 1} of {steps}"
    return f"{where}{_list_missing(path, state)}" if is_running else f"stopped in {where}: feal resume {path}"


def _list_missing(path: Path, state: State) -> str:
    """Return the sites that have not replied in this communication round, once another has."""
    replied = RunDirectory(path).replied_sites()
    missing = sorted(set(state.labels) - replied) if replied else []
    return f", waiting for {', '.join(missing)}" if missing else ""


def _count_pending(path: Path) -> str:
    counts = []
    for site in RunDirectory(path).site_directories():
        try:
            with closing(Store(site.database, read_only=True)) as opened:
                pending = len(opened.pending())
        except FealError:
            continue
        if pending:
            counts.append(f"{pending} at {site.name}")
    return f": {', '.join(counts)}" if counts else ""


def _summarize(runs: Sequence[RunStatus]) -> str:
    if len(runs) == 1:
        return f"{runs[0].name}: {runs[0].detail}"
    counts = Counter(run.stage for run in runs)
    others = "".join(f", {counts[stage]} {stage}" for stage in get_args(RunStage)[:-1] if counts[stage])
    return f"{counts['finished']} of {len(runs)} runs finished{others}"
