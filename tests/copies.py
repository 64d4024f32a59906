"""Many run directories from one: copies with other settings and figures, in the time it takes to write them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from feal.config.overrides import COMPONENTS

Change = Callable[[int, str, float], float]
"""A figure of a round by its name, from what the run has."""


def copied(run: Path, to: Path, *, change: Change | None = None, **settings: Any) -> Path:
    """A run like the finished one, but for top settings such as seed and strategy, and its rounds' figures.

    What sites keep is left behind: whatever reads figures only does not look at it.
    """
    to.mkdir(parents=True)
    settings = {
        key: {"name": value} if key in COMPONENTS and isinstance(value, str) else value
        for key, value in settings.items()
    }
    config = yaml.safe_load((run / "config.yaml").read_text()) | settings
    (to / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    if change is not None:
        for event in (event for event in events if event["event"] == "round"):
            for name, figures in event["metrics"].items():
                figures |= {over: change(event["round"], name, figures[over]) for over in ("pooled", "mean")}
    log = "".join(json.dumps(event) + "\n" for event in events)
    (to / "metrics.jsonl").write_text(log)
    state = json.loads((run / "state.json").read_text())
    state |= {"configuration": {**state["configuration"], **settings}, "log_bytes": len(log.encode())}
    (to / "state.json").write_text(json.dumps(state))
    shutil.copy(run / "summary.json", to / "summary.json")
    return to


def cut(run: Path, *, rounds: int) -> Path:
    """Make a run an unfinished one that has closed so many rounds."""
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    closed = [number for number, line in enumerate(lines) if json.loads(line)["event"] == "round"]
    kept = "".join(lines[: closed[rounds - 1] + 1]) if rounds else ""
    (run / "metrics.jsonl").write_text(kept)
    state = json.loads((run / "state.json").read_text())
    state |= {"stage": "train", "round": rounds + 1, "step": 0, "log_bytes": len(kept.encode())}
    (run / "state.json").write_text(json.dumps(state))
    (run / "summary.json").unlink(missing_ok=True)
    return run
