"""`summary.json`: a run in figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from feal.settings import Settings


def summarize(
    settings: Settings, *, task: str, status: str, events: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The run's status and the record of every finished round."""
    rounds = [
        {key: value for key, value in event.items() if key not in ("event", "energy")}
        for event in events
        if event["event"] == "round"
    ]
    return {
        "status": status,
        "seed": settings.seed,
        "strategy": settings.strategy,
        "query_model": settings.query_model,
        "loss": settings.loss,
        "dataset": settings.dataset,
        "model": settings.model,
        "task": task,
        "rounds": rounds,
    }
