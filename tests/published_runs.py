"""Run directories with figures of one's choice, as if a preset had been run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from feal.config import load
from feal.experiment.folder import RunFolder
from feal.federation.journal import Journal, State
from feal.settings import Settings

CLASSES = {"fed-isic": 8, "fed-camelyon": 2, "fed-fundus": 3}


def pretend(
    folder: Path,
    preset: str,
    overrides: Mapping[str, Any] | None = None,
    *,
    figures: Mapping[str, Sequence[float]],
    seconds: Sequence[float] = (),
    stage: Any = "finished",
) -> Path:
    """A run of a preset whose rounds came to the figures, as means over two sites; pooled ones are 0.01 more.

    `seconds` are what both sites together took to select after each round; the last one asked for nothing.
    """
    settings = _begun(load(preset, overrides), segmentation="dice" in figures)
    rounds = len(next(iter(figures.values())))
    events = [
        {
            "event": "round",
            "round": number + 1,
            "labels": {"one": 5 * (number + 1), "two": 5 * (number + 1)},
            "metrics": {
                name: {"mean": values[number], "pooled": values[number] + 0.01, "sites": {}}
                for name, values in figures.items()
            },
            "diagnostics": {"selection": {site: {"asked": 5 * (number + 1 < rounds)} for site in ("one", "two")}},
            "seconds": {"select": seconds[number]} if seconds else {},
        }
        for number in range(rounds)
    ]
    folder.mkdir(parents=True)
    RunFolder(folder).write_config(settings)
    state = State(
        configuration=settings.dump(),
        task="segmentation" if "dice" in figures else "classification",
        facts={"classes": [str(number) for number in range(CLASSES.get(preset, 2))]},
        stage=stage,
        labels={"one": 5, "two": 5},
    )
    Journal(folder).commit(state, events=events)
    return folder


def _begun(settings: Settings, *, segmentation: bool) -> Settings:
    """What a run notes when it begins."""
    evidence = settings.evidence.model_copy(update={"squared": segmentation})
    digest = None if settings.weights == "none" else "0" * 64
    return settings.model_copy(update={"evidence": evidence, "weights_digest": digest})
