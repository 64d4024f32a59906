"""Every durable write of the software: whole or not at all, and never unpickled."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from feal.errors import FealError

if TYPE_CHECKING:
    import torch

    from feal.tensors import Buffer, Tensors


def write_bytes(path: Path, *parts: Buffer) -> None:
    """Write a file atomically: readers see the old content or the new, also after a power cut."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        publish(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise unwritable(path, error) from error


def publish(temporary: Path, final: Path) -> None:
    """Give a completely written file (or folder) its final name."""
    temporary.replace(final)
    folder = os.open(final.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def whole_folder(final: Path) -> Iterator[Path]:
    """A folder to be filled, which has its final name at the end and is gone if anything goes wrong before.

    Raises:
        FealError: there is something at `final` already, or the disk refuses.
    """
    if final.exists() and (not final.is_dir() or any(final.iterdir())):
        raise FealError(f"{final} exists and is not an empty folder: choose another --out.")
    partial = final.with_name(f".{final.name}.{uuid.uuid4().hex}.partial")
    try:
        partial.mkdir(parents=True)
        yield partial
        publish(partial, final)
    except OSError as error:
        raise unwritable(final, error) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def unwritable(path: Path, error: OSError) -> FealError:
    """The sentence for a write that the machine refused."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return FealError(f"There is no space left to write {path}: free some and repeat the command.")
    return FealError(f"{path} could not be written ({error.strerror}): mend that and repeat the command.")


def from_system(error: OSError) -> FealError:
    """The sentence for whatever else the machine refused."""
    return FealError(f"{error.filename or 'A file'} cannot be used ({error.strerror}): mend that and repeat.")


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, as UTF-8."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: object) -> None:
    """Write a JSON file atomically, readable for people."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file; a damaged one is a `FealError`."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise FealError(f"{path} is missing: is this the right folder?") from None
    except (ValueError, OSError) as error:
        raise damaged(path, str(error)) from error


def write_tensors(path: Path, tensors: Tensors) -> str:
    """Write tensors as a safetensors file atomically and return the SHA-256 of its bytes."""
    from feal.tensors import buffers

    parts = buffers(tensors)
    write_bytes(path, *parts)
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def read_tensors(path: Path, *, sha256: str | None = None) -> dict[str, torch.Tensor]:
    """Read tensors back; a missing or cut file, or one altered since `sha256` was noted, is a `FealError`."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        data = path.read_bytes()
    except OSError as error:
        raise damaged(path, str(error.strerror)) from error
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
        raise damaged(path, "its checksum differs from the recorded one")
    try:
        return load(data)
    except SafetensorError as error:
        raise damaged(path, str(error)) from error


def damaged(path: Path, how: str) -> FealError:
    """The sentence for a file that is not what was written."""
    return FealError(f"{path} is damaged ({how}): put it back from a copy, or start a new run.")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for this process alone; the lock ends with the process, however it ends.

    Raises:
        FealError: another process holds it.
    """
    try:
        file = (folder / ".lock").open("a+")
    except OSError as error:
        raise unwritable(folder / ".lock", error) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise FealError(
                f"Process {holder} is working on {folder}: wait for it or stop it, then repeat the command."
            ) from None
        try:
            file.truncate(0)
            os.write(file.fileno(), str(os.getpid()).encode())
        except OSError as error:
            raise unwritable(folder / ".lock", error) from error
        yield


@contextmanager
def in_turn(path: Path) -> Iterator[None]:
    """Wait until no other process is between here and the end of the block, by a lock file at `path`."""
    with _lock_file(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def holder(folder: Path) -> int | None:
    """The living process that says it works on the folder; unlike `is_locked` this never touches the lock.

    Whoever looks again and again would else, now and then, be in the way of one that wants to begin.
    """
    try:
        process = int((folder / ".lock").read_text())
        os.kill(process, 0)
    except PermissionError:  # it lives, and is another user's
        return process
    except (OSError, ValueError, OverflowError):
        return None
    return process


@contextmanager
def if_free(path: Path) -> Iterator[bool]:
    """The same without waiting: whether no other process is there, and if so none comes until the block ends."""
    with _lock_file(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


def _lock_file(path: Path) -> TextIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a")
    except OSError as error:
        raise unwritable(path, error) from error


def whole_path(path: str | Path, *, setting: str = "") -> Path:
    """A path as a user writes it, from the root on; one of an unknown user or too long is a `FealError`."""
    try:
        return Path(path).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise FealError(f"{setting}{path} is no path here ({error}): write it in full.") from None


def is_locked(folder: Path) -> bool:
    """Whether a living process works on the folder."""
    path = folder / ".lock"
    if not path.exists():
        return False
    with path.open("r") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
