"""Write and read a run's settings, and commit the coordinator's progress: state, global weights and log.

One atomic write of `state.json` is the commit: everything it refers to is written before, and whatever it does not
refer to is left over from a kill and removed.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

from feal.errors import FealError
from feal.fileio import (
    damage_error,
    read_json,
    read_tensors,
    sync_file,
    wrap_os_error,
    write_error,
    write_json,
    write_tensors,
    write_text,
)
from feal.rundir.layout import RunDirectory
from feal.rundir.records import Event, Round, read_log
from feal.settings import Settings, flatten, is_operational

if TYPE_CHECKING:
    import torch

Weights: TypeAlias = "dict[str, torch.Tensor]"
_FAST = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Ten times as fast as the other, but it crashes on brackets nested some twenty thousand deep."""
_SHORT = 8192
"""Characters of a text that cannot be nested that deep; a configuration has about three thousand."""

Stage = Literal["close", "train", "waiting", "finished"]


@dataclass(frozen=True, kw_only=True)
class RoundEnd:
    """What the end of a round requests from the sites, besides that round's weights."""

    round: int
    class_counts: list[int] | None
    ask: bool


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Why a run ended before its last round: more labels were unlikely to bring `stop_below`."""

    rounds: int
    """The setting `rounds` at that time."""
    bound: float
    """Of the predicted gain, see `GainForecast`."""


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
    cleared: int = 0
    """The last round after which it was decided to go on, where `stop_below` is set."""
    stopped: Stop | None = None

    def is_over(self, settings: Settings) -> bool:
        """Return whether the run is finished under these settings, which may differ from those it ended with.

        More rounds continue a run that stopped early; another `stop_below` does if it is low enough.
        """
        if self.stage != "finished":
            return False
        if self.stopped is None or self.round >= settings.rounds:
            return self.round >= settings.rounds
        limit = settings.stop_below
        return settings.rounds == self.stopped.rounds and limit is not None and self.stopped.bound < limit


_STATE = TypeAdapter(State)


class Journal:
    """Write and read what the coordinator has committed in a run directory."""

    def __init__(self, path: Path) -> None:
        self.run = RunDirectory(path)
        self._last: tuple[str, Weights] = ("", {})
        """The weights that this process wrote last, and their SHA-256."""

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
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise damage_error(
                self.run.state, f"unexpected content: {where} is not valid ({first['msg']})"
            ) from error

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
            self._last = (sha256, tensors)
            state = replace(state, weights={**state.weights, name: sha256}, current=name)
        state = replace(state, weights=_needed_weights(state), log_bytes=self._append(events, state.log_bytes))
        write_json(self.run.state, asdict(state))
        self._remove_uncommitted(state)
        return state

    def weights(self, state: State, name: str) -> Weights:
        """Read global weights that the state refers to, unless they are still at hand."""
        sha256, tensors = self._last
        if state.weights[name] == sha256:
            return tensors
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
                sync_file(file)
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


def _needed_weights(state: State) -> dict[str, str]:
    """Return the current weights, the initial ones, and those of every finished round."""
    return {name: sha256 for name, sha256 in state.weights.items() if name == state.current or "step" not in name}


def write_config(run: RunDirectory, configuration: Mapping[str, Any]) -> None:
    """Write a configuration as `config.yaml`."""
    write_text(run.config, yaml.safe_dump(dict(configuration), sort_keys=False, allow_unicode=True))


def read_config(run: RunDirectory) -> dict[str, Any]:
    """Read `config.yaml` without validating its settings.

    Raises:
        FealError: there is none, or it is damaged.
    """
    try:
        text = run.config.read_text()
        content = yaml.load(text, _FAST if len(text) < _SHORT else yaml.SafeLoader)
    except FileNotFoundError:
        raise FealError(f"{run.path} holds no run: give the directory that `feal run` printed.") from None
    except OSError as error:
        raise wrap_os_error(error) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise damage_error(run.config, "it is not valid YAML") from error
    if not isinstance(content, dict):
        raise damage_error(run.config, "it holds no settings")
    return content


def read_settings(path: Path) -> Settings:
    """Read the settings of the run in a directory and check that they were not edited since it started.

    Raises:
        FealError: there is no run, its configuration is damaged, or it was edited.
    """
    run = RunDirectory(path)
    content = read_config(run)
    try:
        settings = Settings.model_validate(content)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise FealError(
            f"{run.config} was edited or is of another version, for '{where}' is not valid: "
            "undo the edit, or use the version of feal that started the run."
        ) from error
    if run.state.exists():
        _check_unchanged(run.config, settings, Journal(path).load().configuration)
    return settings


def _check_unchanged(config: Path, settings: Settings, recorded: Mapping[str, Any]) -> None:
    now, then = flatten(settings.dump()), flatten(recorded)
    changed = sorted(key for key in now.keys() | then.keys() if now.get(key) != then.get(key))
    for key in changed:
        if not is_operational(key):
            raise FealError(
                f"{config} was edited since the run started ({key}: {then.get(key)} became {now.get(key)}): "
                "restore it, or start a new run."
            )
    if settings.rounds < then.get("rounds", 0):
        raise damage_error(config, f"rounds: {then['rounds']} became {settings.rounds}")


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
    write_json(run.summary, {**about, "rounds": records}, durable=False)
