"""Store decoded samples on disk while a data set is prepared, so that another attempt continues from there."""

import hashlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feal.data.arrays import ArrayWriter, count_rows
from feal.data.manifest import MANIFEST_FILE
from feal.data.prepare.base import DatasetSource, DecodedSample, Finding, SourceRecord, find_stored_side
from feal.data.prepare.duplicates import THUMBNAIL, StoredSample
from feal.data.prepared import IMAGE_FILE, LABEL_FILE, NO_LABEL
from feal.data.writer import OtherSetError
from feal.errors import FealError
from feal.fileio import lock_directory, read_json, write_error, write_text

Fingerprinted = tuple[DecodedSample, int, NDArray[np.uint8]]
"""A decoded sample with a contiguous image, and the hash and the thumbnail of that."""


@dataclass(frozen=True)
class Chunk:
    """A few records of a site, whose samples are stored together."""

    site: str
    records: Sequence[SourceRecord]
    index: Path
    """The index of its samples, which is written last: it exists if the chunk is stored."""


class SampleStore:
    """Arrays of each site as in a prepared folder, to which chunks are appended, and an index of each chunk.

    The set takes the arrays as they are, so that pixels are written once.
    """

    def __init__(self, folder: Path, dataset: DatasetSource, *, size: int) -> None:
        self._folder = folder
        self._no_label = NO_LABEL[dataset.task]
        side = find_stored_side(dataset, size)
        is_class = dataset.task == "classification"
        self._forms: dict[str, tuple[tuple[int, ...], str]] = {
            IMAGE_FILE: ((dataset.channels, side, side), dataset.dtype),
            LABEL_FILE: ((), "int16") if is_class else ((side, side), "uint8"),
        }
        self._rows: Counter[str] = Counter()
        """The number of rows of each site up to the last one that an index refers to."""

    def load(self, chunk: Chunk) -> tuple[list[StoredSample], list[Finding]]:
        """Return the samples of a stored chunk, and findings about its records.

        Raises:
            FealError: the arrays lack some of the samples.
        """
        content = read_json(chunk.index)
        samples = []
        for row, entry in enumerate(content["entries"], start=content["row"]):
            thumbnail = np.frombuffer(bytes.fromhex(entry.pop("thumbnail")), np.uint8)
            entry["record"] = chunk.records[entry["record"]]
            samples.append(StoredSample(**entry, thumbnail=thumbnail.reshape(THUMBNAIL, THUMBNAIL), row=row))
        end = content["row"] + len(samples)
        for name, (form, dtype) in self._forms.items():
            path = self._folder / chunk.site / name
            if count_rows(path, row=form, dtype=dtype) < end:
                raise FealError(f"{path} is damaged: remove {self._folder} and repeat the command.")
        self._rows[chunk.site] = max(self._rows[chunk.site], end)
        return samples, [Finding(**one) for one in content["findings"]]

    def append(
        self, chunk: Chunk, results: Iterable[Sequence[Fingerprinted] | Finding]
    ) -> tuple[list[StoredSample], list[Finding]]:
        """Store the samples, or the finding, of each record of a chunk as they come; return the same as `load`."""
        start, folder = self._rows[chunk.site], self._folder / chunk.site
        entries: list[dict[str, Any]] = []
        findings: list[dict[str, str]] = []
        try:
            folder.mkdir(exist_ok=True)
            with (
                self._open(folder / IMAGE_FILE, start) as images,
                self._open(folder / LABEL_FILE, start) as labels,
            ):
                for number, result in enumerate(results):
                    if isinstance(result, Finding):
                        findings.append(asdict(result))
                        continue
                    for sample, hashed, thumbnail in result:
                        is_labelled, shown = sample.label is not None, thumbnail.tobytes().hex()
                        label: NDArray[Any] = np.asarray(sample.label if is_labelled else self._no_label)
                        images.append(sample.image[None])
                        labels.append(np.broadcast_to(label, labels.row)[None])
                        entry = {"record": number, "id": sample.id, "labelled": is_labelled}
                        entries.append({**entry, "hash": hashed, "thumbnail": shown})
        except OSError as error:
            raise write_error(folder, error) from error
        write_text(chunk.index, json.dumps({"row": start, "entries": entries, "findings": findings}))
        return self.load(chunk)

    def digest(self, sample: StoredSample) -> str:
        """Compute the digest of a sample's pixels."""
        images = np.load(self._folder / sample.record.site / IMAGE_FILE, mmap_mode="r")
        return hashlib.sha256(images[sample.row].data).hexdigest()

    def select(self, site: str, rows: Sequence[int]) -> Path:
        """Return a folder with arrays of a site that hold exactly these rows, in this order.

        That is the site's own folder, or one of copies if the site has other rows of former attempts.
        """
        folder = self._folder / site
        selected = folder / "selected"
        try:
            for name in self._forms:
                self._open(folder / name, self._rows[site]).close()  # drops what an interrupted chunk left
            if list(rows) == list(range(self._rows[site])):
                return folder
            selected.mkdir(exist_ok=True)
            for name in self._forms:
                stored = np.load(folder / name, mmap_mode="r")
                with self._open(selected / name, 0) as writer:
                    for row in rows:
                        writer.append(stored[row : row + 1])
        except OSError as error:
            raise write_error(folder, error) from error
        return selected

    def _open(self, path: Path, keep: int) -> ArrayWriter:
        row, dtype = self._forms[path.name]
        return ArrayWriter(path, row=row, dtype=dtype, keep=keep)


@contextmanager
def open_work_folder(to: Path) -> Iterator[Path]:
    """Create and lock the folder beside the set that stores decoded samples."""
    work = to.with_name(f".{to.name}.work")
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(work, error) from error
    with lock_directory(work):
        try:
            yield work
        except OtherSetError:
            shutil.rmtree(work, ignore_errors=True)
            raise
        finally:
            if not has_samples(work):
                shutil.rmtree(work, ignore_errors=True)


def has_samples(work: Path) -> bool:
    """Return whether a folder stores any chunk."""
    return any(work.glob("*.json"))


def remove_leftovers(to: Path, work: Path, chunks: Sequence[Chunk]) -> None:
    """Remove incomplete sets of killed runs, and what was stored of files that have changed since.

    A complete set shares its files with what was stored for it, which is therefore not continued.
    """
    partial_set = re.compile(re.escape(f".{to.name}.") + r"[0-9a-f]{32}\.partial")
    for path in to.parent.iterdir():
        if partial_set.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)
    parts = [] if (to / MANIFEST_FILE).is_file() else chunks
    wanted = {".lock", *(name for chunk in parts for name in (chunk.site, chunk.index.name))}
    for path in work.iterdir():
        if path.name not in wanted:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
