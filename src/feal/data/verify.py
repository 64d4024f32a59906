"""Verify prepared data sets: checksums of their files, and validity of their labels."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter

from feal.data.arrays import REPAIR
from feal.data.prepared import IMAGE_FILE, LABEL_FILE, PreparedSet, open_labels, open_prepared
from feal.data.samples import SAMPLE_COLUMNS, SAMPLE_FOLDER
from feal.errors import FealError
from feal.fileio import user_cache, write_json

_CACHE = TypeAdapter(dict[str, tuple[int, int, str]])
"""Size, modification time and checksum of each file of a site when it was last read."""


def compute_checksum(path: Path) -> str:
    """Compute the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(root: Path | str) -> None:
    """Read every file of a prepared set and compare it with its checksum in the manifest.

    Raises:
        FealError: a file is missing or differs, or the set cannot be opened.
    """
    prepared = open_prepared(root)
    for name in prepared.sites:
        prepared.site(name)
        check_files(prepared, name)


def check_files(prepared: PreparedSet, site: str, *, only: str | None = None, cached: bool = False) -> None:
    """Raise a `FealError` if a file of a site is missing or differs, see `find_altered`."""
    for path, _ in find_altered(prepared, site, only=only, cached=cached):
        raise FealError(
            f"The file {path} is not the one that was prepared (missing, or its checksum differs): {REPAIR}."
        )


def find_altered(
    prepared: PreparedSet, site: str, *, only: str | None = None, cached: bool = False
) -> list[tuple[Path, str]]:
    """Return the files of a site (or `only` that one) that are missing or differ from their checksum, and how.

    With `cached`, only files that changed since last time are read. The checksum of a file is cached with its size
    and modification time, beside the set or in the user's cache where the set is read-only; where neither can be
    written, every call reads all files.
    """
    checksums = prepared.manifest.sites[site].checksums
    expected = (IMAGE_FILE, LABEL_FILE, *(f"{SAMPLE_FOLDER}/{name}.npy" for name in SAMPLE_COLUMNS))
    cache = _ChecksumCache(prepared.root, site) if cached else None
    found = []
    for file in sorted({*expected, *checksums} if only is None else {only}):
        path = prepared.root / site / file
        if not path.is_file():
            found.append((path, "is missing"))
        elif (cache.checksum(file) if cache else compute_checksum(path)) != checksums.get(file):
            found.append((path, "differs from its checksum in the manifest"))
    if cache:
        cache.save()
    return found


def find_problems(prepared: PreparedSet) -> Iterator[tuple[Path, str]]:
    """Yield every altered file and every invalid label of a set, with what is wrong; reads all of it."""
    for name in prepared.sites:
        yield from find_altered(prepared, name)
        try:
            open_labels(prepared.site(name)).check()
        except FealError as error:
            yield prepared.root / name, str(error)


class _ChecksumCache:
    def __init__(self, root: Path, site: str) -> None:
        self._folder, root = root / site, root.resolve()
        digest = hashlib.blake2b(os.fsencode(root), digest_size=8).hexdigest()
        folders = (root.with_name(f".{root.name}.checked"), user_cache() / "checked" / digest)
        self._paths = [folder / f"{site}.json" for folder in folders]
        self._known: dict[str, tuple[int, int, str]] = {}
        self._is_changed = False
        for path in reversed(self._paths):
            with suppress(OSError, ValueError):  # missing or damaged
                self._known = _CACHE.validate_json(path.read_bytes()) or self._known

    def checksum(self, file: str) -> str:
        """Return the SHA-256 of a file; reads the file only if it changed since it was cached."""
        # The state is taken before the file is read, so that a change meanwhile is detected next time.
        stat = (self._folder / file).stat()
        now = (stat.st_size, stat.st_mtime_ns)
        if self._known.get(file, ())[:2] != now:
            self._known[file] = (*now, compute_checksum(self._folder / file))
            self._is_changed = True
        return self._known[file][2]

    def save(self) -> None:
        """Write the cache to the first path that can be written."""
        for path in self._paths if self._is_changed else ():
            with suppress(FealError):
                write_json(path, self._known)
                return
