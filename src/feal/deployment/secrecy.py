"""Files that only their owner may read."""

from __future__ import annotations

import os
import re
import secrets
import stat
from pathlib import Path

from feal.errors import FealError
from feal.files import from_system, publish, unwritable

SECRET_BYTES = 32
_SECRET = re.compile(rf"[0-9a-f]{{{2 * SECRET_BYTES}}}")


def private_folder(path: Path) -> None:
    """Make a folder that nobody else on this machine can look into; one that is there keeps its permissions."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error


def new_secret(path: Path) -> str:
    """Write a new secret to a file that nobody else on this machine can read, whole or not at all."""
    secret = secrets.token_hex(SECRET_BYTES)
    temporary = path.with_name(f".{path.name}.part")
    try:
        temporary.unlink(missing_ok=True)  # whatever lies there may be open to others
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secret)
            file.flush()
            os.fsync(file.fileno())
        publish(temporary, path)
    except OSError as error:
        raise unwritable(path, error) from error
    return secret


def read_secret(path: Path) -> str:
    """The secret that was written there.

    Raises:
        FealError: others can read it, or it is empty or cut short, so that it would be easy to guess.
    """
    check_private(path, "a secret")
    try:
        secret = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise from_system(error) from error
    if not _SECRET.fullmatch(secret):
        raise FealError(f"{path} is empty or damaged: remove it, and start the coordinator again to get another.")
    return secret


def existing(path: Path, what: str) -> Path:
    """The path of a file that is there; a `FealError` otherwise."""
    if not path.is_file():
        raise FealError(f"{path} is missing ({what}): the checklist of `feal deploy init` says how it is made.")
    return path


def check_private(path: Path, what: str) -> None:
    """Refuse a secret file that others can read.

    As elsewhere, a file of root's may be open to its group, since services are given their keys that way.
    """
    status = existing(path, what).stat()
    others = stat.S_IRWXO | (0 if status.st_uid == 0 else stat.S_IRWXG)
    if status.st_mode & others:
        raise FealError(
            f"{path} ({what}) is open to others on this machine: `chmod 600` it, "
            "and make another if somebody may have read it."
        )
