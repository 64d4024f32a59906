"""Federated evidential active learning: hospitals train one model together and label only the images worth it.

The names here are stable; docs/api.md shows each at work. Nothing heavy is imported before it is used.

>>> import feal
>>> result = feal.run("demo", strategy="random", rounds=2, out="runs/first")  # doctest: +SKIP
>>> result.rounds[-1].metrics["balanced_accuracy"].mean                       # doctest: +SKIP
"""

from __future__ import annotations

# Set before the imports: modules of the package read it while the package is being imported.
__version__ = "0.1.0"

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from feal.errors import FealError

if TYPE_CHECKING:
    import torch
    from pandas import DataFrame

    from feal.analysis.runs import Run
    from feal.experiment import Result
    from feal.inference import TrainedModel
    from feal.selection import Strategy
    from feal.selection.standalone import Batch, PoolSelection
    from feal.settings import Settings

__all__ = [
    "FealError",
    "Settings",
    "Strategy",
    "__version__",
    "compare",
    "load_model",
    "open_run",
    "resume",
    "run",
    "select",
    "sweep",
]

_Place = str | PathLike[str]


def run(preset: str, *, out: _Place, wait: bool = False, **overrides: Any) -> Result:
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
    from feal.config import load
    from feal.experiment import start

    return start(load(preset, overrides), out=Path(out), wait=wait)


def resume(folder: _Place, *, wait: bool = False, **changes: Any) -> Result:
    """Continue a run from its last commit, with other operational settings such as `rounds=8`.

    Raises:
        FealError: no run there, an edited configuration, a damaged file, another process at work.
    """
    from feal.config import revise
    from feal.experiment import resume as proceed
    from feal.rundir.config import read_settings
    from feal.settings import flatten

    path = Path(folder)
    settings = revise(read_settings(path), flatten(changes)) if changes else None
    return proceed(path, settings=settings, wait=wait)


def sweep(preset: str, *, out: _Place, processes: int | None = None, **values: Any) -> list[Result]:
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
    from feal.experiment.run import read_result
    from feal.experiment.sweep import SweepRun, default_parallelism, plan_sweep, run_sweep
    from feal.settings import flatten

    grid = {key: value if isinstance(value, list) else [value] for key, value in flatten(values).items()}
    plan = plan_sweep(preset, grid)
    runs = [SweepRun(Path(out) / name, settings) for name, settings in plan.runs.items()]
    problems = run_sweep(runs, processes=min(processes or default_parallelism(runs), len(runs)))
    for folder, problem in problems.items():
        raise FealError(f"{folder} is not finished: {problem}")
    return [read_result(one.folder) for one in runs]


def compare(
    *places: _Place,
    metric: str | None = None,
    over: Literal["pooled", "mean"] = "pooled",
    share: float = 0.95,
    to: str | None = None,
) -> DataFrame:
    """Compare the arms of the runs at or below the places, as a pandas data frame.

    A row for each arm and round, then rows for the outcome (mean of rounds 2 to R), the area under the curve, the
    labels to a share of full supervision, and the difference to the reference with its interval.

    Args:
        metric: the task's main metric by default.
        over: all test samples pooled, or the mean over sites.
        share: the share of full supervision that labels are counted to.
        to: the arm of reference; the nearest random one by default.

    Raises:
        FealError: there are no runs, they are of different experiments, or the metric or arm is unknown.
    """
    from feal.analysis.tables import compare_runs

    return compare_runs(*map(Path, places), metric=metric, over=over, share=share, to=to)


def open_run(folder: _Place) -> Run:
    """Read a run directory, finished or not: settings, records of rounds, notes.

    Raises:
        FealError: there is no run, or it cannot be read.
    """
    from feal.analysis.runs import read_run

    return read_run(Path(folder))


def load_model(path: _Place, *, round: int | None = None) -> TrainedModel:
    """Load the global model of a run directory or of an export, of the last round by default.

    Raises:
        FealError: there is no model, or it cannot be read.
    """
    from feal.inference import load_model as load

    return load(Path(path), round=round)


def select(
    strategy: str | Strategy,
    images: Iterable[Batch],
    *,
    models: Mapping[str, torch.nn.Module],
    budget: int,
    labelled: Iterable[Batch] = (),
    class_counts: torch.Tensor | Sequence[float] | None = None,
    loss: str | None = None,
    seed: int = 0,
    device: str | torch.device = "cpu",
    **parameters: Any,
) -> PoolSelection:
    """Select up to `budget` images by a strategy, on any `torch.nn.Module` and any iterable of batches.

    See `feal.selection.standalone.select` for the arguments.

    Raises:
        FealError: no such strategy or parameter, a model is missing, scores are not finite.
    """
    from feal.selection.standalone import select as choose

    return choose(
        strategy,
        images,
        models=models,
        budget=budget,
        labelled=labelled,
        class_counts=class_counts,
        loss=loss,
        seed=seed,
        device=device,
        **parameters,
    )


def __getattr__(name: str) -> Any:
    """Import `Settings` and `Strategy` when they are first used."""
    if name == "Settings":
        from feal.settings import Settings

        return Settings
    if name == "Strategy":
        from feal.selection import Strategy

        return Strategy
    raise AttributeError(f"module 'feal' has no attribute '{name}'")
