"""Small runs, and everything of a run that must be the same bits."""

import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any

from feal.config import load
from feal.federation.callbacks import NullCallback
from feal.settings import Settings

TINY = {
    "dataset": {"sites": 2, "train": 40, "test": 16, "classes": 5},
    "rounds": 2,
    "communication_rounds": 2,
    "budget": 5,
    "training": {"batch_size": 4, "local_epochs": 1},
}
TINY_POLYPS = {
    **TINY,
    "dataset": {"name": "synthetic-polyps", "sites": 2, "train": 12, "test": 4, "size": 32},
    "model": {"name": "unet", "channels": 4},
    "budget": 3,
}


def tiny(**changes: Any) -> Settings:
    """A run of a second: two sites, two rounds of two communication rounds."""
    return load("demo", {**TINY, **changes})


def tiny_polyps(**changes: Any) -> Settings:
    """The same for segmentation."""
    return load("demo", {**TINY_POLYPS, **changes})


def fingerprint(folder: Path) -> dict[str, Any]:
    """Everything a run leaves but for times of day and durations."""
    prints: dict[str, Any] = {"summary": _timeless(json.loads((folder / "summary.json").read_text()))}
    log = (folder / "metrics.jsonl").read_text().splitlines()
    prints["metrics"] = [_timeless(json.loads(line)) for line in log]
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.parent.name == "models":  # their numbers only tell which file was free
            kind = f"{path.parent.relative_to(folder)}/{path.name.split('-')[0]}"
            prints[kind] = sorted([*prints.get(kind, ()), hashlib.sha256(path.read_bytes()).hexdigest()])
        elif path.suffix in (".safetensors", ".csv", ".yaml"):
            prints[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif path.suffix == ".sqlite":
            prints[name] = labels(path)
        elif path.is_file() and path.suffix == ".part":
            prints[name] = "left over"
    return prints


def labels(database: Path) -> list[tuple[Any, ...]]:
    """Queries and answers of a site, without times."""
    connection = sqlite3.connect(database)
    columns = "sample, round, rank, score, model, label, mask, answered_by, corrected"
    rows = connection.execute(f"SELECT {columns} FROM labels ORDER BY sample").fetchall()
    connection.close()
    return rows


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """What two runs differ in."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(entry) for key, entry in value.items() if key != "seconds"}
    return [_timeless(entry) for entry in value] if isinstance(value, list) else value


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    """What the run's log says of one kind."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


class Listener(NullCallback):
    """Keeps what people are told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def on_note(self, sentence: str) -> None:
        self.notes.append(sentence)
