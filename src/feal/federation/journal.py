"""What the coordinator has committed: where it stands, the global weights, and the log of figures.

One atomic write of `state.json` is the commit; everything it refers to is written before, and whatever it
does not refer to is left over from a kill and swept away.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from feal.files import damaged, read_json, read_tensors, unwritable, write_json, write_tensors

if TYPE_CHECKING:
    import torch

Weights: TypeAlias = "dict[str, torch.Tensor]"
Stage = Literal["close", "train", "waiting", "finished"]


@dataclass(frozen=True, kw_only=True)
class Closing:
    """What the end of a round asked of the sites, besides that round's weights."""

    round: int
    class_counts: Sequence[int] | None
    ask: bool


@dataclass(frozen=True, kw_only=True)
class State:
    """The coordinator's position and what it needs to go on from there."""

    configuration: dict[str, Any]
    task: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the sites' images are: classes, channels, height, width, dtype, fitting."""
    strategy_sha256: str | None = None
    """Of the file of a strategy of one's own, as it was when the run began or went on last."""
    stage: Stage = "close"
    """What is next: close `round`, train `step` of `round`, or gather the labels that `round` asked for."""
    round: int = 0
    step: int = 0
    polls: int = 0
    weights: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each weights file that is still needed, by name."""
    current: str = ""
    """The weights file that the next message carries."""
    class_counts: Mapping[str, Sequence[int] | None] = field(default_factory=dict)
    labels: Mapping[str, int] = field(default_factory=dict)
    missed: Mapping[str, Sequence[Closing]] = field(default_factory=dict)
    """Ends of rounds that a site was absent at; it gets them first when it returns."""
    round_counts: Sequence[int] | None = None
    """Class counts over all sites when the round began: the same for every message of it."""
    trained: Mapping[str, int] = field(default_factory=dict)
    """Labels that each site has had in the round's training."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many messages each site gave no usable reply to since the last round's record."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Time spent in the round's training so far, by phase."""
    log_bytes: int = 0
    round_bytes: int = 0
    """Length of the log before the last round's figures, which an extension of the run writes anew."""


_KINDS = {
    **dict.fromkeys(("configuration", "facts", "labels", "weights", "trained", "seconds"), dict),
    **dict.fromkeys(("round", "step", "log_bytes", "round_bytes"), int),
}
"""What fields must be that everybody who reads a state relies on."""


class Journal:
    """The coordinator's durable memory in a run directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = folder / "metrics.jsonl"
        self._state = folder / "state.json"

    def begin(self, state: State, initial: Weights) -> State:
        """Commit the beginning of a run."""
        return self.commit(state, weights=("initial", initial))

    def begun(self) -> bool:
        """Whether anything was committed yet."""
        return self._state.exists()

    def load(self) -> State:
        """The committed state."""
        content = read_json(self._state)
        try:
            missed = {
                site: tuple(Closing(**entry) for entry in entries) for site, entries in content["missed"].items()
            }
            state = State(**{**content, "missed": missed})
        except (TypeError, KeyError, AttributeError) as error:
            raise damaged(self._state, f"unexpected content: {error}") from error
        if state.stage not in get_args(Stage):
            raise damaged(self._state, f"there is no stage {state.stage!r}")
        for name, kind in _KINDS.items():
            if not isinstance(getattr(state, name), kind):
                raise damaged(self._state, f"{name} is {getattr(state, name)!r}")
        return state

    def recover(self) -> State:
        """The committed state, after removing what a kill left beyond it."""
        state = self.load()
        self._sweep(state)
        return state

    def commit(
        self,
        state: State,
        *,
        weights: tuple[str, Weights] | None = None,
        events: Sequence[Mapping[str, Any]] = (),
    ) -> State:
        """Make a step of the coordinator last: its weights and events first, then the state that counts them."""
        if weights is not None:
            name, tensors = weights
            sha256 = write_tensors(self._weights(name), tensors)
            state = replace(state, weights={**state.weights, name: sha256}, current=name)
        state = replace(state, weights=_needed(state), log_bytes=self._append(events, state.log_bytes))
        write_json(self._state, asdict(state))
        self._sweep(state)
        return state

    def weights(self, state: State, name: str) -> Weights:
        """Global weights that the state refers to."""
        return read_tensors(self._weights(name), sha256=state.weights[name])

    def events(self, state: State) -> list[dict[str, Any]]:
        """All committed events, in order."""
        self._check_log(state)
        if not state.log_bytes:
            return []
        with self._log.open("rb") as file:
            lines = file.read(state.log_bytes).splitlines()
        try:
            events = [json.loads(line) for line in lines]
        except ValueError as error:
            raise damaged(self._log, str(error)) from error
        if not all(isinstance(event, dict) and "event" in event for event in events):
            raise damaged(self._log, "a line is no event")
        return events

    def _check_log(self, state: State) -> None:
        size = self._log.stat().st_size if self._log.is_file() else 0
        if size < state.log_bytes:
            raise damaged(self._log, "it is shorter than what was written")

    def _weights(self, name: str) -> Path:
        return self.folder / "weights" / f"{name}.safetensors"

    def _append(self, events: Sequence[Mapping[str, Any]], start: int) -> int:
        text = "".join(json.dumps(event, allow_nan=False) + "\n" for event in events).encode()
        if not text:
            return start
        try:
            with self._log.open("r+b" if self._log.exists() else "w+b") as file:
                file.truncate(start)
                file.seek(start)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise unwritable(self._log, error) from error
        return start + len(text)

    def _sweep(self, state: State) -> None:
        self._check_log(state)
        if self._log.exists():
            os.truncate(self._log, state.log_bytes)
        for path in (self.folder / "weights").glob("*"):
            if path.stem not in state.weights:
                path.unlink(missing_ok=True)


def _needed(state: State) -> dict[str, str]:
    """The current weights, the initial ones, and those of every finished round."""
    return {name: sha256 for name, sha256 in state.weights.items() if name == state.current or "step" not in name}
