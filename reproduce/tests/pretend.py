"""Run directories with chosen metrics, as if a preset had been run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from feal.config import load
from feal.rundir.journal import Journal, State, write_config
from feal.rundir.layout import RunDirectory
from feal.rundir.records import Diagnostics, MetricValue, Round, SiteSelection

CLASSES = {"fed-isic": 8, "fed-camelyon": 2, "fed-fundus": 3}


def write_run(
    folder: Path,
    preset: str,
    overrides: Mapping[str, Any] | None = None,
    *,
    metrics: Mapping[str, Sequence[float]],
    seconds: Sequence[float] = (),
    stage: Any = "finished",
) -> Path:
    """Write a run of a preset with these means over two sites after each round; pooled values are 0.01 higher.

    `seconds` is the time that both sites took to select after each round; the last round asks for nothing.
    """
    task = "segmentation" if "dice" in metrics else "classification"
    settings = load(preset, overrides)
    # A run notes these when it begins.
    digest = None if settings.weights == "none" else "0" * 64
    settings = settings.model_copy(update={"weights_digest": digest})
    rounds = len(next(iter(metrics.values())))
    events = [
        Round(
            round=number + 1,
            labels={"one": 5 * (number + 1), "two": 5 * (number + 1)},
            metrics={
                name: MetricValue(mean=values[number], pooled=values[number] + 0.01)
                for name, values in metrics.items()
            },
            diagnostics=Diagnostics(
                selection={site: SiteSelection(asked=5 * (number + 1 < rounds)) for site in ("one", "two")}
            ),
            seconds={"select": seconds[number]} if seconds else {},
        )
        for number in range(rounds)
    ]
    folder.mkdir(parents=True)
    write_config(RunDirectory(folder), settings.dump())
    state = State(
        configuration=settings.dump(),
        task=task,
        facts={"classes": [str(number) for number in range(CLASSES.get(preset, 2))]},
        stage=stage,
        labels={"one": 5, "two": 5},
    )
    Journal(folder).commit(state, events=events)
    return folder
