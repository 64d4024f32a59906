"""Start or resume a run; its directory holds everything there is to know about it."""

import shutil
import time
from contextlib import closing
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from feal.config import load, revise
from feal.data import locate, open_prepared
from feal.errors import FealError
from feal.federation.callbacks import Callback, NullCallback
from feal.federation.coordinator.loop import Coordinator
from feal.federation.transport import TRANSPORTS, Transport
from feal.fileio import lock_directory
from feal.models import read_weights
from feal.models.pretrained import NONE
from feal.plugins import read_params
from feal.rundir.artifacts import record_origin
from feal.rundir.journal import Journal, State, read_config, read_settings, write_config, write_summary
from feal.rundir.layout import RunDirectory, create_run_directory
from feal.rundir.records import Round
from feal.settings import Component, Settings, flatten
from feal.tensors import hash_tensors, use_threads


@dataclass(frozen=True)
class Result:
    """A run after it was started or resumed.

    >>> result = start(settings, out=Path("runs/first"))       # doctest: +SKIP
    >>> result.rounds[-1].metrics["balanced_accuracy"].mean    # doctest: +SKIP
    """

    folder: Path
    status: str
    """`finished`, or `waiting` for labels."""
    task: str
    rounds: tuple[Round, ...]
    """The record of every finished round."""


def run(preset: str, *, out: str | PathLike[str], wait: bool = False, **overrides: Any) -> Result:
    """Run an experiment to its end, or until it waits for labels.

    Args:
        preset: the name of a preset, or the path of a YAML file.
        out: the run directory, new or empty.
        wait: keep looking for people's labels instead of ending with the status `waiting`.
        overrides: settings that differ from the preset: `seed=1`, `strategy={"name": "feal", "tau": 0.9}` or
            `**{"strategy.tau": 0.9}`.

    Raises:
        FealError: bad settings, data that do not fit, a directory that is taken.
    """
    return start(load(preset, overrides), out=Path(out), wait=wait)


def start(settings: Settings, *, out: Path, wait: bool = False, callback: Callback | None = None) -> Result:
    """Start a run in an empty directory, as `run` does, from complete settings; the callback gets the progress.

    Raises:
        FealError: the directory is not empty, the data do not fit, or a site failed; a run that has started can be
            resumed.
    """
    if settings.weights != NONE and settings.weights_digest is None:
        # Every site must start from the same weights, also when the run is resumed.
        digest = hash_tensors(read_weights(settings.model.name, settings.weights))
        settings = settings.model_copy(update={"weights_digest": digest})
    data = _locate_data(settings.dataset, settings.data, transport=settings.transport.name)
    directory, is_new = create_run_directory(out)
    with lock_directory(out):
        try:
            write_config(directory, settings.dump())
            return _Execution(directory, settings, data, callback or NullCallback()).execute(wait=wait)
        except FealError:
            # A run that failed before it started must not be in the way of the next attempt.
            if not Journal(out).has_state():
                _clear(out, is_new=is_new)
            raise


def resume(
    folder: str | PathLike[str],
    *,
    settings: Settings | None = None,
    wait: bool = False,
    callback: Callback | None = None,
    **changes: Any,
) -> Result:
    """Continue a run from its last commit, with other operational settings such as `rounds=8`.

    Args:
        folder: the run directory.
        settings: the run's settings with the changes in them, instead of `changes`.
        wait: check for labels repeatedly instead of ending as `waiting`.
        callback: receives the progress.
        changes: settings that leave the results as they are, such as more rounds or another transport.

    Raises:
        FealError: there is no run, its configuration was edited, a file is damaged, or another process uses it.
    """
    path = Path(folder)
    directory = RunDirectory(path)
    read_config(directory)
    with lock_directory(path):
        current = read_settings(path)
        revised = settings or (revise(current, flatten(changes)) if changes else current)
        if revised.identity() != current.identity():
            raise FealError(f"{path} was started with other settings: start a new run for these.")
        if revised.rounds < current.rounds:
            raise FealError(
                f"{path} has {current.rounds} rounds: a run can be extended, not shortened to {revised.rounds}."
            )
        journal = Journal(path)
        state = journal.load() if journal.has_state() else None
        if revised != current:
            write_config(directory, revised.dump())
        try:
            data = _locate_data(revised.dataset, revised.data, transport=revised.transport.name)
            execution = _Execution(directory, revised, data, callback or NullCallback())
            return execution.execute(wait=wait)
        except FealError:
            # Changed settings that failed at once must not be in the way of the next attempt.
            if revised != current and state == (journal.load() if journal.has_state() else None):
                write_config(directory, current.dump())
            raise


def read_result(path: Path) -> Result:
    """Return the result of a run so far, without resuming it."""
    journal = Journal(path)
    state = journal.load()
    return Result(path, state.stage, state.task, journal.rounds(state))


@dataclass(frozen=True)
class _Execution:
    """One process's work on a run."""

    directory: RunDirectory
    settings: Settings
    data: Path
    callback: Callback

    def execute(self, *, wait: bool) -> Result:
        """Execute the run to its end, or until it waits for labels."""
        settings, directory = self.settings, self.directory
        transport = self._open_transport()
        journal = Journal(directory.path)
        # The coordinator shares the machine's cores with sites that work at the same time.
        with use_threads(settings.threads), closing(transport):
            coordinator = Coordinator(settings, transport=transport, journal=journal, callback=self.callback)
            state = journal.recover() if journal.has_state() else coordinator.begin()
            record_origin(directory, manifest=open_prepared(self.data).digest if transport.data_here else None)
            self._write_summary(journal, state, "running")
            for committed in coordinator.proceed(state):
                state = committed
                if state.stage != "train" or state.step == 0:
                    self._write_summary(journal, state, "running")
                if state.stage == "waiting":
                    if not wait:
                        break
                    time.sleep(float(settings.annotator.params["poll_seconds"]))
                    if not directory.config.exists():
                        raise FealError(
                            f"{directory.path} is gone: if it was moved, `feal resume` it where it is now."
                        )
        rounds = self._write_summary(journal, state, state.stage)
        return Result(directory.path, state.stage, state.task, rounds)

    def _open_transport(self) -> Transport:
        name = self.settings.transport.name
        transport = TRANSPORTS.get(name)
        params = read_params(transport, self.settings.transport.params, section="transport", name=name)
        return transport(
            params,
            data=self.data,
            folder=self.directory.sites,
            sites=self.settings.sites,
            threads=self.settings.threads,
        )

    def _write_summary(self, journal: Journal, state: State, status: str) -> tuple[Round, ...]:
        rounds = journal.rounds(state)
        write_summary(self.directory, self.settings, task=state.task, status=status, rounds=rounds)
        return rounds


def _locate_data(dataset: Component, data: str | None, *, transport: str) -> Path:
    """Find the prepared data of all sites, or return the name of data that each site holds itself."""
    return locate(dataset, data=data) if TRANSPORTS.get(transport).data_here else Path(dataset.name)


def _clear(path: Path, *, is_new: bool) -> None:
    """Remove what a failed start wrote; the directory was empty before, hidden files excepted."""
    if is_new:
        shutil.rmtree(path, ignore_errors=True)
        return
    for entry in path.glob("[!.]*"):
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
