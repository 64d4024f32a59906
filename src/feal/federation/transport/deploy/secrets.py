"""Create and check files that only their owner may read."""

from __future__ import annotations

import os
import re
import secrets
import stat
from pathlib import Path

from feal.errors import FealError
from feal.fileio import rename_durably, wrap_os_error, write_error

SECRET_BYTES = 32
_SECRET = re.compile(rf"[0-9a-f]{{{2 * SECRET_BYTES}}}")


def make_private_directory(path: Path) -> None:
    """Create a directory that no other user can read; an existing one keeps its permissions."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(path, error) from error


def write_secret(path: Path) -> str:
    """Write a new secret atomically to a file that no other user can read, and return it."""
    secret = secrets.token_hex(SECRET_BYTES)
    temporary = path.with_name(f".{path.name}.part")
    try:
        temporary.unlink(missing_ok=True)  # an old file may be readable by others
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secret)
            file.flush()
            os.fsync(file.fileno())
        rename_durably(temporary, path)
    except OSError as error:
        raise write_error(path, error) from error
    return secret


def read_secret(path: Path) -> str:
    """Read a secret.

    Raises:
        FealError: others can read it, or it is empty or truncated and therefore easy to guess.
    """
    check_private(path, "a secret")
    try:
        secret = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise wrap_os_error(error) from error
    if not _SECRET.fullmatch(secret):
        raise FealError(f"{path} is empty or damaged: remove it and restart the coordinator to create another.")
    return secret


def require_file(path: Path, what: str) -> Path:
    """Return the path if the file exists; raise a `FealError` otherwise."""
    if not path.is_file():
        raise FealError(
            f"{path} is missing ({what}): see the checklist of `feal deploy init` for how to create it."
        )
    return path


def check_private(path: Path, what: str) -> None:
    """Raise a `FealError` for a secret file that others can read.

    A file owned by root may be readable by its group: services usually receive their keys that way.
    """
    status = require_file(path, what).stat()
    others = stat.S_IRWXO | (0 if status.st_uid == 0 else stat.S_IRWXG)
    if status.st_mode & others:
        raise FealError(
            f"{path} ({what}) is readable by other users of this machine: run `chmod 600` on it, "
            "and create another if somebody may have read it."
        )
