"""Prepare a data set from a download: scan, check, decode in chunks, compare, split and write."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feal.data.arrays import ArrayWriter
from feal.data.manifest import MANIFEST_FILE, read_manifest
from feal.data.prepare import base
from feal.data.prepare import duplicates as compare
from feal.data.prepare.base import DatasetSource, Finding, SourceRecord, SplitRule, UnusableFileError
from feal.data.prepare.duplicates import StoredSample
from feal.data.prepared import NO_LABEL
from feal.data.verify import verify
from feal.data.writer import OtherSetError, PreparedWriter, check_target, other_set_error
from feal.errors import FealError
from feal.fileio import lock_directory, read_json, write_error, write_json, write_text
from feal.plugins import load_file, own_file, source_digest
from feal.processes import WorkerDiedError, count_cores, run_tasks

Progress = Callable[[str, int, int], None]
"""A callback that receives the current step, how much of it is done, and how much there is."""

_SET_FORMAT = 3
"""Raise it when the same decoded images give another split or another set."""
_CHUNK_FORMAT = 2
"""Raise it when the same files give other chunks."""
_STAMP = "prepared-from.json"
"""A file beside the manifest that identifies the files from which the set was made."""
_CHUNK_BYTES = 8 * 2**20
_CHUNK_RECORDS = 256
_LISTED_LEAKS = 100
_PARALLEL_SECONDS = 15.0
"""Estimated decoding time from which starting worker processes, which import much, pays off."""
_DIGEST_NAMES = {"ImageFolder": "OwnPictures"}
"""Former names of classes, so that digests of sets prepared before stay valid."""


@dataclass(frozen=True, kw_only=True)
class PreparationResult:
    """A prepared set, and notes for the user about it."""

    root: Path
    fresh: bool
    """Whether it was prepared now rather than found."""
    source: dict[str, Any]
    """The manifest's `source`: left_out, absent, remarks, repeats, leaks, leaks_found, split_rule, split."""


def prepare_dataset(
    dataset: DatasetSource,
    folder: Path,
    to: Path,
    *,
    size: int | None = None,
    split: SplitRule | None = None,
    processes: int | None = None,
    skip_bad: bool = False,
    progress: Progress = lambda *_: None,
) -> PreparationResult:
    """Check a download and write it as a prepared data set; the bytes do not depend on the number of processes.

    The samples are split by the rule `split`, or by the data set's own if it is None. Decoded samples stay beside
    `to` until the set is complete, so that another attempt continues from there.

    Raises:
        FindingsError: some files cannot be used; lists all of them, and `skip_bad` continues without them.
        FealError: the folder does not hold this data set, `to` holds something else (another split counts) or
            cannot be written, or a process died.
    """
    folder, to = folder.resolve(), to.resolve()
    if not folder.is_dir():
        raise FealError(f"There is no folder {folder}: name the one that holds the download.")
    if to.is_relative_to(folder):
        raise FealError(f"{to} is inside the download {folder}: choose a folder outside of it by --to.")
    job = _Job(dataset, folder, to, size or dataset.size, split or dataset.split, progress)
    known = job.find_prepared_source(skip_bad=skip_bad)
    if known is not None:
        return PreparationResult(root=to, fresh=False, source=known)
    with _work_folder(to) as work:
        return job.run(work, processes=processes or count_cores(), skip_bad=skip_bad)


class _Job:
    """The preparation of one download, which is scanned at once."""

    def __init__(
        self, dataset: DatasetSource, folder: Path, to: Path, size: int, rule: SplitRule, progress: Progress
    ) -> None:
        self.dataset, self.folder, self.to, self.size, self.progress = dataset, folder, to, size, progress
        self.rule, self.side = rule, base.find_stored_side(dataset, size)
        self.scan = base.scan_source(dataset, folder)
        # Sorted by site and id, so that the order of a folder or a table does not matter.
        ordered = sorted(self.scan.records, key=lambda record: (record.site, record.id, str(record.image)))
        if rule == "8:2":
            ordered = [replace(record, split=None) for record in ordered]
        self.records, findings = base.check_records(ordered, folder, known=self.scan.findings)
        self.findings = sorted({*self.scan.findings, *findings})
        # Computed before decoding: a file that changes meanwhile is not the one that was prepared.
        self.inputs = self._identify_inputs(times=False)
        """The digest of the files' names and sizes and of the scan's findings; stored in the manifest."""
        self.stamp = self._identify_inputs(times=True)
        """The same with absolute paths and modification times, which are valid on this machine only."""
        self.facts: dict[str, Any] = {
            "name": dataset.name,
            "task": dataset.task,
            "classes": tuple(dataset.classes),
            "channels": dataset.channels,
            "height": self.side,
            "width": self.side,
            "dtype": dataset.dtype,
            "regions": dict(dataset.regions),
            "fitting": dataset.fitting,
        }

    def _identify_inputs(self, *, times: bool) -> str:
        files = [[*_identify_record(record, times=times), record.group, record.split] for record in self.records]
        notes = [list(map(asdict, self.findings)), sorted(self.scan.absent), list(self.scan.remarks)]
        return _digest([_SET_FORMAT, _identify_source(self.dataset), self.size, files, notes])

    def find_prepared_source(self, *, skip_bad: bool) -> dict[str, Any] | None:
        """Return the `source` of the set at `to` if it was made from exactly these files."""
        check_target(self.to, **self.facts)
        if not (self.to / MANIFEST_FILE).is_file():
            return None
        content = dict(read_manifest(self.to)[0].source)
        other = content.get("split_rule", self.rule)
        if content.get("download") == self.dataset.name and other != self.rule:
            raise OtherSetError(
                f"{self.to} holds {self.dataset.name} with the split {other}, not {self.rule}: choose another "
                f"folder by --to, or add --split {other} to use this one."
            )
        if content.get("inputs") != self.inputs:
            raise other_set_error(self.to)
        verify(self.to)
        if not (self.to / _STAMP).is_file() or read_json(self.to / _STAMP) != {"inputs": self.stamp}:
            return None
        if content["left_out"] and not skip_bad:
            raise base.findings_error(self.folder, [Finding(**one) for one in content["left_out"]])
        return content

    def run(self, work: Path, *, processes: int, skip_bad: bool) -> PreparationResult:
        """Prepare the set; decoded samples are stored in `work`."""
        chunks = self._plan_chunks(work)
        _sweep(self.to, work, chunks)
        self._decode(chunks, processes)
        samples, found = self._gather_samples(chunks)
        left_out = sorted({*self.findings, *found})
        if left_out and not skip_bad:
            raise base.findings_error(self.folder, left_out, kept=work if _has_samples(work) else None)
        if not samples:
            raise FealError(f"No file in {self.folder} can be used for {self.dataset.name}: check the folder.")
        self.progress("comparing", 0, 1)
        same, near = compare.find_duplicates(samples)
        samples, origins, remarks = compare.assign_splits(samples, same=same, near=near)
        leaks = compare.find_leaks(samples, same=same, near=near)
        source = {
            "download": self.dataset.name,
            "version": self.dataset.version,
            "inputs": self.inputs,
            "absent": sorted(self.scan.absent),
            "remarks": [*self.scan.remarks, *remarks],
            "left_out": list(map(asdict, left_out)),
            "split_rule": self.rule,
            "split": origins,
            "repeats": compare.count_repeats(samples, same=same),
            "leaks": leaks[:_LISTED_LEAKS],
            "leaks_found": len(leaks),
        }
        self._write(chunks, samples, source)
        write_json(self.to / _STAMP, {"inputs": self.stamp})
        shutil.rmtree(work, ignore_errors=True)
        return PreparationResult(root=self.to, fresh=True, source=source)

    def _plan_chunks(self, work: Path) -> list[_Chunk]:
        """Divide the records into chunks of a few megabytes, named by everything that affects their result."""
        row = self.dataset.channels * self.side**2 * np.dtype(self.dataset.dtype).itemsize
        step = max(1, min(_CHUNK_RECORDS, _CHUNK_BYTES // row))
        source = _identify_source(self.dataset)
        chunks = []
        for start in range(0, len(self.records), step):
            records = self.records[start : start + step]
            files = [_identify_record(record, times=True) for record in records]
            key = _digest([_CHUNK_FORMAT, source, self.size, files])
            chunks.append(_Chunk(records, work / f"{start // step:06}-{key}"))
        return chunks

    def _decode(self, chunks: Sequence[_Chunk], processes: int) -> None:
        decode = partial(_decode_chunk, self.dataset, size=self.size, folder=self.folder)
        todo = [chunk for chunk in chunks if not chunk.index.is_file()]
        done, total = len(self.records) - sum(len(chunk.records) for chunk in todo), len(self.records)
        self.progress("decoding", done, total)
        for chunk in _decode_each(todo, decode, processes=processes, plugin=own_file(type(self.dataset))):
            done += len(chunk.records)
            self.progress("decoding", done, total)

    def _gather_samples(self, chunks: Sequence[_Chunk]) -> tuple[list[StoredSample], list[Finding]]:
        """Return the usable samples of decoded chunks, and all findings about the others."""
        samples: list[StoredSample] = []
        findings: list[Finding] = []
        for number, chunk in enumerate(chunks):
            # Copied, since a mapped file stays open.
            content, thumbnails = read_json(chunk.index), chunk.array("thumbnails").copy()
            findings += [Finding(**one) for one in content["findings"]]
            for row, entry in enumerate(content["entries"]):
                entry["record"] = chunk.records[entry["record"]]
                samples.append(StoredSample(**entry, thumbnail=thumbnails[row], chunk=number, row=row))
        counts = Counter((sample.record.site, sample.id) for sample in samples)
        good = []
        for sample in samples:
            if counts[sample.record.site, sample.id] > 1:
                problem = f"gives the id '{sample.id}', which another sample of its site has too"
            elif sample.record.split == "test" and not sample.labelled:
                problem = "is in the test split and has no label or mask"
            else:
                good.append(sample)
                continue
            findings.append(base.make_finding(sample.record.image, self.folder, problem))
        trained = {sample.record.site for sample in good if sample.record.split != "test"}
        for site in {record.site for record in self.records} - trained:
            findings.append(Finding(file=site, problem="is a site without any usable training sample"))
        return [sample for sample in good if sample.record.site in trained], findings

    def _write(self, chunks: Sequence[_Chunk], samples: Sequence[StoredSample], source: dict[str, Any]) -> None:
        is_partly_labelled = not all(sample.labelled for sample in samples)
        with PreparedWriter(self.to, **self.facts, source=source) as writer:
            sites = {site: writer.site(site) for site in source["split"]}
            runs = groupby(samples, key=lambda sample: (sample.chunk, sample.record.site))
            for done, ((number, site), run) in enumerate(runs):
                self.progress("writing", done, len(chunks))
                members = list(run)
                rows = [member.row for member in members]
                sites[site].append(
                    ids=[member.id for member in members],
                    patients=[member.patient for member in members],
                    splits=[member.split for member in members],
                    initial=[
                        is_partly_labelled and member.labelled and member.split == "train" for member in members
                    ],
                    sources=[base.relative_name(member.record.image, self.folder) for member in members],
                    labelled=[member.labelled for member in members],
                    images=chunks[number].array("images")[rows],
                    labels=chunks[number].array("labels")[rows],
                )


@dataclass(frozen=True)
class _Chunk:
    """A few records, and where their decoded samples are stored."""

    records: Sequence[SourceRecord]
    place: Path

    @property
    def index(self) -> Path:
        """The index file, which is written last: it exists if the chunk is decoded."""
        return self.place.with_suffix(".json")

    def path(self, name: str) -> Path:
        return self.place.with_suffix(f".{name}.npy")

    def array(self, name: str) -> NDArray[Any]:
        """Memory-map an array of a decoded chunk; a damaged file is a `FealError`."""
        path = self.path(name)
        try:
            return np.asarray(np.load(path, mmap_mode="r"))
        except (OSError, ValueError) as error:
            raise FealError(
                f"{path} is damaged ({error}): remove {path.parent} and repeat the command."
            ) from error


def _decode_each(
    chunks: Sequence[_Chunk], decode: Callable[[_Chunk], None], *, processes: int, plugin: Path | None
) -> Iterator[_Chunk]:
    """Decode chunks, and yield each as it ends; its pixels stay on disk and are never sent between processes.

    Worker processes are used if they pay off, judged by the time that the first chunk takes in this process.
    """
    start = time.perf_counter()
    for chunk in chunks[:1]:
        decode(chunk)
        yield chunk
    rest = chunks[1:]
    if processes <= 1 or (time.perf_counter() - start) * len(rest) < _PARALLEL_SECONDS:
        for chunk in rest:
            decode(chunk)
            yield chunk
        return
    initialize = None if plugin is None else partial(load_file, plugin, kind="data set")
    with closing(run_tasks(rest, decode, processes=processes, initialize=initialize)) as results:
        for chunk, error in results:
            if isinstance(error, WorkerDiedError):
                raise FealError(
                    "A process that decodes images died, possibly because memory ran out: repeat the command "
                    "with fewer --processes; what is decoded already is kept."
                ) from error
            if error is not None:
                raise error
            yield chunk


def _decode_chunk(dataset: DatasetSource, chunk: _Chunk, *, size: int, folder: Path) -> None:
    """Decode a chunk to disk, one record at a time; an unusable record becomes a finding."""
    entries: list[dict[str, Any]] = []
    findings: list[Finding] = []
    is_class, side = dataset.task == "classification", base.find_stored_side(dataset, size)
    with _writing(chunk), ExitStack() as files:

        def create(name: str, row: tuple[int, ...], dtype: str) -> ArrayWriter:
            return files.enter_context(ArrayWriter(chunk.path(name), row=row, dtype=dtype))

        images = create("images", (dataset.channels, side, side), dataset.dtype)
        labels = create("labels", () if is_class else (side, side), "int16" if is_class else "uint8")
        thumbnails = create("thumbnails", (compare.THUMBNAIL, compare.THUMBNAIL), "uint8")
        for number, record in enumerate(chunk.records):
            try:
                samples = base.read_record(dataset, record, size=size)
            except UnusableFileError as error:
                findings.append(base.make_finding(error.file or record.image, folder, str(error)))
                continue
            for sample in samples:
                image = np.ascontiguousarray(sample.image)
                hashed, thumbnail = compare.fingerprint_image(image)
                label: NDArray[Any] = np.asarray(NO_LABEL[dataset.task] if sample.label is None else sample.label)
                images.append(image[None])
                labels.append(np.broadcast_to(label, labels.row)[None])
                thumbnails.append(thumbnail[None])
                entries.append(
                    {
                        "record": number,
                        "id": sample.id,
                        "labelled": sample.label is not None,
                        "digest": hashlib.blake2b(image.data, digest_size=16).hexdigest(),
                        "hash": hashed,
                    }
                )
    write_text(chunk.index, json.dumps({"entries": entries, "findings": list(map(asdict, findings))}))


@contextmanager
def _writing(chunk: _Chunk) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        for path in chunk.place.parent.glob(f"{chunk.place.name}.*.npy"):
            path.unlink(missing_ok=True)  # free the space of an incomplete chunk on a full disk
        raise write_error(chunk.place, error) from error


def _identify_source(dataset: DatasetSource) -> list[object]:
    """Return what of a source affects its samples: version, options, and its code if it is a user's file."""
    kind = type(dataset)
    name = _DIGEST_NAMES.get(kind.__qualname__, kind.__qualname__)
    options = repr(sorted(vars(dataset).items()))
    return [dataset.name, dataset.version, name, source_digest(kind) or "", options]


def _identify_record(record: SourceRecord, *, times: bool) -> list[object]:
    """Return what of a record affects its samples; `times` detects edited files of the same size."""
    files: list[list[object]] = []
    for path in (record.image, record.mask):
        if path is None:
            continue
        try:
            stat = path.stat()
        except OSError:
            files.append([path.name, None])
        else:
            files.append([str(path), stat.st_size, stat.st_mtime_ns] if times else [path.name, stat.st_size])
    return [record.site, record.id, None if record.label is None else int(record.label), files]


def _digest(content: object) -> str:
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=12).hexdigest()


@contextmanager
def _work_folder(to: Path) -> Iterator[Path]:
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
            if not _has_samples(work):
                shutil.rmtree(work, ignore_errors=True)


def _has_samples(work: Path) -> bool:
    return any(work.glob("[0-9]*.json"))


def _sweep(to: Path, work: Path, chunks: Sequence[_Chunk]) -> None:
    """Remove incomplete sets of killed runs, and chunks of files that have changed since."""
    partial_set = re.compile(re.escape(f".{to.name}.") + r"[0-9a-f]{32}\.partial")
    for path in to.parent.iterdir():
        if partial_set.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)
    wanted = {chunk.place.name for chunk in chunks}
    for path in work.glob("[0-9]*"):
        if path.name.split(".")[0] not in wanted:
            path.unlink()
