"""A download made into a prepared data set: found, checked, decoded, split, compared and written."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from feal.data.manifest import FILE, read_manifest
from feal.data.preparation.chunks import Chunk, chunks, digest, identity, inputs
from feal.data.preparation.contract import Download, Draft, Finding, Scan
from feal.data.preparation.findings import checked_drafts, in_order, named, refused
from feal.data.preparation.gathering import Likeness, Sample, Sides, compare, gather, sides
from feal.data.preparation.leaks import LISTED, find_leaks, repeats
from feal.data.preparation.reading import scanned
from feal.data.preparation.workers import decoded
from feal.data.prepared import verify
from feal.data.writing import OtherSetError, PreparedWriter, check_facts, other_set
from feal.errors import FealError
from feal.files import locked, read_json, unwritable, write_json
from feal.processes import cores

Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is."""

_FORMAT = 2
"""To be raised when another split or another set comes of the same decoded pictures."""

STAMP = "prepared-from.json"
"""Beside the manifest: which files, as they were, the set was made from."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A prepared set, and what a user should know of it."""

    root: Path
    fresh: bool
    """Whether it was prepared now, rather than found."""
    source: dict[str, Any]
    """The manifest's `source`: left_out, absent, remarks, repeats, leaks, leaks_found, split."""


def prepare(
    download: Download,
    source: Path,
    to: Path,
    *,
    size: int | None = None,
    processes: int | None = None,
    skip_bad: bool = False,
    progress: Progress | None = None,
) -> Outcome:
    """Check a download and write it as a prepared data set; the same bytes whatever the number of processes.

    What is decoded is kept beside `to` until the set is complete, so a second try goes on where the first ended.

    Raises:
        FindingsError: files that cannot be used, all of them; `skip_bad` goes on without these.
        FealError: the folder does not hold this data set, the place is taken, the set there is damaged, the
            disk refuses, a process died.
    """
    source, to, size = source.resolve(), to.resolve(), size or download.size
    if not source.is_dir():
        raise FealError(f"There is no folder {source}: give the one that holds the download.")
    if to.is_relative_to(source):
        raise FealError(f"{to} lies in the download {source}: choose a folder outside of it by --to.")
    scan = scanned(download, source)
    # By site and id, so that neither the order of a folder nor that of a table matters.
    ordered = sorted(scan.drafts, key=lambda draft: (draft.site, draft.id, str(draft.image)))
    drafts, findings = checked_drafts(ordered, source, known=scan.findings)
    job = _Job(download, source, to, size, scan, drafts, [*scan.findings, *findings], progress or _silence)
    known = job.prepared_already(skip_bad=skip_bad)
    if known is not None:
        return Outcome(root=to, fresh=False, source=known)
    with _workplace(to) as work:
        return job.run(work, processes=processes or cores(), skip_bad=skip_bad)


@dataclass(frozen=True)
class _Job:
    download: Download
    source: Path
    to: Path
    size: int
    scan: Scan
    drafts: Sequence[Draft]
    findings: Sequence[Finding]
    progress: Progress
    inputs: str = field(init=False)
    """Digest of the files' names and sizes, and of what the scan told; goes with the set."""
    stamp: str = field(init=False)
    """The same with places and times, which hold on this machine only."""

    def __post_init__(self) -> None:
        # Now and not at the end: a file that changes while others are decoded is not the one that was prepared.
        object.__setattr__(self, "inputs", self._inputs(times=False))
        object.__setattr__(self, "stamp", self._inputs(times=True))

    def prepared_already(self, *, skip_bad: bool) -> dict[str, Any] | None:
        """The source of the set that is there if it was made of these very files."""
        check_facts(self.to, {**self._facts(), "source": {}})
        if not (self.to / FILE).is_file():
            return None
        content = dict(read_manifest(self.to)[0].source)
        if content.get("inputs") != self.inputs:
            raise other_set(self.to)
        verify(self.to)
        if not (self.to / STAMP).is_file() or read_json(self.to / STAMP) != {"inputs": self.stamp}:
            return None
        if content["left_out"] and not skip_bad:
            raise refused(self.source, [Finding(**one) for one in content["left_out"]])
        return content

    def run(self, work: Path, *, processes: int, skip_bad: bool) -> Outcome:
        """Prepare the set; `work` keeps what is decoded."""
        parts = chunks(self.download, self.drafts, size=self.size, work=work)
        _sweep(self.to, work, parts)
        self._decode(parts, processes)
        samples, found = gather(parts, self.source)
        left_out = in_order([*self.findings, *found])
        if left_out and not skip_bad:
            raise refused(self.source, left_out, kept=work if _holds_pictures(work) else None)
        if not samples:
            raise FealError(f"Nothing in {self.source} can be used for {self.download.name}: check the folder.")
        self.progress("comparing", 0, 1)
        alike = compare(samples, parts, self.download, size=self.size)
        chosen = sides(samples, alike)
        source = self._source(samples, chosen, alike, left_out)
        self._write(parts, samples, chosen, source)
        write_json(self.to / STAMP, {"inputs": self.stamp})
        shutil.rmtree(work, ignore_errors=True)
        return Outcome(root=self.to, fresh=True, source=source)

    def _inputs(self, *, times: bool) -> str:
        files = [[*inputs(draft, times=times), draft.group, draft.split] for draft in self.drafts]
        findings = [asdict(finding) for finding in in_order(self.findings)]
        told = [findings, sorted(self.scan.absent), list(self.scan.remarks)]
        return digest([_FORMAT, identity(self.download), self.size, files, told])

    def _facts(self) -> dict[str, Any]:
        return {
            "name": self.download.name,
            "task": self.download.task,
            "classes": tuple(self.download.classes),
            "channels": self.download.channels,
            "height": self.size,
            "width": self.size,
            "dtype": self.download.dtype,
            "regions": dict(self.download.regions),
            "fitting": self.download.fitting,
        }

    def _decode(self, parts: Sequence[Chunk], processes: int) -> None:
        done = 0
        self.progress("decoding", done, len(self.drafts))
        for part in decoded(self.download, parts, size=self.size, folder=self.source, processes=processes):
            done += len(part.drafts)
            self.progress("decoding", done, len(self.drafts))

    def _source(
        self, samples: Sequence[Sample], chosen: Sides, alike: Likeness, left_out: Sequence[Finding]
    ) -> dict[str, Any]:
        sites = [sample.draft.site for sample in samples]
        ids = [sample.entry.id for sample in samples]
        leaks = find_leaks(ids=ids, sites=sites, splits=chosen.splits, same=alike.same, near=alike.near)
        return {
            "download": self.download.name,
            "version": self.download.version,
            "inputs": self.inputs,
            "absent": sorted(self.scan.absent),
            "remarks": [*self.scan.remarks, *chosen.remarks],
            "left_out": [asdict(finding) for finding in left_out],
            "split": chosen.origins,
            "repeats": dict(repeats(sites, alike.same)),
            "leaks": [leak.entry() for leak in leaks[:LISTED]],
            "leaks_found": len(leaks),
        }

    def _write(
        self, parts: Sequence[Chunk], samples: Sequence[Sample], chosen: Sides, source: dict[str, Any]
    ) -> None:
        partly = not all(sample.entry.labelled for sample in samples)
        with PreparedWriter(self.to, **self._facts(), source=source) as writer:
            sites = {site: writer.site(site) for site in chosen.origins}
            for done, (part, site, numbers) in enumerate(_portions(samples)):
                self.progress("writing", done, len(parts))
                members = [samples[number] for number in numbers]
                rows = [member.row for member in members]
                splits = [chosen.splits[number] for number in numbers]
                labelled = [member.entry.labelled for member in members]
                sites[site].append(
                    ids=[member.entry.id for member in members],
                    patients=[chosen.patients[number] for number in numbers],
                    splits=splits,
                    given=[
                        partly and known and side == "train" for known, side in zip(labelled, splits, strict=True)
                    ],
                    sources=[named(member.draft.image, self.source) for member in members],
                    labelled=labelled,
                    images=parts[part].array("images", self.download, size=self.size)[rows],
                    truth=parts[part].array("truth", self.download, size=self.size)[rows],
                )


def _portions(samples: Sequence[Sample]) -> Iterator[tuple[int, str, list[int]]]:
    """Samples by number that are of one chunk and one site, in order."""
    places = [(sample.chunk, sample.draft.site) for sample in samples]
    for (part, site), numbers in groupby(range(len(samples)), key=places.__getitem__):
        yield part, site, list(numbers)


@contextmanager
def _workplace(to: Path) -> Iterator[Path]:
    """The folder beside the set that keeps what is decoded, held for this process alone."""
    work = to.with_name(f".{to.name}.work")
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(work, error) from error
    with locked(work):
        try:
            yield work
        except OtherSetError:
            shutil.rmtree(work, ignore_errors=True)
            raise
        finally:
            if not _holds_pictures(work):
                shutil.rmtree(work, ignore_errors=True)


def _holds_pictures(work: Path) -> bool:
    """Whether anything is decoded."""
    return any(work.glob("[0-9]*.json"))


def _sweep(to: Path, work: Path, parts: Sequence[Chunk]) -> None:
    """Remove what a kill left half-written, and what was decoded of files that are others now."""
    partial = re.compile(re.escape(f".{to.name}.") + r"[0-9a-f]{32}\.partial")
    for path in to.parent.iterdir():
        if partial.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)
    wanted = {part.place.name for part in parts}
    for path in work.glob("[0-9]*"):
        if path.name.split(".")[0] not in wanted:
            path.unlink()


def _silence(doing: str, done: int, total: int) -> None:
    """Nobody is told."""
