"""Start a run, or go on with one, in a directory that says all there is to know about it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feal.data import located, open_prepared
from feal.errors import FealError
from feal.experiment.folder import RunFolder, new_folder, settings_of
from feal.experiment.origin import note_origin
from feal.experiment.summary import summarize
from feal.federation.coordinator import Coordinator
from feal.federation.engines import ENGINES
from feal.federation.engines.flower_deployment import RUN
from feal.federation.journal import Journal, State
from feal.federation.progress import Silence, Watcher
from feal.files import locked, write_json
from feal.models import MODELS, find_weights, threads
from feal.models.weights import NONE
from feal.settings import Settings
from feal.tensors import tensors_digest


@dataclass(frozen=True)
class Result:
    """A run as it stands: its directory and its `summary.json`."""

    folder: Path
    summary: Mapping[str, Any]

    @property
    def status(self) -> str:
        """`finished`, or `waiting` for labels."""
        return str(self.summary["status"])

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """The record of every finished round."""
        return list(self.summary["rounds"])


def start(settings: Settings, *, out: Path, wait: bool = False, watcher: Watcher | None = None) -> Result:
    """Begin a run in an empty directory and carry it to its end, or until it waits for labels.

    `wait` looks for labels again and again instead of ending as `waiting`.

    Raises:
        FealError: the directory is taken, the data do not fit, a site failed; what was done stays resumable.
    """
    data = _located(settings)
    settings = _with_digest(_for_task(settings, _task(settings, data) == "segmentation"))
    folder, made = new_folder(out)
    with locked(folder.path):
        try:
            folder.write_config(settings)
            return _carry_on(folder, settings, data, watcher or Silence(), wait=wait)
        except FealError:
            # A run that could not even begin leaves nothing behind to be in the way of the next try.
            if not Journal(folder.path).begun():
                _clear(folder, made)
            raise


def resume(
    path: Path, *, settings: Settings | None = None, wait: bool = False, watcher: Watcher | None = None
) -> Result:
    """Go on with a run where it was committed last.

    Args:
        path: the run directory.
        settings: the run's own with other operational ones, such as more rounds or another engine.
        wait: look for labels again and again instead of ending as `waiting`.

    Raises:
        FealError: no run there, its configuration was changed, a file is damaged, another process is at work.
    """
    folder = RunFolder(path)
    folder.read_config()
    with locked(path):
        current = settings_of(folder)
        revised = current if settings is None else _for_task(settings, current.evidence.squared is True)
        _check_revision(current, revised, path)
        with _config_kept_if_nothing_came_of_it(folder, current, revised):
            return _carry_on(folder, revised, _located(revised), watcher or Silence(), wait=wait)


@contextmanager
def _config_kept_if_nothing_came_of_it(folder: RunFolder, before: Settings, after: Settings) -> Iterator[None]:
    """Note the revised settings; a mistake among them must not be in the way of the next try."""
    journal = Journal(folder.path)
    state = journal.load() if journal.begun() else None
    if after != before:
        folder.write_config(after)
    try:
        yield
    except FealError:
        if after != before and state == (journal.load() if journal.begun() else None):
            folder.write_config(before)
        raise


def _carry_on(folder: RunFolder, settings: Settings, data: Path, watcher: Watcher, *, wait: bool) -> Result:
    engine = ENGINES.get(settings.engine)(data=data, folder=folder.sites, settings=settings)
    journal = Journal(folder.path)
    # The coordinator shares the machine's cores with sites that work at the same time.
    with threads(settings.threads), closing(engine):
        coordinator = Coordinator(settings, engine=engine, journal=journal, watcher=watcher)
        state = journal.recover() if journal.begun() else coordinator.begin()
        note_origin(folder, manifest=open_prepared(data).digest if engine.data_here else None)
        _write_summary(folder, settings, journal, state, "running")
        for committed in coordinator.proceed(state):
            state = committed
            if state.stage != "train" or state.step == 0:
                _write_summary(folder, settings, journal, state, "running")
            if state.stage == "waiting":
                if not wait:
                    break
                time.sleep(settings.annotation.poll_seconds)
                if not folder.config.exists():
                    raise FealError(f"{folder.path} is gone: if it was moved, `feal resume` it where it is now.")
    return Result(folder.path, _write_summary(folder, settings, journal, state, state.stage))


def _write_summary(
    folder: RunFolder, settings: Settings, journal: Journal, state: State, status: str
) -> dict[str, Any]:
    summary = summarize(settings, task=state.task, status=status, events=journal.events(state))
    write_json(folder.summary, summary)
    return summary


def _located(settings: Settings) -> Path:
    """The prepared data of all sites; where each site holds its own, what the run calls them."""
    if not ENGINES.get(settings.engine).data_here:
        return Path(settings.dataset)
    return located(settings)


def _task(settings: Settings, data: Path) -> str:
    """What is learned, as the data say, or else the network."""
    here = ENGINES.get(settings.engine).data_here
    return open_prepared(data).task if here else MODELS.get(settings.model).task


def _for_task(settings: Settings, squared: bool) -> Settings:
    """Settle what depends on the task, so that the written configuration is complete."""
    if settings.evidence.squared is not None:
        return settings
    evidence = settings.evidence.model_copy(update={"squared": squared})
    return settings.model_copy(update={"evidence": evidence})


def _with_digest(settings: Settings) -> Settings:
    """Note which weights the run starts from: every site must have the same, and on every day."""
    if settings.weights == NONE or settings.weights_digest is not None:
        return settings
    digest = tensors_digest(find_weights(settings.model, settings.weights))
    return settings.model_copy(update={"weights_digest": digest})


def _check_revision(current: Settings, new: Settings, path: Path) -> None:
    if new.identity() != current.identity():
        raise FealError(f"{path} was begun with other settings: start a new run for these.")
    if new.rounds < current.rounds:
        raise FealError(
            f"{path} is planned for {current.rounds} rounds already: "
            f"a run can be extended, not cut to {new.rounds}."
        )


def _clear(folder: RunFolder, made: bool) -> None:
    for part in (folder.sites, folder.path / "weights"):
        shutil.rmtree(part, ignore_errors=True)
    for file in (folder.config, folder.path / RUN):
        file.unlink(missing_ok=True)
    if made:
        shutil.rmtree(folder.path, ignore_errors=True)
