"""Prepare a data set from a download: scan, check, decode, compare, split and write."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from feal.data.manifest import MANIFEST_FILE, read_manifest
from feal.data.prepare.base import (
    DatasetSource,
    Finding,
    ScanResult,
    SourceRecord,
    check_records,
    findings_error,
    relative_name,
    sort_findings,
)
from feal.data.prepare.chunks import (
    Chunk,
    decode_chunks,
    plan_chunks,
    record_identity,
    short_digest,
    source_identity,
)
from feal.data.prepare.duplicates import LISTED, count_repeats, find_leaks
from feal.data.prepare.plugin_check import scan_source
from feal.data.prepare.split import (
    Duplicates,
    SplitAssignment,
    StoredSample,
    assign_splits,
    find_duplicates,
    gather_samples,
)
from feal.data.verify import verify
from feal.data.writer import OtherSetError, PreparedWriter, check_target, other_set_error
from feal.errors import FealError
from feal.fileio import lock_directory, read_json, write_error, write_json
from feal.processes import count_cores

Progress = Callable[[str, int, int], None]
"""A callback that receives the current step, how much of it is done, and how much there is."""

_FORMAT = 2
"""Raise it when the same decoded images give another split or another set."""

STAMP = "prepared-from.json"
"""A file beside the manifest that identifies the files from which the set was made."""


@dataclass(frozen=True, kw_only=True)
class PreparationResult:
    """A prepared set, and notes for the user about it."""

    root: Path
    fresh: bool
    """Whether it was prepared now rather than found."""
    source: dict[str, Any]
    """The manifest's `source`: left_out, absent, remarks, repeats, leaks, leaks_found, split."""


def prepare_dataset(
    dataset: DatasetSource,
    folder: Path,
    to: Path,
    *,
    size: int | None = None,
    processes: int | None = None,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> PreparationResult:
    """Check a download and write it as a prepared data set; the bytes do not depend on the number of processes.

    Decoded samples stay beside `to` until the set is complete, so that another attempt continues from there.

    Raises:
        FindingsError: some files cannot be used; lists all of them, and `skip_bad` continues without them.
        FealError: the folder does not hold this data set, `to` holds something else or cannot be written, or a
            process died.
    """
    folder, to, size = folder.resolve(), to.resolve(), size or dataset.size
    if not folder.is_dir():
        raise FealError(f"There is no folder {folder}: name the one that holds the download.")
    if to.is_relative_to(folder):
        raise FealError(f"{to} is inside the download {folder}: choose a folder outside of it by --to.")
    scan = scan_source(dataset, folder)
    # Sorted by site and id, so that the order of a folder or a table does not matter.
    ordered = sorted(scan.records, key=lambda record: (record.site, record.id, str(record.image)))
    records, findings = check_records(ordered, folder, known=scan.findings)
    job = _Job(dataset, folder, to, size, scan, records, [*scan.findings, *findings], progress or _ignore_progress)
    known = job.find_prepared_source(skip_bad=skip_bad)
    if known is not None:
        return PreparationResult(root=to, fresh=False, source=known)
    with _work_folder(to) as work:
        return job.run(work, processes=processes or count_cores(), skip_bad=skip_bad)


@dataclass(frozen=True)
class _Job:
    dataset: DatasetSource
    folder: Path
    to: Path
    size: int
    scan: ScanResult
    records: Sequence[SourceRecord]
    findings: Sequence[Finding]
    progress: Progress
    inputs: str = field(init=False)
    """The digest of the files' names and sizes and of the scan's findings; stored in the manifest."""
    stamp: str = field(init=False)
    """The same with absolute paths and modification times, which are valid on this machine only."""

    def __post_init__(self) -> None:
        # Computed before decoding: a file that changes meanwhile is not the one that was prepared.
        object.__setattr__(self, "inputs", self._inputs(times=False))
        object.__setattr__(self, "stamp", self._inputs(times=True))

    def find_prepared_source(self, *, skip_bad: bool) -> dict[str, Any] | None:
        """Return the `source` of the set at `to` if it was made from exactly these files."""
        check_target(self.to, **self._facts())
        if not (self.to / MANIFEST_FILE).is_file():
            return None
        content = dict(read_manifest(self.to)[0].source)
        if content.get("inputs") != self.inputs:
            raise other_set_error(self.to)
        verify(self.to)
        if not (self.to / STAMP).is_file() or read_json(self.to / STAMP) != {"inputs": self.stamp}:
            return None
        if content["left_out"] and not skip_bad:
            raise findings_error(self.folder, [Finding(**one) for one in content["left_out"]])
        return content

    def run(self, work: Path, *, processes: int, skip_bad: bool) -> PreparationResult:
        """Prepare the set; decoded samples are stored in `work`."""
        parts = plan_chunks(self.dataset, self.records, size=self.size, work=work)
        _sweep(self.to, work, parts)
        self._decode(parts, processes)
        samples, found = gather_samples(parts, self.folder)
        left_out = sort_findings([*self.findings, *found])
        if left_out and not skip_bad:
            raise findings_error(self.folder, left_out, kept=work if _has_samples(work) else None)
        if not samples:
            raise FealError(f"No file in {self.folder} can be used for {self.dataset.name}: check the folder.")
        self.progress("comparing", 0, 1)
        duplicates = find_duplicates(samples, parts, self.dataset, size=self.size)
        assignment = assign_splits(samples, duplicates)
        source = self._source(samples, assignment, duplicates, left_out)
        self._write(parts, samples, assignment, source)
        write_json(self.to / STAMP, {"inputs": self.stamp})
        shutil.rmtree(work, ignore_errors=True)
        return PreparationResult(root=self.to, fresh=True, source=source)

    def _inputs(self, *, times: bool) -> str:
        files = [[*record_identity(record, times=times), record.group, record.split] for record in self.records]
        findings = [asdict(finding) for finding in sort_findings(self.findings)]
        notes = [findings, sorted(self.scan.absent), list(self.scan.remarks)]
        return short_digest([_FORMAT, source_identity(self.dataset), self.size, files, notes])

    def _facts(self) -> dict[str, Any]:
        return {
            "name": self.dataset.name,
            "task": self.dataset.task,
            "classes": tuple(self.dataset.classes),
            "channels": self.dataset.channels,
            "height": self.size,
            "width": self.size,
            "dtype": self.dataset.dtype,
            "regions": dict(self.dataset.regions),
            "fitting": self.dataset.fitting,
        }

    def _decode(self, parts: Sequence[Chunk], processes: int) -> None:
        done = 0
        self.progress("decoding", done, len(self.records))
        for part in decode_chunks(self.dataset, parts, size=self.size, folder=self.folder, processes=processes):
            done += len(part.records)
            self.progress("decoding", done, len(self.records))

    def _source(
        self,
        samples: Sequence[StoredSample],
        assignment: SplitAssignment,
        duplicates: Duplicates,
        left_out: Sequence[Finding],
    ) -> dict[str, Any]:
        sites = [sample.record.site for sample in samples]
        ids = [sample.entry.id for sample in samples]
        leaks = find_leaks(
            ids=ids, sites=sites, splits=assignment.splits, same=duplicates.same, near=duplicates.near
        )
        return {
            "download": self.dataset.name,
            "version": self.dataset.version,
            "inputs": self.inputs,
            "absent": sorted(self.scan.absent),
            "remarks": [*self.scan.remarks, *assignment.remarks],
            "left_out": [asdict(finding) for finding in left_out],
            "split": assignment.origins,
            "repeats": dict(count_repeats(sites, duplicates.same)),
            "leaks": [leak.entry() for leak in leaks[:LISTED]],
            "leaks_found": len(leaks),
        }

    def _write(
        self,
        parts: Sequence[Chunk],
        samples: Sequence[StoredSample],
        assignment: SplitAssignment,
        source: dict[str, Any],
    ) -> None:
        is_partly_labelled = not all(sample.entry.labelled for sample in samples)
        with PreparedWriter(self.to, **self._facts(), source=source) as writer:
            sites = {site: writer.site(site) for site in assignment.origins}
            for done, (part, site, numbers) in enumerate(_group_by_chunk(samples)):
                self.progress("writing", done, len(parts))
                members = [samples[number] for number in numbers]
                rows = [member.row for member in members]
                splits = [assignment.splits[number] for number in numbers]
                labelled = [member.entry.labelled for member in members]
                sites[site].append(
                    ids=[member.entry.id for member in members],
                    patients=[assignment.patients[number] for number in numbers],
                    splits=splits,
                    initial=[
                        is_partly_labelled and known and side == "train"
                        for known, side in zip(labelled, splits, strict=True)
                    ],
                    sources=[relative_name(member.record.image, self.folder) for member in members],
                    labelled=labelled,
                    images=parts[part].array("images", self.dataset, size=self.size)[rows],
                    labels=parts[part].array("labels", self.dataset, size=self.size)[rows],
                )


def _group_by_chunk(samples: Sequence[StoredSample]) -> Iterator[tuple[int, str, list[int]]]:
    """Yield runs of sample numbers that share a chunk and a site, in order."""
    places = [(sample.chunk, sample.record.site) for sample in samples]
    for (part, site), numbers in groupby(range(len(samples)), key=places.__getitem__):
        yield part, site, list(numbers)


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


def _sweep(to: Path, work: Path, parts: Sequence[Chunk]) -> None:
    """Remove incomplete sets of killed runs, and chunks of files that have changed since."""
    partial = re.compile(re.escape(f".{to.name}.") + r"[0-9a-f]{32}\.partial")
    for path in to.parent.iterdir():
        if partial.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)
    wanted = {part.place.name for part in parts}
    for path in work.glob("[0-9]*"):
        if path.name.split(".")[0] not in wanted:
            path.unlink()


def _ignore_progress(step: str, done: int, total: int) -> None:
    pass
