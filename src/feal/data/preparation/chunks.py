"""Chunks of a download, decoded and kept on disk until the set is written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feal.classes import source_digest
from feal.data.arrays import ArrayWriter, StoredArray
from feal.data.preparation.contract import Download, Draft, Finding, Piece, UnfitError
from feal.data.preparation.findings import is_possible, named
from feal.data.preparation.likeness import THUMB, looks
from feal.data.preparation.reading import read
from feal.data.truth import UNKNOWN
from feal.files import read_json, unwritable, write_text

_FORMAT = 1
_BYTES = 8 * 2**20
_DRAFTS = 256


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One decoded sample of a chunk, without its pixels."""

    draft: int
    """Number of its draft in the chunk."""
    id: str
    labelled: bool
    digest: str
    """Of its pixels."""
    hash: int


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Some drafts, and where what is decoded of them is kept."""

    drafts: tuple[Draft, ...]
    place: Path

    @property
    def record(self) -> Path:
        """Written last: there if the chunk is whole."""
        return self.place.with_suffix(".json")

    def part(self, name: str) -> Path:
        """The array of that name."""
        return self.place.with_suffix(f".{name}.npy")

    def done(self) -> bool:
        """Whether it was decoded already."""
        return self.record.is_file()

    def read(self) -> tuple[list[Entry], list[Finding]]:
        """The samples and the findings of a decoded chunk."""
        content = read_json(self.record)
        entries = [Entry(**entry) for entry in content["entries"]]
        return entries, [Finding(**finding) for finding in content["findings"]]

    def array(self, name: str, download: Download, *, size: int) -> NDArray[Any]:
        """`images`, `truth` or `thumbs` of a decoded chunk that holds a sample, mapped into memory."""
        row, dtype = _rows(download, size)[name]
        samples = len(read_json(self.record)["entries"])
        return StoredArray(self.part(name), shape=(samples, *row), kinds=(dtype,)).array


def chunks(download: Download, drafts: Sequence[Draft], *, size: int, work: Path) -> list[Chunk]:
    """Drafts in chunks of a few megabytes, named by whatever decides what comes of them."""
    row = download.channels * size * size * np.dtype(download.dtype).itemsize
    step = max(1, min(_DRAFTS, _BYTES // row))
    made = identity(download)
    found = []
    for start in range(0, len(drafts), step):
        part = tuple(drafts[start : start + step])
        key = digest([_FORMAT, made, size, [inputs(draft, times=True) for draft in part]])
        found.append(Chunk(drafts=part, place=work / f"{start // step:06}-{key}"))
    return found


def decode(download: Download, chunk: Chunk, *, size: int, folder: Path) -> None:
    """Decode a chunk and keep it; an unfit draft becomes a finding. Only one draft at a time is in memory."""
    entries: list[Entry] = []
    findings: list[Finding] = []
    with _writing(chunk), ExitStack() as files:
        chunk.place.parent.mkdir(parents=True, exist_ok=True)
        writers = {
            name: files.enter_context(ArrayWriter(chunk.part(name), row=row, dtype=dtype))
            for name, (row, dtype) in _rows(download, size).items()
        }
        for number, draft in enumerate(chunk.drafts):
            try:
                pieces = [_checked(download, piece, size) for piece in read(download, draft, size=size)]
            except UnfitError as error:
                findings.append(Finding(file=named(error.file or draft.image, folder), problem=str(error)))
                continue
            for piece in pieces:
                entries.append(_keep(download, piece, number, writers))
    content = {"entries": [asdict(entry) for entry in entries], "findings": [asdict(one) for one in findings]}
    write_text(chunk.record, json.dumps(content))


@contextmanager
def _writing(chunk: Chunk) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        for path in chunk.place.parent.glob(f"{chunk.place.name}.*.npy"):
            path.unlink(missing_ok=True)  # a disk that is full has no room for half a chunk
        raise unwritable(chunk.place, error) from error


def identity(download: Download) -> list[object]:
    """What of a reader decides what is read: its version, its options, its source if it is the user's."""
    kind = type(download)
    text = source_digest(kind) or ""
    return [download.name, download.version, kind.__qualname__, text, repr(sorted(vars(download).items()))]


def inputs(draft: Draft, *, times: bool) -> list[object]:
    """What of a draft and its files decides what is read; `times` tells an edited file of the same size apart."""
    files = [_stamp(path, times=times) for path in (draft.image, draft.mask) if path is not None]
    label = None if draft.label is None else int(draft.label)
    return [draft.site, draft.id, label, files]


def digest(content: object) -> str:
    """A short name for JSON content."""
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=12).hexdigest()


def _stamp(path: Path, *, times: bool) -> list[object]:
    try:
        stat = path.stat()
    except OSError:
        return [path.name, None]
    return [str(path), stat.st_size, stat.st_mtime_ns] if times else [path.name, stat.st_size]


def _rows(download: Download, size: int) -> Mapping[str, tuple[tuple[int, ...], str]]:
    labels = download.task == "classification"
    return {
        "images": ((download.channels, size, size), download.dtype),
        "truth": ((), "int16") if labels else ((size, size), "uint8"),
        "thumbs": ((THUMB, THUMB), "uint8"),
    }


def _keep(download: Download, piece: Piece, draft: int, writers: Mapping[str, ArrayWriter]) -> Entry:
    image = np.ascontiguousarray(piece.image)
    hashed, thumb = looks(image)
    truth: NDArray[Any] = np.asarray(UNKNOWN[download.task] if piece.truth is None else piece.truth)
    writers["images"].append(image[None])
    writers["truth"].append(np.broadcast_to(truth, writers["truth"].row)[None])
    writers["thumbs"].append(thumb[None])
    return Entry(
        draft=draft,
        id=piece.id,
        labelled=piece.truth is not None,
        digest=hashlib.blake2b(image.data, digest_size=16).hexdigest(),
        hash=hashed,
    )


def _checked(download: Download, piece: Piece, size: int) -> Piece:
    """The piece, if it is what the reader promised; otherwise an `UnfitError`."""
    if not isinstance(piece.id, str) or not is_possible(piece.id):
        raise UnfitError(f"gives the id {piece.id!r}, which is not 1 to 400 printable characters")
    shape, classes = (download.channels, size, size), len(download.classes)
    if piece.image.shape != shape or piece.image.dtype != np.dtype(download.dtype):
        raise UnfitError(f"was read as {piece.image.dtype} {piece.image.shape}, not {download.dtype} {shape}")
    if piece.image.dtype.kind == "f" and not np.isfinite(piece.image).all():
        raise UnfitError("has a pixel that is not a finite number")
    if piece.truth is None:
        return piece
    truth = np.asarray(piece.truth)
    if truth.shape != (() if download.task == "classification" else (size, size)):
        raise UnfitError(f"has a label or mask of shape {truth.shape}")
    if truth.dtype.kind not in "iub":
        raise UnfitError(f"has a label or mask of {truth.dtype}, not of whole numbers")
    low, high = int(truth.min()), int(truth.max())
    if low < 0 or high >= classes:
        wrong = low if low < 0 else high
        raise UnfitError(f"has the class {wrong}, but the {classes} classes are 0 to {classes - 1}")
    return piece
