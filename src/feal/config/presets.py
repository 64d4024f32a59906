"""Presets: named configurations inside the package, or a YAML file of one's own."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from feal.errors import FealError, unknown_name_error

ABOUT = "about"
"""The key of a preset's one-line description; everything else in the file is a setting."""


def preset_names() -> list[str]:
    """Names of the presets that come with the package, sorted."""
    folder = resources.files("feal.config") / "presets"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def read_preset(name: str) -> dict[str, Any]:
    """Read a preset, by name or by the path of a YAML file."""
    if name in preset_names():
        text = (resources.files("feal.config") / "presets" / f"{name}.yaml").read_text()
    elif _is_file(name):
        text = _read(name)
    elif name.endswith((".yaml", ".yml")) or "/" in name:
        raise FealError(f"There is no file {name}: check the path, or name one of {', '.join(preset_names())}.")
    else:
        raise unknown_name_error("preset", name, preset_names())
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" (line {where.line + 1})" if where else ""
        raise FealError(f"{name} is no valid YAML{line}: mend it.") from None
    if not isinstance(content, dict):
        raise FealError(f"{name} holds no settings: write KEY: VALUE lines.")
    return content


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False


def _read(name: str) -> str:
    try:
        return Path(name).read_text()
    except (OSError, UnicodeDecodeError):
        raise FealError(f"{name} cannot be read as text: give a YAML file.") from None
