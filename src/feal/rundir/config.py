"""Write and read `config.yaml`, the complete settings of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from feal.errors import FealError
from feal.fileio import damage_error, wrap_os_error, write_text
from feal.rundir.journal import Journal
from feal.rundir.layout import RunDirectory
from feal.settings import Settings, flatten, is_operational

_FAST = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Ten times as fast as the other, but it crashes on brackets nested some twenty thousand deep."""
_SHORT = 8192
"""Characters of a text that cannot be nested that deep; a configuration has about three thousand."""


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
    journal = Journal(path)
    if journal.has_state():
        _check_unchanged(run.config, settings, journal.load().configuration)
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
