"""Decode a download in chunks, which stay on disk until the set is written."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feal.data.arrays import ArrayWriter, StoredArray
from feal.data.prepare.base import (
    DatasetSource,
    DecodedSample,
    Finding,
    SourceRecord,
    UnusableFileError,
    is_valid_id,
    relative_name,
)
from feal.data.prepare.duplicates import THUMBNAIL, fingerprint_image
from feal.data.prepare.plugin_check import read_record
from feal.data.prepared import NO_LABEL
from feal.errors import FealError
from feal.fileio import read_json, write_error, write_text
from feal.plugins import load_file, own_file, source_digest
from feal.processes import WorkerDiedError, run_tasks

_FORMAT = 2
_BYTES = 8 * 2**20
_RECORDS = 256

_PARALLEL_SECONDS = 15.0
"""Estimated decoding time from which starting worker processes, which import much, pays off."""

_DIGEST_NAMES = {"ImageFolder": "OwnPictures"}
"""Former names of classes, so that digests of sets prepared before stay valid."""


@dataclass(frozen=True, kw_only=True)
class ChunkEntry:
    """One decoded sample of a chunk, without its pixels."""

    record: int
    """The number of its record in the chunk."""
    id: str
    labelled: bool
    digest: str
    """The digest of its pixels."""
    hash: int


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A few records, and where their decoded samples are stored."""

    records: tuple[SourceRecord, ...]
    place: Path

    @property
    def index(self) -> Path:
        """Return the path of the index file, which is written last: it exists if the chunk is complete."""
        return self.place.with_suffix(".json")

    def part(self, name: str) -> Path:
        """Return the path of an array."""
        return self.place.with_suffix(f".{name}.npy")

    def is_decoded(self) -> bool:
        """Return whether the chunk is decoded."""
        return self.index.is_file()

    def read(self) -> tuple[list[ChunkEntry], list[Finding]]:
        """Read the entries and the findings of a decoded chunk."""
        content = read_json(self.index)
        entries = [ChunkEntry(**entry) for entry in content["entries"]]
        return entries, [Finding(**finding) for finding in content["findings"]]

    def array(self, name: str, dataset: DatasetSource, *, size: int) -> NDArray[Any]:
        """Memory-map `images`, `labels` or `thumbnails` of a decoded chunk that holds a sample."""
        row, dtype = _rows(dataset, size)[name]
        samples = len(read_json(self.index)["entries"])
        return StoredArray(self.part(name), shape=(samples, *row), kinds=(dtype,)).array


def plan_chunks(dataset: DatasetSource, records: Sequence[SourceRecord], *, size: int, work: Path) -> list[Chunk]:
    """Divide records into chunks of a few megabytes, named by everything that affects their result."""
    row = dataset.channels * size * size * np.dtype(dataset.dtype).itemsize
    step = max(1, min(_RECORDS, _BYTES // row))
    made = source_identity(dataset)
    found = []
    for start in range(0, len(records), step):
        part = tuple(records[start : start + step])
        key = short_digest([_FORMAT, made, size, [record_identity(record, times=True) for record in part]])
        found.append(Chunk(records=part, place=work / f"{start // step:06}-{key}"))
    return found


def decode_chunk(dataset: DatasetSource, chunk: Chunk, *, size: int, folder: Path) -> None:
    """Decode a chunk to disk, one record at a time; an unusable record becomes a finding."""
    entries: list[ChunkEntry] = []
    findings: list[Finding] = []
    with _writing(chunk), ExitStack() as files:
        chunk.place.parent.mkdir(parents=True, exist_ok=True)
        writers = {
            name: files.enter_context(ArrayWriter(chunk.part(name), row=row, dtype=dtype))
            for name, (row, dtype) in _rows(dataset, size).items()
        }
        for number, record in enumerate(chunk.records):
            try:
                samples = [
                    _check_sample(dataset, sample, size) for sample in read_record(dataset, record, size=size)
                ]
            except UnusableFileError as error:
                findings.append(
                    Finding(file=relative_name(error.file or record.image, folder), problem=str(error))
                )
                continue
            for sample in samples:
                entries.append(_keep(dataset, sample, number, writers))
    content = {"entries": [asdict(entry) for entry in entries], "findings": [asdict(one) for one in findings]}
    write_text(chunk.index, json.dumps(content))


@contextmanager
def _writing(chunk: Chunk) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        for path in chunk.place.parent.glob(f"{chunk.place.name}.*.npy"):
            path.unlink(missing_ok=True)  # free the space of an incomplete chunk on a full disk
        raise write_error(chunk.place, error) from error


def source_identity(dataset: DatasetSource) -> list[object]:
    """Return what of a source affects its samples: version, options, and its code if it is a user's file."""
    kind = type(dataset)
    text = source_digest(kind) or ""
    return [
        dataset.name,
        dataset.version,
        _DIGEST_NAMES.get(kind.__qualname__, kind.__qualname__),
        text,
        repr(sorted(vars(dataset).items())),
    ]


def record_identity(record: SourceRecord, *, times: bool) -> list[object]:
    """Return what of a record affects its samples; `times` detects edited files of the same size."""
    files = [_stamp(path, times=times) for path in (record.image, record.mask) if path is not None]
    label = None if record.label is None else int(record.label)
    return [record.site, record.id, label, files]


def short_digest(content: object) -> str:
    """Return a short digest of JSON content."""
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=12).hexdigest()


def _stamp(path: Path, *, times: bool) -> list[object]:
    try:
        stat = path.stat()
    except OSError:
        return [path.name, None]
    return [str(path), stat.st_size, stat.st_mtime_ns] if times else [path.name, stat.st_size]


def _rows(dataset: DatasetSource, size: int) -> Mapping[str, tuple[tuple[int, ...], str]]:
    labels = dataset.task == "classification"
    return {
        "images": ((dataset.channels, size, size), dataset.dtype),
        "labels": ((), "int16") if labels else ((size, size), "uint8"),
        "thumbnails": ((THUMBNAIL, THUMBNAIL), "uint8"),
    }


def _keep(
    dataset: DatasetSource, sample: DecodedSample, record: int, writers: Mapping[str, ArrayWriter]
) -> ChunkEntry:
    image = np.ascontiguousarray(sample.image)
    hashed, thumbnail = fingerprint_image(image)
    label: NDArray[Any] = np.asarray(NO_LABEL[dataset.task] if sample.label is None else sample.label)
    writers["images"].append(image[None])
    writers["labels"].append(np.broadcast_to(label, writers["labels"].row)[None])
    writers["thumbnails"].append(thumbnail[None])
    return ChunkEntry(
        record=record,
        id=sample.id,
        labelled=sample.label is not None,
        digest=hashlib.blake2b(image.data, digest_size=16).hexdigest(),
        hash=hashed,
    )


def _check_sample(dataset: DatasetSource, sample: DecodedSample, size: int) -> DecodedSample:
    """Return the sample if it matches the data set's declaration; otherwise raise an `UnusableFileError`."""
    if not isinstance(sample.id, str) or not is_valid_id(sample.id):
        raise UnusableFileError(f"gives the id {sample.id!r}, which is not 1 to 400 printable characters")
    shape, classes = (dataset.channels, size, size), len(dataset.classes)
    if sample.image.shape != shape or sample.image.dtype != np.dtype(dataset.dtype):
        raise UnusableFileError(
            f"was read as {sample.image.dtype} {sample.image.shape}, not {dataset.dtype} {shape}"
        )
    if sample.image.dtype.kind == "f" and not np.isfinite(sample.image).all():
        raise UnusableFileError("has a pixel that is not a finite number")
    if sample.label is None:
        return sample
    label = np.asarray(sample.label)
    if label.shape != (() if dataset.task == "classification" else (size, size)):
        raise UnusableFileError(f"has a label or mask of shape {label.shape}")
    if label.dtype.kind not in "iub":
        raise UnusableFileError(f"has a label or mask of {label.dtype}, not of whole numbers")
    low, high = int(label.min()), int(label.max())
    if low < 0 or high >= classes:
        wrong = low if low < 0 else high
        raise UnusableFileError(f"has the class {wrong}, but the {classes} classes are 0 to {classes - 1}")
    return sample


def decode_chunks(
    dataset: DatasetSource, chunks: Sequence[Chunk], *, size: int, folder: Path, processes: int
) -> Iterator[Chunk]:
    """Decode the chunks that are not decoded yet, and yield every chunk in order.

    Worker processes write the pixels to disk themselves; they are never sent between processes.

    Raises:
        FealError: a process died.
    """
    todo = [chunk for chunk in chunks if not chunk.is_decoded()]
    if processes <= 1 or not _pays_off(dataset, todo, size=size, folder=folder):
        for chunk in chunks:
            if not chunk.is_decoded():
                decode_chunk(dataset, chunk, size=size, folder=folder)
            yield chunk
        return
    plugin = own_file(type(dataset))
    results = run_tasks(
        [chunk for chunk in chunks if not chunk.is_decoded()],
        partial(decode_chunk, dataset, size=size, folder=folder),
        processes=processes,
        initialize=partial(load_file, plugin, kind="data set") if plugin is not None else None,
    )
    with closing(results):
        for chunk in chunks:
            while not chunk.is_decoded() and (ended := next(results, None)) is not None:
                if isinstance(ended[1], WorkerDiedError):
                    raise FealError(
                        "A process that decodes images died, possibly because memory ran out: repeat the command "
                        "with fewer --processes; what is decoded already is kept."
                    ) from ended[1]
                if ended[1] is not None:
                    raise ended[1]
            yield chunk


def _pays_off(dataset: DatasetSource, todo: Sequence[Chunk], *, size: int, folder: Path) -> bool:
    """Return whether worker processes pay off, judged by the time that the first chunk takes in this process."""
    if len(todo) < 2:
        return False
    start = time.perf_counter()
    decode_chunk(dataset, todo[0], size=size, folder=folder)
    return (time.perf_counter() - start) * (len(todo) - 1) >= _PARALLEL_SECONDS
