"""`origin.json`: what a run was made by, for those who want to make it again; no figure depends on it."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from feal.errors import FealError
from feal.experiment.folder import RunFolder
from feal.files import read_json, write_json
from feal.version import VERSION

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "monai", "safetensors", "pydantic", "flwr", "ray")
"""Those whose version can change bits or figures."""


def note_origin(folder: RunFolder, *, manifest: str | None) -> None:
    """Add software, machine and command line to `origin.json`, unless the last entry says the same already.

    `manifest` is the digest of the data's manifest, where the data are at hand. A run that is resumed elsewhere or
    with other versions so has several entries, in their order.
    """
    entry = {
        "feal": VERSION,
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name)) is not None},
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "manifest": manifest,
        "command": _command(),
    }
    before = read_origin(folder.path)
    if not before or before[-1] != entry:
        write_json(folder.origin, [*before, entry])


def read_origin(path: Path) -> list[dict[str, Any]]:
    """The entries of a run directory; none where the run is of a version that noted none, or they are damaged."""
    try:
        content = read_json(RunFolder(path).origin)
    except FealError:
        return []
    return [entry for entry in content if isinstance(entry, dict)] if isinstance(content, list) else []


def _command() -> str | None:
    """The words of the command line, where it is ours."""
    called = Path(sys.argv[0]).stem if sys.argv else ""
    return shlex.join(["feal", *sys.argv[1:]]) if called in ("feal", "-c") and len(sys.argv) > 1 else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
