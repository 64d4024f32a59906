"""Which files of a prepared set were found to be as prepared: large arrays are read for it once."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from feal.data.places import user_cache
from feal.data.prepared import PreparedSet, altered_files, check_files, file_checksum
from feal.errors import FealError
from feal.files import write_json


def check_once(prepared: PreparedSet, site: str) -> None:
    """Raise a `FealError` if a file of a site is missing or differs from its checksum in the manifest.

    A file that was read is noted with its size and the time of its last change; as long as it has these, its
    checksum is known. The notes lie beside the set, or in the user's cache where that cannot be written; where
    neither can, every call reads all files.
    """
    notes = _Notes(prepared.root, site)
    check_files(prepared, site, checksum=notes.checksum)
    notes.keep()


def altered_once(prepared: PreparedSet, site: str) -> list[Path]:
    """A site's files that are missing or differ from their checksums, found as `check_once` does."""
    notes = _Notes(prepared.root, site)
    found = list(altered_files(prepared, site, checksum=notes.checksum))
    notes.keep()
    return found


class _Notes:
    """Size, time of last change and checksum of each of a site's files, as they were when they were read."""

    def __init__(self, root: Path, site: str) -> None:
        self._folder = root / site
        self._places = _places(root.resolve(), site)
        self._known = next((known for known in map(_read, self._places) if known), {})
        self._new = False

    def checksum(self, path: Path) -> str:
        """The SHA-256 of a file, which is read only if it is not known as it is now."""
        # Before it is read: what changes meanwhile must not pass for what was read.
        stat, name = path.stat(), path.relative_to(self._folder).as_posix()
        now = [stat.st_size, stat.st_mtime_ns]
        if self._known.get(name, [])[:2] != now:
            self._known[name] = [*now, file_checksum(path)]
            self._new = True
        return str(self._known[name][2])

    def keep(self) -> None:
        """Note what was read, at the first place that can be written."""
        for place in self._places if self._new else ():
            with suppress(FealError):
                write_json(place, self._known)
                return


def _places(root: Path, site: str) -> tuple[Path, Path]:
    named = hashlib.blake2b(os.fsencode(root), digest_size=8).hexdigest()
    beside = root.with_name(f".{root.name}.checked")
    return beside / f"{site}.json", user_cache() / "checked" / named / f"{site}.json"


def _read(path: Path) -> dict[str, list[object]]:
    """Notes that were kept; none if they are missing or damaged."""
    try:
        content = json.loads(path.read_text())
        whole = isinstance(content, dict) and all(
            isinstance(note, list) and len(note) == 3 for note in content.values()
        )
    except (OSError, ValueError):
        return {}
    return content if whole else {}
