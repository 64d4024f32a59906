"""Run directories made by hand: what sites kept, without anything that was trained."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from feal.analysis.runs import Run
from feal.fileio import write_tensors
from feal.rundir.journal import State
from feal.rundir.records import Round
from tests.runs import tiny, tiny_polyps


def fabricated(
    path: Path,
    *,
    classes: Sequence[str] = ("a", "b", "c"),
    sites: Sequence[str] = ("alder", "birch"),
    rounds: int = 2,
    energy: Mapping[str, Sequence[int]] | None = None,
    task: str = "classification",
    **settings: Any,
) -> Run:
    """A run of so many rounds that kept nothing yet."""
    facts = {"classes": list(classes), "channels": 3, "height": 32, "width": 32, "dtype": "uint8"}
    labels = dict.fromkeys(sites, 5)
    state = State(configuration={}, task=task, facts=facts, labels=labels, stage="finished", round=rounds)
    events = [
        Round(
            round=number,
            labels={},
            metrics={},
            energy={site: list(counts) for site, counts in (energy or {}).items()},
        )
        for number in range(1, rounds + 1)
    ]
    make = tiny if task == "classification" else tiny_polyps
    return Run(path=path, settings=make(**settings), state=state, events=tuple(events))


def keep(run: Run, site: str, name: str, **columns: Any) -> None:
    """Write what a site kept of samples, under `round-001` or `evaluation-001`."""
    tensors = {key: torch.as_tensor(np.asarray(column)) for key, column in columns.items()}
    write_tensors(run.path / "sites" / site / "diagnostics" / f"{name}.safetensors", tensors)
