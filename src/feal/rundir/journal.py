"""Commit the coordinator's progress: its state, the global weights and the log of records.

One atomic write of `state.json` is the commit: everything it refers to is written before, and whatever it does not
refer to is left over from a kill and removed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict, TypeAdapter, ValidationError

from feal.fileio import damage_error, read_json, read_tensors, write_error, write_json, write_tensors
from feal.rundir.layout import RunDirectory
from feal.rundir.records import KINDS, Event, Round
from feal.settings import Settings

if TYPE_CHECKING:
    import torch

Weights: TypeAlias = "dict[str, torch.Tensor]"
Stage = Literal["close", "train", "waiting", "finished"]


@dataclass(frozen=True, kw_only=True)
class RoundEnd:
    """What the end of a round requests from the sites, besides that round's weights."""

    round: int
    class_counts: list[int] | None
    ask: bool


@dataclass(frozen=True, kw_only=True)
class State:
    """The coordinator's position and what it needs to continue from there."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    configuration: dict[str, Any]
    task: str
    facts: dict[str, Any] = field(default_factory=dict)
    """What the sites' images are: classes, channels, height, width, dtype, fitting."""
    strategy_sha256: str | None = None
    """Hash of the file of a user-defined strategy, when the run was last started or resumed."""
    stage: Stage = "close"
    """What is next: close `round`, train `step` of `round`, or collect the labels that `round` asked for."""
    round: int = 0
    step: int = 0
    polls: int = 0
    weights: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each weights file that is still needed, by name."""
    current: str = ""
    """Name of the weights that the next message carries."""
    class_counts: dict[str, list[int] | None] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    missed: dict[str, list[RoundEnd]] = field(default_factory=dict)
    """Round ends that a site was absent from; it receives them first when it returns."""
    round_counts: list[int] | None = None
    """Class counts over all sites when the round started: the same for all of its messages."""
    trained: dict[str, int] = field(default_factory=dict)
    """Labels that each site has trained on in this round."""
    left_out: dict[str, int] = field(default_factory=dict)
    """How many messages each site gave no usable reply to since the last round's record."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time spent in the round's training so far, by phase."""
    log_bytes: int = 0
    round_bytes: int = 0
    """Length of the log before the last round's record, which an extension of the run rewrites."""


_STATE = TypeAdapter(State)


class Journal:
    """Write and read what the coordinator has committed in a run directory."""

    def __init__(self, path: Path) -> None:
        self.run = RunDirectory(path)

    def begin(self, state: State, initial: Weights) -> State:
        """Commit the start of a run."""
        return self.commit(state, weights=("initial", initial))

    def has_state(self) -> bool:
        """Return whether the run has committed anything."""
        return self.run.state.exists()

    def load(self) -> State:
        """Read the committed state.

        Raises:
            FealError: it is missing or damaged.
        """
        content = read_json(self.run.state)
        try:
            return _STATE.validate_python(content)
        except ValidationError as error:
            raise damage_error(self.run.state, f"unexpected content: {_first_error(error)}") from error

    def recover(self) -> State:
        """Read the committed state and remove what a kill left beyond it."""
        state = self.load()
        self._remove_uncommitted(state)
        return state

    def commit(
        self, state: State, *, weights: tuple[str, Weights] | None = None, events: Sequence[Event] = ()
    ) -> State:
        """Make a step of the coordinator durable: weights and events first, then the state that refers to them."""
        if weights is not None:
            name, tensors = weights
            sha256 = write_tensors(self.run.weights_file(name), tensors)
            state = replace(state, weights={**state.weights, name: sha256}, current=name)
        state = replace(state, weights=_needed_weights(state), log_bytes=self._append(events, state.log_bytes))
        write_json(self.run.state, asdict(state))
        self._remove_uncommitted(state)
        return state

    def weights(self, state: State, name: str) -> Weights:
        """Read global weights that the state refers to."""
        return read_tensors(self.run.weights_file(name), sha256=state.weights[name])

    def events(self, state: State) -> tuple[Event, ...]:
        """Read all committed events in order.

        Raises:
            FealError: the log is damaged.
        """
        events, problems = read_log(
            self.run.log, length=state.log_bytes, classes=len(state.facts.get("classes", ()))
        )
        if problems:
            raise damage_error(self.run.log, problems[0].rstrip("."))
        return events

    def rounds(self, state: State) -> tuple[Round, ...]:
        """Read the record of every finished round; see `events`."""
        return tuple(event for event in self.events(state) if isinstance(event, Round))

    def _append(self, events: Sequence[Event], start: int) -> int:
        lines = (json.dumps(event.model_dump(mode="json"), allow_nan=False) + "\n" for event in events)
        text = "".join(lines).encode()
        if not text:
            return start
        try:
            with self.run.log.open("r+b" if self.run.log.exists() else "w+b") as file:
                file.truncate(start)
                file.seek(start)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise write_error(self.run.log, error) from error
        return start + len(text)

    def _remove_uncommitted(self, state: State) -> None:
        size = self.run.log.stat().st_size if self.run.log.is_file() else 0
        if size < state.log_bytes:
            raise damage_error(self.run.log, "it is shorter than what was written")
        if size:
            os.truncate(self.run.log, state.log_bytes)
        for path in self.run.weights.glob("*"):
            if path.stem not in state.weights:
                path.unlink(missing_ok=True)


def read_log(log: Path, *, length: int, classes: int) -> tuple[tuple[Event, ...], tuple[str, ...]]:
    """Read the records in the committed `length` of a log; return them and a sentence for each unusable line.

    Args:
        log: the file.
        length: bytes that the run's state vouches for; what a kill left beyond them is ignored.
        classes: number of classes, and so of values by class; 0 where it is not known.
    """
    if not length:
        return (), ()
    try:
        with log.open("rb") as file:
            # A damaged line that grew pushes the last one beyond the length: that one is read to its end.
            content = file.read(length)
            content += b"" if content.endswith(b"\n") else file.readline()
    except OSError as error:
        return (), (f"{log} cannot be read ({error.strerror}): its metrics are missing.",)
    events: list[Event] = []
    problems: list[str] = []
    rounds: set[int] = set()
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            event = _parse(line)
            if isinstance(event, Round):
                _check_round(event, earlier=rounds, classes=classes)
                rounds.add(event.round)
        except ValueError as error:
            problems.append(f"{log}, line {number}: {error}, so it is left out.")
            continue
        if event is not None:
            events.append(event)
    if len(content) < length:
        # A damaged line that shrank makes the log shorter, too.
        are = "may be" if problems and content.endswith(b"\n") else "are"
        problems.append(f"{log} is shorter than what was written: its last metrics {are} missing.")
    return tuple(events), tuple(problems)


def _parse(line: bytes) -> Event | None:
    """Read one line; return None for a kind of event that this version does not know."""
    try:
        content = json.loads(line)
        kind = content["event"]
        form = KINDS.get(kind) if isinstance(kind, str) else None
    except (ValueError, RecursionError, LookupError, TypeError):
        raise ValueError("no record can be read there") from None
    if form is None:
        return None
    try:
        return form.model_validate(content)
    except ValidationError as error:
        raise ValueError(_first_error(error)) from error


def _check_round(record: Round, *, earlier: set[int], classes: int) -> None:
    if record.round in earlier:
        raise ValueError(f"round {record.round} occurs a second time")
    recall = record.diagnostics.recall
    if recall and classes and len(recall) != classes:
        raise ValueError(f"diagnostics.recall has {len(recall)} values for {classes} classes")


def _first_error(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    return f"{'.'.join(map(str, first['loc']))} is not valid ({first['msg']})"


def _needed_weights(state: State) -> dict[str, str]:
    """Return the current weights, the initial ones, and those of every finished round."""
    return {name: sha256 for name, sha256 in state.weights.items() if name == state.current or "step" not in name}


def write_summary(
    run: RunDirectory, settings: Settings, *, task: str, status: str, rounds: Sequence[Round]
) -> None:
    """Write `summary.json`: what the run is, its status, and the record of every finished round."""
    about: Mapping[str, object] = {
        "status": status,
        "seed": settings.seed,
        "strategy": settings.strategy.name,
        "query_model": settings.query_model,
        "loss": settings.loss_name,
        "dataset": settings.dataset.name,
        "model": settings.model.name,
        "task": task,
    }
    records = [record.model_dump(mode="json", exclude={"event", "energy"}) for record in rounds]
    write_json(run.summary, {**about, "rounds": records})
