"""Prepare a data set from a download: scan, check, decode in chunks, compare, split and write."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from feal.data.manifest import MANIFEST_FILE, read_manifest
from feal.data.prepare import base
from feal.data.prepare import duplicates as compare
from feal.data.prepare.base import DatasetSource, Finding, SourceRecord, SplitRule, UnusableFileError
from feal.data.prepare.decode import ignore_warnings
from feal.data.prepare.duplicates import StoredSample
from feal.data.prepare.split import assign_splits
from feal.data.prepare.store import (
    Chunk,
    Fingerprinted,
    SampleStore,
    has_samples,
    open_work_folder,
    remove_leftovers,
)
from feal.data.verify import verify
from feal.data.writer import OtherSetError, PreparedWriter, check_target, other_set_error
from feal.errors import FealError
from feal.fileio import read_json, write_json
from feal.plugins import source_digest
from feal.processes import count_cores, retain_memory

_T = TypeVar("_T")
_R = TypeVar("_R")

Progress = Callable[[str, int, int], None]
"""A callback that receives the current step, how much of it is done, and how much there is."""

_SET_FORMAT = 3
"""Raise it when the same decoded images give another split or another set."""
_CHUNK_FORMAT = 3
"""Raise it when the same files give other chunks."""
_STAMP = "prepared-from.json"
"""A file beside the manifest that identifies the files from which the set was made."""
_CHUNK_BYTES = 32 * 2**20
_CHUNK_RECORDS = 256
_LISTED_LEAKS = 100
_AHEAD = 2
"""How many decoded records may wait for those before them."""
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
    threads: int | None = None,
    skip_bad: bool = False,
    progress: Progress = lambda *_: None,
) -> PreparationResult:
    """Check a download and write it as a prepared data set; the bytes do not depend on the number of threads.

    The samples are split by the rule `split`, or by the data set's own if it is None. Decoded samples stay beside
    `to` until the set is complete, so that another attempt continues from there.

    Raises:
        FindingsError: some files cannot be used; lists all of them, and `skip_bad` continues without them.
        FealError: the folder does not hold this data set, `to` holds something else (another split counts) or
            cannot be written.
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
    retain_memory()
    with open_work_folder(to) as work:
        return job.run(work, threads=threads or count_cores(), skip_bad=skip_bad)


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

    def run(self, work: Path, *, threads: int, skip_bad: bool) -> PreparationResult:
        """Prepare the set; decoded samples are stored in `work`."""
        chunks = self._plan_chunks(work)
        remove_leftovers(self.to, work, chunks)
        store = SampleStore(work, self.dataset, size=self.size)
        samples, found = self._decode(store, chunks, threads)
        left_out = sorted({*self.findings, *found})
        if left_out and not skip_bad:
            raise base.findings_error(self.folder, left_out, kept=work if has_samples(work) else None)
        if not samples:
            raise FealError(f"No file in {self.folder} can be used for {self.dataset.name}: check the folder.")
        self.progress("comparing", 0, 1)
        same, near = compare.find_duplicates(samples, store.digest)
        samples, origins, remarks = assign_splits(samples, same=same, near=near)
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
        self._write(store, samples, source, threads)
        write_json(self.to / _STAMP, {"inputs": self.stamp})
        shutil.rmtree(work, ignore_errors=True)
        return PreparationResult(root=self.to, fresh=True, source=source)

    def _plan_chunks(self, work: Path) -> list[Chunk]:
        """Divide the records into chunks of a few megabytes, named by everything that affects their result."""
        row = self.dataset.channels * self.side**2 * np.dtype(self.dataset.dtype).itemsize
        step = max(1, min(_CHUNK_RECORDS, _CHUNK_BYTES // row))
        source = _identify_source(self.dataset)
        chunks = []
        for site, group in groupby(self.records, key=lambda record: record.site):
            records = list(group)
            for start in range(0, len(records), step):
                part = records[start : start + step]
                files = [_identify_record(record, times=True) for record in part]
                key = _digest([_CHUNK_FORMAT, source, self.size, files])
                chunks.append(Chunk(site, part, work / f"{key}.json"))
        return chunks

    def _decode(
        self, store: SampleStore, chunks: Sequence[Chunk], threads: int
    ) -> tuple[list[StoredSample], list[Finding]]:
        """Decode the chunks that are not stored yet; return all usable samples, and findings about the others."""
        loaded = {chunk.index: store.load(chunk) for chunk in chunks if chunk.index.is_file()}
        todo = [chunk for chunk in chunks if chunk.index not in loaded]
        done, total = len(self.records) - sum(len(chunk.records) for chunk in todo), len(self.records)
        self.progress("decoding", done, total)
        records = (record for chunk in todo for record in chunk.records)
        with ignore_warnings(), closing(_map_ahead(self._read, records, threads=threads)) as results:
            for chunk in todo:
                loaded[chunk.index] = store.append(chunk, islice(results, len(chunk.records)))
                done += len(chunk.records)
                self.progress("decoding", done, total)
        stored = [loaded[chunk.index] for chunk in chunks]
        return self._check_samples(
            [one for part, _ in stored for one in part], [one for _, part in stored for one in part]
        )

    def _read(self, record: SourceRecord) -> list[Fingerprinted] | Finding:
        """Decode a record; an unusable one becomes a finding."""
        try:
            samples = base.read_record(self.dataset, record, size=self.size)
        except UnusableFileError as error:
            return base.make_finding(error.file or record.image, self.folder, str(error))
        whole = [replace(sample, image=np.ascontiguousarray(sample.image)) for sample in samples]
        return [(sample, *compare.fingerprint_image(sample.image)) for sample in whole]

    def _check_samples(
        self, samples: Sequence[StoredSample], found: Sequence[Finding]
    ) -> tuple[list[StoredSample], list[Finding]]:
        """Return the samples that a set can hold, and the findings with those about the others."""
        findings = list(found)
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

    def _write(
        self, store: SampleStore, samples: Sequence[StoredSample], source: dict[str, Any], threads: int
    ) -> None:
        is_partly_labelled = not all(sample.labelled for sample in samples)
        self.progress("writing", 0, 1)
        with PreparedWriter(self.to, threads=threads, **self.facts, source=source) as writer:
            for site, group in groupby(samples, key=lambda sample: sample.record.site):
                members = list(group)
                columns: dict[str, list[Any]] = {
                    "id": [member.id for member in members],
                    "patient": [member.patient for member in members],
                    "split": [member.split for member in members],
                    "given": [is_partly_labelled and one.labelled and one.split == "train" for one in members],
                    "source": [base.relative_name(member.record.image, self.folder) for member in members],
                }
                unlabelled = sum(not member.labelled for member in members)
                arrays = store.select(site, [member.row for member in members])
                writer.site(site).link_arrays(arrays, columns=columns, unlabelled=unlabelled)


def _map_ahead(perform: Callable[[_T], _R], tasks: Iterable[_T], *, threads: int) -> Generator[_R, None, None]:
    """Yield the result of each task in their order, while threads are ahead by a few tasks.

    Threads suffice, and cost nothing to start: decoders, resizing and numpy let others run meanwhile.
    """
    if threads == 1:
        yield from map(perform, tasks)
        return
    with ThreadPoolExecutor(threads) as pool:
        ahead: deque[Future[_R]] = deque()
        try:
            for task in tasks:
                ahead.append(pool.submit(perform, task))
                if len(ahead) > threads + _AHEAD:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


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
