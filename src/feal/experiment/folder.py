"""A run directory: what lies where."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from feal.errors import FealError
from feal.federation.journal import Journal
from feal.files import damaged, from_system, write_text
from feal.settings import OPERATIONAL, Settings, flatten, later_defaults

_FAST = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Ten times as fast as the other, but it crashes on brackets nested some twenty thousand deep."""
_SHORT = 8192
"""Letters of a text that cannot be nested as deep as that; a configuration has three thousand."""


class RunFolder:
    """Paths and plain files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.summary = path / "summary.json"
        self.origin = path / "origin.json"
        self.sites = path / "sites"

    def write_config(self, settings: Settings) -> None:
        """Write the complete, effective configuration."""
        write_text(self.config, yaml.safe_dump(settings.dump(), sort_keys=False, allow_unicode=True))

    def read_config(self) -> dict[str, Any]:
        """The configuration as it lies there; a folder without one is a `FealError`."""
        try:
            text = self.config.read_text()
            content = yaml.load(text, _FAST if len(text) < _SHORT else yaml.SafeLoader)
        except FileNotFoundError:
            raise FealError(f"{self.path} holds no run: give the folder that `feal run` named.") from None
        except OSError as error:
            raise from_system(error) from error
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise damaged(self.config, "it is no YAML any more") from error
        if not isinstance(content, dict):
            raise damaged(self.config, "it holds no settings")
        return content


def settings_of(folder: RunFolder) -> Settings:
    """A run's settings, after a check that nobody edited them since it began."""
    content = folder.read_config()
    try:
        settings = Settings.model_validate(content)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise FealError(f"{folder.config} was edited and '{where}' is not valid now: put it back.") from error
    journal = Journal(folder.path)
    if journal.begun():
        _check_unchanged(folder, settings, journal.load().configuration)
    return settings


def new_folder(path: Path) -> tuple[RunFolder, bool]:
    """A folder for a new run, and whether it was made just now; one that holds anything is refused."""
    try:
        made = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
        # Hidden files are a lock, or what a kill left of a first write.
        taken = any(not entry.name.startswith(".") for entry in path.iterdir())
    except OSError as error:
        raise FealError(f"{path} cannot be used as a run directory ({error.strerror}): choose another.") from error
    if (path / "config.yaml").exists():
        raise FealError(f"{path} holds a run already: go on with `feal resume {path}`, or choose another --out.")
    if taken:
        raise FealError(f"{path} is not empty and holds no run: choose another --out.")
    return RunFolder(path), made


def free_folder(parent: Path, name: str) -> Path:
    """A path below `parent` that does not exist yet: the name itself, or with a number behind it."""
    number = 1
    path = parent / name
    while path.exists():
        number += 1
        path = parent / f"{name}-{number}"
    return path


def _check_unchanged(folder: RunFolder, settings: Settings, recorded: Mapping[str, Any]) -> None:
    now, then = flatten(settings.dump()), {**later_defaults(), **flatten(recorded)}
    changed = sorted(key for key in now.keys() | then.keys() if now.get(key) != then.get(key))
    for key in changed:
        if key not in OPERATIONAL:
            raise FealError(
                f"{folder.config} was edited since the run began ({key}: {then.get(key)} became {now.get(key)}): "
                "put it back, or start a new run."
            )
    if settings.rounds < then.get("rounds", 0):
        raise damaged(folder.config, f"rounds: {then['rounds']} became {settings.rounds}")
