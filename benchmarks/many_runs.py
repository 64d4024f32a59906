"""Many runs in a few processes: finished ones are left alone, interrupted ones go on, broken ones are named."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from feal.errors import FealError
from feal.experiment import resume, start
from feal.experiment.folder import RunFolder, settings_of
from feal.files import read_json
from feal.settings import Settings


@dataclass(frozen=True)
class Job:
    """A run to be had, and where."""

    folder: Path
    settings: Settings

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do.

        Raises:
            FealError: there is a run with other settings.
        """
        folder = RunFolder(self.folder)
        if not folder.config.exists():
            return False
        there = settings_of(folder)
        if self._settled(there).identity() != there.identity():
            raise FealError(f"{self.folder} holds a run with other settings: choose another --out, or remove it.")
        if not folder.summary.exists():
            return False
        summary = read_json(folder.summary)
        return summary["status"] == "finished" and len(summary["rounds"]) >= self.settings.rounds

    def carry_out(self) -> str | None:
        """Start the run or go on with it; what went wrong, if anything did."""
        try:
            folder = RunFolder(self.folder)
            if folder.config.exists():
                resume(self.folder, settings=self._settled(settings_of(folder)))
            else:
                start(self.settings, out=self.folder)
        except FealError as error:
            return str(error)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None

    def _settled(self, there: Settings) -> Settings:
        """These settings, with what a run that is there has found out when it began: task and weights."""
        evidence, digest = self.settings.evidence, self.settings.weights_digest
        if evidence.squared is None:
            evidence = evidence.model_copy(update={"squared": there.evidence.squared})
        found = {"evidence": evidence, "weights_digest": digest or there.weights_digest}
        return self.settings.model_copy(update=found)


def carry_out(jobs: Sequence[Job], *, processes: int) -> dict[Path, str]:
    """Carry out what is not finished yet; what went wrong, by folder.

    Raises:
        FealError: a folder holds a run with other settings.
    """
    ready = [job.finished for job in jobs]
    todo = [job for job, finished in zip(jobs, ready, strict=True) if not finished]
    problems: dict[Path, str] = {}
    with _progress() as progress:
        task = progress.add_task("", total=len(jobs), completed=sum(ready), name="")
        pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_begin)
        try:
            waiting = {pool.submit(job.carry_out): job for job in todo}
            for done in as_completed(waiting):
                folder = waiting[done].folder
                try:
                    problem = done.result()
                except BrokenProcessPool:
                    problem = "its process was ended from outside: repeat the command to go on."
                if problem is not None:
                    problems[folder] = problem
                broken = f", {len(problems)} broken" if problems else ""
                progress.update(task, advance=1, name=f"{folder.parent.name}/{folder.name}{broken}")
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return problems


def _progress() -> Progress:
    shown = (TextColumn("runs"), MofNCompleteColumn(), BarColumn(), TimeElapsedColumn())
    return Progress(*shown, TextColumn("{task.fields[name]}"))


def _begin() -> None:
    """A worker ends at once with Ctrl-C, and with its parent: runs are resumable at any moment."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)
