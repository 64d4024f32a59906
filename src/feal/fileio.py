"""Read and write files durably: atomic writes, checksums, locks; nothing is ever unpickled."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from feal.errors import FealError

if TYPE_CHECKING:
    import torch

    from feal.tensors import Buffer, Tensors


def user_cache() -> Path:
    """Return the user's cache directory, for files that can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "feal"


def write_bytes(path: Path, *parts: Buffer, durable: bool = True) -> None:
    """Write a file atomically: readers see the old content or the new, even after a power failure.

    Without `durable`, which saves one of two syncs, a power failure soon afterwards may undo the write.
    """
    temporary = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.writelines(parts)
            sync_file(file)
        rename_durably(temporary, path) if durable else temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise write_error(path, error) from error


def overwrite_bytes(path: Path, *parts: Buffer) -> None:
    """Write a file that nothing refers to yet, in place of what it held, and sync it but not its directory.

    That takes half the time of a new file, but a kill or a failure leaves it with parts of both contents.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_nlink > 1:
            path.unlink()  # a copy by hard links keeps its content
        path.touch()
        with path.open("r+b") as file:
            file.writelines(parts)
            file.truncate()
            sync_file(file)
    except OSError as error:
        raise write_error(path, error) from error


def sync_file(file: BinaryIO) -> None:
    """Flush what was written to an open file to disk."""
    file.flush()
    os.fsync(file.fileno())


def rename_durably(temporary: Path, final: Path) -> None:
    """Rename a completely written file or directory to its final name and sync the parent directory."""
    temporary.replace(final)
    sync_directory(final.parent)


def link_or_copy(source: Path, target: Path) -> None:
    """Give a synced file another name, or copy and sync it where the file system has no hard links."""
    target.unlink(missing_ok=True)
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)
        with target.open("rb") as file:
            os.fsync(file.fileno())


def sync_directory(folder: Path) -> None:
    """Flush the names of a directory's files to disk."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextmanager
def atomic_directory(final: Path) -> Iterator[Path]:
    """Yield a temporary directory that gets its final name on success and is removed on failure.

    Raises:
        FealError: `final` exists and is not an empty directory, or it cannot be written.
    """
    if final.exists() and (not final.is_dir() or any(final.iterdir())):
        raise FealError(f"{final} exists and is not an empty directory: choose another --out.")
    partial = final.with_name(f".{final.name}.{uuid.uuid4().hex}.partial")
    try:
        partial.mkdir(parents=True)
        yield partial
        rename_durably(partial, final)
    except OSError as error:
        raise write_error(final, error) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_error(path: Path, error: OSError) -> FealError:
    """Return the error for a write that the operating system rejected."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return FealError(f"No space left to write {path}: free some and repeat the command.")
    return FealError(f"{path} could not be written ({error.strerror}): fix that and repeat the command.")


def wrap_os_error(error: OSError) -> FealError:
    """Return the error for any other operation that the operating system rejected."""
    return FealError(
        f"{error.filename or 'A file'} cannot be used ({error.strerror}): fix that and repeat the command."
    )


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Write a text file atomically, as UTF-8; see `write_bytes`."""
    write_bytes(path, text.encode(), durable=durable)


def render_template(path: Path, **content: object) -> str:
    """Return a Jinja template filled in as plain text; a name without a value is an error."""
    from jinja2 import StrictUndefined, Template

    text = path.read_text(encoding="utf-8")
    template = Template(text, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    return str(template.render(content))


def write_json(path: Path, value: object, *, durable: bool = True) -> None:
    """Write an indented JSON file atomically; see `write_bytes`."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n", durable=durable)


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        FealError: the file is missing or damaged.
    """
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise FealError(f"{path} is missing: is this the right directory?") from None
    except (ValueError, OSError) as error:
        raise damage_error(path, str(error)) from error


def write_tensors(path: Path, tensors: Tensors, *, durable: bool = True) -> str:
    """Write tensors as a safetensors file atomically, see `write_bytes`; return the SHA-256 of its bytes."""
    return _write_tensors(partial(write_bytes, path, durable=durable), tensors)


def overwrite_tensors(path: Path, tensors: Tensors) -> str:
    """Write tensors as a safetensors file in place, see `overwrite_bytes`; return the SHA-256 of its bytes."""
    return _write_tensors(partial(overwrite_bytes, path), tensors)


def _write_tensors(write: Callable[..., None], tensors: Tensors) -> str:
    from feal.tensors import encode_tensors

    parts = encode_tensors(tensors)
    write(*parts)
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def read_tensors(path: Path, *, sha256: str | None = None, prefix: str = "") -> dict[str, torch.Tensor]:
    """Map tensors of a safetensors file into memory, where they are read when they are used.

    Those whose names begin with `prefix` are returned, by the rest of their names.

    Raises:
        FealError: the file is missing, truncated, or does not match `sha256`.
    """
    from safetensors import SafetensorError, safe_open

    try:
        if sha256 is not None:
            with path.open("rb") as content:
                if hashlib.file_digest(content, "sha256").hexdigest() != sha256:
                    raise damage_error(path, "its checksum differs from the recorded one")
        with safe_open(path, framework="pt") as file:
            names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118
            return {name.removeprefix(prefix): file.get_tensor(name) for name in names}
    except OSError as error:
        raise damage_error(path, error.strerror or str(error)) from error
    except SafetensorError as error:
        raise damage_error(path, str(error)) from error


def damage_error(path: Path, reason: str) -> FealError:
    """Return the error for a file whose content is not what was written."""
    return FealError(f"{path} is damaged ({reason}): restore it from a copy, or start a new run.")


@contextmanager
def lock_file(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock file at `path` until the block ends, or until the process ends in any way.

    Yields:
        Whether the lock is held: without `wait` it is not if another process has it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    except OSError as error:
        raise write_error(path, error) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True


@contextmanager
def lock_directory(folder: Path) -> Iterator[None]:
    """Lock a directory for this process, whose id is in its lock file.

    Raises:
        FealError: another process holds the lock.
    """
    path = folder / ".lock"
    with lock_file(path, wait=False) as is_free:
        if not is_free:
            holder = path.read_text().strip() or "unknown"
            raise FealError(
                f"Process {holder} is working on {folder}: wait for it or stop it, then repeat the command."
            )
        try:
            path.write_text(str(os.getpid()))
        except OSError as error:
            raise write_error(path, error) from error
        yield


def is_locked(folder: Path) -> bool:
    """Return whether a live process holds the directory's lock."""
    path = folder / ".lock"
    if not path.exists():
        return False
    with path.open("r") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def lock_holder(folder: Path) -> int | None:
    """Return the live process named in the directory's lock file, without touching the lock.

    Unlike `is_locked`, frequent calls never keep another process from taking the lock.
    """
    try:
        process = int((folder / ".lock").read_text())
        os.kill(process, 0)
    except PermissionError:  # it is alive and belongs to another user
        return process
    except (OSError, ValueError, OverflowError):
        return None
    return process


def absolute_path(path: str | Path, *, setting: str = "") -> Path:
    """Return a user's path as an absolute one.

    Raises:
        FealError: the path names an unknown user, or is too long.
    """
    try:
        return Path(path).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise FealError(f"{setting}{path} is not a valid path ({error}): write it in full.") from None
