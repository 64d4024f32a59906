"""Verify prepared data sets: checksums of their files, validity of their labels, samples per class."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from feal.data.arrays import REPAIR
from feal.data.labels import NO_LABEL, open_labels
from feal.data.prepared import IMAGES, LABELS, PreparedSet, PreparedSite, open_prepared
from feal.data.samples import COLUMNS, FOLDER, SPLITS
from feal.errors import FealError
from feal.fileio import user_cache, write_json

Checksum = Callable[[Path], str]
"""A function that returns the SHA-256 of a file."""


def verify(root: Path | str) -> None:
    """Read every file of a prepared set and compare it with its checksum in the manifest.

    Raises:
        FealError: a file is missing or differs, or the set cannot be opened.
    """
    prepared = open_prepared(root)
    for name in prepared.sites:
        prepared.site(name)
        check_files(prepared, name)


def compute_checksum(path: Path) -> str:
    """Compute the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_files(
    prepared: PreparedSet, site: str, *, only: str | None = None, checksum: Checksum = compute_checksum
) -> None:
    """Raise a `FealError` if a file of a site (or `only` that one) is missing or differs from its checksum."""
    for path in find_altered(prepared, site, only=only, checksum=checksum):
        raise FealError(
            f"The file {path} is not the one that was prepared (missing, or its checksum differs): {REPAIR}."
        )


def find_altered(
    prepared: PreparedSet, site: str, *, only: str | None = None, checksum: Checksum = compute_checksum
) -> Iterator[Path]:
    """Yield the files of a site (or `only` that one) that are missing or differ from their checksum."""
    checksums = prepared.manifest.sites[site].checksums
    expected = (IMAGES, LABELS, *(f"{FOLDER}/{name}.npy" for name in COLUMNS))
    for file in sorted({*expected, *checksums} if only is None else {only}):
        path = prepared.root / site / file
        if not path.is_file() or checksum(path) != checksums.get(file):
            yield path


def find_problems(prepared: PreparedSet) -> Iterator[tuple[Path, str]]:
    """Yield every altered file and every invalid label of a set, with what is wrong; reads all of it."""
    for name in prepared.sites:
        for path in find_altered(prepared, name):
            yield path, describe_alteration(path)
        try:
            open_labels(prepared.site(name)).check()
        except FealError as error:
            yield prepared.root / name, str(error)


def describe_alteration(path: Path) -> str:
    """Return what is wrong with an altered file."""
    return "differs from its checksum in the manifest" if path.is_file() else "is missing"


def count_classes(site: PreparedSite) -> Mapping[str, NDArray[np.int64]]:
    """Count by split the samples of each class (or whose mask shows it), and last the unlabelled: int64 [C + 1].

    Labels are read a few megabytes at a time.
    """
    labels, classes = open_labels(site), len(site.classes)
    split_of_row = np.zeros(len(site), dtype=np.int64)
    split_of_row[site.rows(site.ids("test"))] = SPLITS.index("test")
    counts = np.zeros((len(SPLITS), classes + 1), dtype=np.int64)
    numbers = np.array([*range(classes), NO_LABEL[site.task]])
    for rows, values in labels.read_chunks():
        flat = values.reshape(len(rows), -1)
        shown = np.stack([(flat == number).any(axis=1) for number in numbers], axis=1)
        for split in range(len(SPLITS)):
            counts[split] += shown[split_of_row[rows] == split].sum(axis=0)
    return dict(zip(SPLITS, counts, strict=True))


def check_once(prepared: PreparedSet, site: str) -> None:
    """Raise a `FealError` if a file of a site is missing or differs, but read only files changed since last time.

    The checksum of a file is cached with its size and modification time, beside the set or in the user's cache
    where the set is read-only; where neither can be written, every call reads all files.
    """
    cache = _ChecksumCache(prepared.root, site)
    check_files(prepared, site, checksum=cache.checksum)
    cache.save()


def find_altered_once(prepared: PreparedSet, site: str) -> list[Path]:
    """Return the altered files of a site, with checksums cached as in `check_once`."""
    cache = _ChecksumCache(prepared.root, site)
    found = list(find_altered(prepared, site, checksum=cache.checksum))
    cache.save()
    return found


class _ChecksumCache:
    """Size, modification time and checksum of each file of a site when it was last read."""

    def __init__(self, root: Path, site: str) -> None:
        self._folder = root / site
        self._paths = _cache_paths(root.resolve(), site)
        self._known = next((known for known in map(_read_cache, self._paths) if known), {})
        self._changed = False

    def checksum(self, path: Path) -> str:
        """Return the SHA-256 of a file; reads the file only if it changed since it was cached."""
        # The state is taken before the file is read, so that a change meanwhile is detected next time.
        stat, name = path.stat(), path.relative_to(self._folder).as_posix()
        now = [stat.st_size, stat.st_mtime_ns]
        if self._known.get(name, [])[:2] != now:
            self._known[name] = [*now, compute_checksum(path)]
            self._changed = True
        return str(self._known[name][2])

    def save(self) -> None:
        """Write the cache to the first path that can be written."""
        for path in self._paths if self._changed else ():
            with suppress(FealError):
                write_json(path, self._known)
                return


def _cache_paths(root: Path, site: str) -> tuple[Path, Path]:
    name = hashlib.blake2b(os.fsencode(root), digest_size=8).hexdigest()
    beside = root.with_name(f".{root.name}.checked")
    return beside / f"{site}.json", user_cache() / "checked" / name / f"{site}.json"


def _read_cache(path: Path) -> dict[str, list[object]]:
    """Read a cache; empty if it is missing or damaged."""
    try:
        content = json.loads(path.read_text())
        whole = isinstance(content, dict) and all(
            isinstance(entry, list) and len(entry) == 3 for entry in content.values()
        )
    except (OSError, ValueError):
        return {}
    return content if whole else {}
