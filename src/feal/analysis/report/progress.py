"""How runs stand at this moment, read off their folders without disturbing whoever works in them."""

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
from feal.experiment.folder import RunFolder
from feal.federation.journal import Journal, State
from feal.federation.store import Store
from feal.files import holder
from feal.selection import short_name

Standing = Literal["at work", "waiting", "stopped", "unreadable", "not begun", "finished"]
"""In the order in which they are told."""
MOST = 12
"""Runs that are told one by one."""


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """A run: its name below the folder, how it stands, and that in words."""

    name: str
    standing: Standing
    doing: str
    share: float
    """Of its rounds that are done."""
    key: str
    """Changes whenever there are new figures."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """All runs below a folder."""

    where: str
    runs: tuple[RunProgress, ...] = ()

    @property
    def version(self) -> str:
        """Changes whenever a report over the runs would."""
        keys = json.dumps([run.key for run in self.runs])
        return hashlib.blake2b(keys.encode(), digest_size=8).hexdigest()

    def content(self) -> dict[str, object]:
        """What the live page asks for, but for the version of what it shows."""
        told = [run for run in self.runs if run.standing != "finished"] if len(self.runs) > 1 else self.runs
        lines = [{"name": run.name, "doing": run.doing} for run in told[:MOST]]
        if len(told) > MOST:
            lines.append({"name": "", "doing": f"and {len(told) - MOST} more"})
        done = round(sum(run.share for run in self.runs), 3)
        return {"where": self.where, "done": done, "all": len(self.runs), "runs": lines}


def progress(place: Path) -> Progress:
    """How the runs at or below a folder stand; one that is empty or gone is said, never an error."""
    if not place.is_dir():
        return Progress(where=f"{place} is gone: it is waited for; what is below is from before.")
    try:
        paths = find_runs([place])
    except (FealError, OSError):
        return Progress(where=f"There is no run in {place} yet: one is waited for.")
    order = get_args(Standing)
    runs = sorted((_run(path, place) for path in paths), key=lambda run: (order.index(run.standing), run.name))
    return Progress(where=_where(runs), runs=tuple(runs))


def _run(path: Path, place: Path) -> RunProgress:
    name = str(path.relative_to(place)) if path != place else path.name
    journal = Journal(path)
    at_work = holder(path) is not None
    try:
        if not journal.begun():
            doing = "is beginning" if at_work else f"has not begun: feal resume {path}"
            standing: Standing = "at work" if at_work else "not begun"
            return RunProgress(name=name, standing=standing, doing=doing, share=0.0, key=name)
        state = journal.load()
    except FealError as error:
        return RunProgress(name=name, standing="unreadable", doing=str(error), share=0.0, key=f"{name} {error}")
    rounds = max(1, state.round if state.stage == "finished" else int(state.configuration["rounds"]))
    settled = state.stage if state.stage in ("finished", "waiting") else ""
    return RunProgress(
        name=f"{name} ({short_name(state.configuration['strategy'])}, seed {state.configuration['seed']})",
        standing=_standing(state, at_work),
        doing=_doing(path, state, rounds, at_work),
        share=_share(state, rounds),
        key=f"{name} {state.round_bytes} {settled}",
    )


def _standing(state: State, at_work: bool) -> Standing:
    if state.stage == "finished":
        return "finished"
    if state.stage == "waiting":
        return "waiting"
    return "at work" if at_work else "stopped"


def _share(state: State, rounds: int) -> float:
    if state.stage == "finished":
        return 1.0
    if state.stage == "train":
        steps = max(1, int(state.configuration["communication_rounds"]))
        return min(1.0, (max(0, state.round - 1) + state.step / steps) / rounds)
    return min(1.0, state.round / rounds)


def _doing(path: Path, state: State, rounds: int, at_work: bool) -> str:
    if state.stage == "finished":
        return f"finished after {rounds} round{'s' * (rounds > 1)}"
    if state.stage == "waiting":
        return f"waits for labels of round {state.round + 1} of {rounds}{_awaited(path)}"
    if state.stage == "close":
        where = f"closing round {state.round} of {rounds}" if state.round else "asking for the first labels"
    else:
        steps = state.configuration["communication_rounds"]
        where = f"round {state.round} of {rounds}, communication round {state.step + 1} of {steps}"
    return f"{where}{_unanswered(path, state)}" if at_work else f"stopped in {where}: feal resume {path}"


def _unanswered(path: Path, state: State) -> str:
    """Sites whose part of the communication round has not come, once another's has."""
    came = {file.stem for file in (path / "spool").glob("*.weights")}
    missing = sorted(set(state.labels) - came) if came else []
    return f", waits for {', '.join(missing)}" if missing else ""


def _awaited(path: Path) -> str:
    counts = []
    for store in sorted(RunFolder(path).sites.glob("*/site.sqlite")):
        try:
            with closing(Store(store, read_only=True)) as opened:
                pending = len(opened.pending())
        except FealError:
            continue
        if pending:
            counts.append(f"{pending} at {store.parent.name}")
    return f": {', '.join(counts)}" if counts else ""


def _where(runs: Sequence[RunProgress]) -> str:
    if len(runs) == 1:
        return f"{runs[0].name}: {runs[0].doing}"
    counts = Counter(run.standing for run in runs)
    others = "".join(
        f", {counts[standing]} {standing}" for standing in get_args(Standing)[:-1] if counts[standing]
    )
    return f"{counts['finished']} of {len(runs)} runs finished{others}"
