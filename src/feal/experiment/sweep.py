"""Sweeps: every valid combination of settings (`strategy=feal,random seed=0,1`), run in a few processes."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import product
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from yaml import YAMLError

from feal.config import applicable, load, parse
from feal.config.overrides import read_value
from feal.errors import FealError
from feal.experiment.run import Result, read_result, resume, start
from feal.plugins import short_name
from feal.processes import run_tasks
from feal.rundir.journal import Journal, read_settings
from feal.rundir.layout import RunDirectory
from feal.settings import Settings, flatten

IN_EVERY_NAME = ("strategy", "strategy.query_model", "seed")
_LACKS_VALUE = re.compile(r"^\s*(,|$)|,\s*(,|$)")
BYTES_PER_RUN = 2 * 2**30
"""Free memory that a run is assumed to need."""


def sweep(preset: str, *, out: str | PathLike[str], processes: int | None = None, **values: Any) -> list[Result]:
    """Run every valid combination of settings; a setting with a list has several values.

    A repeated call continues an interrupted sweep. A parameter applies to the strategies that have it.

    Args:
        preset: the name of a preset, or the path of a YAML file.
        out: the directory of the runs.
        processes: runs at a time; by default as many as cores and free memory allow.
        values: `strategy=["feal", "random"], seed=[0, 1]`; inside a section `**{"strategy.tau": [0.8, 0.9]}`.

    Raises:
        FealError: bad settings, a directory that holds other runs, or a run that could not be finished.
    """
    grid = {key: value if isinstance(value, list) else [value] for key, value in flatten(values).items()}
    plan = plan_sweep(preset, grid)
    runs = [SweepRun(Path(out) / name, settings) for name, settings in plan.runs.items()]
    problems = run_sweep(runs, processes=min(processes or default_parallelism(runs), len(runs)))
    for folder, problem in problems.items():
        raise FealError(f"{folder} is not finished: {problem}")
    return [read_result(run.folder) for run in runs]


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """The settings of every run by its name, and notes on combinations that are left out."""

    runs: Mapping[str, Settings]
    notes: tuple[str, ...] = ()


def plan_sweep(preset: str, values: Mapping[str, Sequence[Any]]) -> SweepPlan:
    """Plan a run for every valid combination of values, by a name such as `entropy-local/seed-1`.

    A parameter applies to the strategies (losses, networks, ...) that have it; the others run once. A name has
    strategy, query model and seed, and whatever else has several values.

    Raises:
        FealError: a value is valid in no combination.

    >>> grid = {"strategy": ["entropy", "random"], "strategy.query_model": ["global", "local"]}
    >>> list(plan_sweep("demo", grid).runs)
    ['entropy-global/seed-0', 'entropy-local/seed-0', 'random/seed-0']
    """
    valid, invalid = _combine(preset, values)
    once = {settings.identity() + str(settings.rounds): (applying, settings) for applying, settings in valid}
    varied = [key for key, several in values.items() if len(several) > 1 and key not in IN_EVERY_NAME]
    named = [
        (_name_run(flatten(settings.dump()), [key for key in varied if key in applying]), settings)
        for applying, settings in once.values()
    ]
    often = Counter(name for name, _ in named)
    runs = {
        name if often[name] == 1 else f"{name}-{settings.identity()[:6]}": settings for name, settings in named
    }
    return SweepPlan(runs=runs, notes=tuple(_describe_invalid(invalid)))


def read_grid(words: Iterable[str]) -> dict[str, list[Any]]:
    """Return the values of each setting from words such as `seed=0,1`; a list or a mapping is one value.

    Raises:
        FealError: a setting without a value, or given twice; brackets or quotes that are not closed.

    >>> read_grid(["strategy=feal,random", "strategy.terms=[aleatoric-local],[]", "seed=0"])
    {'strategy': ['feal', 'random'], 'strategy.terms': [['aleatoric-local'], []], 'seed': [0]}
    """
    values: dict[str, list[Any]] = {}
    for word in words:
        key, sign, text = word.partition("=")
        if key in values:
            raise FealError(f"{key} is given twice: write all its values at once, as {key}=ONE,OTHER.")
        if not sign or not key:
            parse([word])
        if _LACKS_VALUE.search(text):
            raise FealError(f"'{word}' lacks a value: write {key}=VALUE, or several as {key}=ONE,OTHER.")
        try:
            values[key] = read_value(f"[{text}]")
        except (YAMLError, ValueError):
            raise FealError(f"'{text}' has brackets or quotes that are not closed: write them in pairs.") from None
    return values


_Valid = tuple[Mapping[str, Any], Settings]
"""Overrides without the parameters that no component of the combination has, and the settings they give."""
_Invalid = tuple[Mapping[str, Any], FealError]


def _combine(preset: str, values: Mapping[str, Sequence[Any]]) -> tuple[list[_Valid], list[_Invalid]]:
    """Return the valid combinations, and the invalid ones with the reason.

    Raises:
        FealError: a value is valid in no combination.
    """
    valid: list[_Valid] = []
    invalid: list[_Invalid] = []
    for combination in product(*values.values()):
        overrides = dict(zip(values, combination, strict=True))
        try:
            applying = applicable(preset, overrides)
            valid.append((applying, load(preset, applying)))
        except FealError as error:
            invalid.append((overrides, error))
    used = {(key, repr(value)) for applying, _ in valid for key, value in applying.items()}
    for attempt, reason in invalid:
        if any((key, repr(value)) not in used for key, value in attempt.items()):
            raise reason
    for key, several in values.items():
        if any((key, repr(value)) not in used for value in several):
            # No component of the sweep has such a parameter: loading it with the first raises the error.
            load(preset, {**valid[0][0], key: several[0]})
    return valid, invalid


def _describe_invalid(invalid: Sequence[_Invalid]) -> list[str]:
    if not invalid:
        return []
    (first, error), count = invalid[0], len(invalid)
    words = " ".join(f"{key}={_slug(value)}" for key, value in first.items())
    are = "combination is" if count == 1 else "combinations are"
    return [f"{count} {are} left out as not valid, such as {words}: {error}"]


def _name_run(effective: Mapping[str, Any], varied: Sequence[str]) -> str:
    parts = [short_name(effective["strategy.name"]), effective.get("strategy.query_model", "")]
    for key in varied:
        value = effective.get(key, effective.get(f"{key}.name"))
        parts.append(f"{key.removeprefix('strategy.')}={_slug(value)}")
    return "-".join(filter(None, parts)) + f"/seed-{effective['seed']}"


def _slug(value: object) -> str:
    text = "+".join(map(str, value)) if isinstance(value, list) else short_name(str(value))
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.") or "none"


@dataclass(frozen=True)
class SweepRun:
    """One run of a sweep: its directory and its settings."""

    folder: Path
    settings: Settings

    @property
    def name(self) -> str:
        """The last two parts of the path, which are unique in a sweep."""
        return f"{self.folder.parent.name}/{self.folder.name}"

    def check_directory(self) -> None:
        """Check that the directory holds no other run; damage is reported by `execute`.

        Raises:
            FealError: the directory holds a run with other settings.
        """
        existing = None
        with suppress(FealError):
            existing = read_settings(self.folder)
        if existing is not None and self._complete(existing.weights_digest).identity() != existing.identity():
            raise FealError(f"{self.folder} holds a run with other settings: choose another --out, or remove it.")

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.share == 1.0

    @property
    def share(self) -> float:
        """The completed share of the run, from 0 to 1; a damaged run counts as 0."""
        journal = Journal(self.folder)
        try:
            state = journal.load() if journal.has_state() else None
        except FealError:
            return 0.0
        if state is None:
            return 0.0
        rounds = self.settings.rounds
        if state.is_over(self.settings) and RunDirectory(self.folder).summary.exists():
            return 1.0
        in_training = state.stage == "train"
        done = state.round - 1 + state.step / self.settings.communication_rounds if in_training else state.round
        # The end of the last round is still to come: evaluation and perhaps selection.
        return min(max(done, 0.0) / rounds, 0.999)

    def execute(self) -> str | None:
        """Start or resume the run; return why it is not finished, or None if it is."""
        try:
            folder = RunDirectory(self.folder)
            if folder.config.exists():
                result = resume(self.folder, settings=self._complete(read_settings(folder.path).weights_digest))
            else:
                result = start(self.settings, out=self.folder)
        except FealError as error:
            return str(error)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        if result.status == "waiting":
            return f"It is waiting for labels: `feal labels {self.folder}` shows which."
        return None

    def _complete(self, weights_digest: str | None) -> Settings:
        """Add the digest of the weights that an existing run recorded when it started."""
        digest = self.settings.weights_digest or weights_digest
        return self.settings.model_copy(update={"weights_digest": digest})


class SweepCallback(Protocol):
    """Receives the progress of a sweep."""

    def on_progress(self, done: float, total: int, running: Sequence[SweepRun]) -> None:
        """Receive how many runs are done, unfinished ones by their share."""

    def on_run_end(self, run: SweepRun, problem: str | None) -> None:
        """Receive a run that ended and, unless it is finished, why not."""


def default_parallelism(runs: Sequence[SweepRun]) -> int:
    """Return the default number of runs at a time: by cores and free memory, and one on a GPU."""
    from feal.processes import count_cores, free_memory
    from feal.tensors import resolve_device

    if any(resolve_device(run.settings.device).type != "cpu" for run in runs):
        return 1
    threads = max(run.settings.threads for run in runs)
    return max(1, min(count_cores() // threads, free_memory() // BYTES_PER_RUN))


def run_sweep(
    runs: Sequence[SweepRun], *, processes: int, callback: SweepCallback | None = None
) -> dict[Path, str]:
    """Execute all unfinished runs and return why each one that is still unfinished is so, by run directory.

    Raises:
        FealError: a directory holds a run with other settings; nothing was started.
    """
    for run in runs:
        run.check_directory()
    shares = {run.folder: run.share for run in runs}
    problems: dict[Path, str] = {}

    def report(running: Sequence[SweepRun]) -> None:
        shares.update({run.folder: run.share for run in running})
        if callback is not None:
            callback.on_progress(sum(shares.values()), len(runs), running)

    todo = [run for run in runs if shares[run.folder] < 1]
    with closing(run_tasks(todo, SweepRun.execute, processes=processes, on_tick=report)) as results:
        for run, result in results:
            problem = str(result) if isinstance(result, Exception) else result
            # A failed run needs no more time either.
            shares[run.folder] = 1.0
            if problem is not None:
                problems[run.folder] = problem
            if callback is not None:
                callback.on_run_end(run, problem)
    return problems
