"""Define what a data set source must provide so that its download can be prepared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from feal.data.manifest import is_name
from feal.data.resize import Fitting
from feal.data.samples import SPLITS
from feal.errors import FealError
from feal.registry import Registry
from feal.settings import Task

Split = Literal["train", "test"]


@dataclass(frozen=True, kw_only=True)
class SourceRecord:
    """A file of a download that holds a sample or several (the slices of a volume), not decoded yet."""

    site: str
    id: str
    image: Path
    label: int | None = None
    """The class, in classification; None if unlabelled."""
    mask: Path | None = None
    """The file of the mask, in segmentation; None if unlabelled."""
    group: str | None = None
    """The patient, case or lesion, which a split keeps together; None if the download names none."""
    split: Split | None = None
    """The split that the download assigns; None if it ships without one."""


@dataclass(frozen=True, kw_only=True)
class DecodedSample:
    """A decoded sample: an image [C, H, W] of the set's type; a class, a mask [H, W], or None if unlabelled."""

    id: str
    image: NDArray[Any]
    label: int | NDArray[np.uint8] | None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A file of a download that cannot be used as it is, and why."""

    file: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class ScanResult:
    """The contents of a download, found by file names and tables alone."""

    records: Sequence[SourceRecord]
    findings: Sequence[Finding] = ()
    """Problems: the set is rejected, or prepared without these files at the user's request."""
    absent: Sequence[str] = ()
    """Sites of the data set that this folder lacks: a warning."""
    remarks: Sequence[str] = ()
    """Notes for the user, one sentence each; stored in the manifest."""


class UnusableFileError(Exception):
    """A record cannot be decoded; the message becomes the problem of a finding.

    `file` is the file at fault if that is not the record's image.
    """

    def __init__(self, problem: str, *, file: Path | None = None) -> None:
        super().__init__(problem)
        self.file = file


class DatasetSource(ABC):
    """A data set as its owners publish it: one class per data set, registered by name.

    Instances are sent to worker processes, so they hold plain values only.
    """

    name: ClassVar[str]
    task: ClassVar[Task]
    classes: ClassVar[tuple[str, ...]]
    size: ClassVar[int]
    """Height and width in pixels, as in the paper."""
    version: ClassVar[int] = 1
    """Raise it when the same files give other pixels, labels or splits."""
    channels: ClassVar[int] = 3
    dtype: ClassVar[str] = "uint8"
    fitting: ClassVar[Fitting | None] = None
    """How `read` fits an image to the size, so that `feal predict` does the same; None if unknown."""
    regions: ClassVar[Mapping[str, tuple[int, ...]]] = {}
    """Segmentation: named unions of classes that metrics are computed for (optic disc = rim and cup)."""

    @abstractmethod
    def scan(self, folder: Path) -> ScanResult:
        """Find the samples by file names and tables, without decoding an image.

        Raises:
            FealError: the folder does not hold this data set; the message says what it should hold.
        """

    @abstractmethod
    def read(self, record: SourceRecord, *, size: int) -> Sequence[DecodedSample]:
        """Decode one record and preprocess it to `size` x `size` pixels, as the paper does.

        Raises:
            UnusableFileError: the file is missing, unreadable, of a wrong size or mode, or has invalid values.
        """


class FindingsError(FealError):
    """Files cannot be used as they are; the command line shows `findings` as a table."""

    def __init__(self, sentence: str, findings: Sequence[Finding]) -> None:
        super().__init__(sentence)
        self.findings = list(findings)


def findings_error(folder: Path, findings: Sequence[Finding], *, kept: Path | None = None) -> FindingsError:
    """Return the error for a download with findings; `kept` is where decoded samples wait for another attempt."""
    first = findings[0]
    things = "1 problem was" if len(findings) == 1 else f"{len(findings)} problems were"
    return FindingsError(
        f"{things} found in {folder} (the first: {first.file} {first.problem}): repair the files, "
        f"or continue without them by --skip-bad{f' (decoded samples are kept in {kept})' if kept else ''}.",
        findings,
    )


def sort_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings by file and drop repeated ones."""
    return sorted(set(findings), key=lambda finding: (finding.file, finding.problem))


def relative_name(path: Path | str, folder: Path) -> str:
    """Return a file's path relative to the download's folder if it is inside, as findings name it."""
    path = Path(path)
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)


def check_records(
    records: Sequence[SourceRecord], folder: Path, *, known: Sequence[Finding] = ()
) -> tuple[list[SourceRecord], list[Finding]]:
    """Return the valid records, and findings about the others; records with a `known` finding are left out."""
    bad = {finding.file for finding in known}
    records = [
        record
        for record in records
        if not bad.intersection(
            relative_name(path, folder) for path in (record.image, record.mask) if path is not None
        )
    ]
    counts = Counter((record.site, record.id) for record in records)
    shipped = {record.site for record in records if record.split is not None}
    good, findings = [], _find_invalid_sites(records, folder)
    for record in records:
        if not is_name(record.site):
            continue
        problem = None
        if counts[record.site, record.id] > 1:
            problem = f"has the id '{record.id}', which another file of site {record.site} has too"
        elif not is_valid_id(record.id) or not is_valid_id(record.group or "-"):
            problem = "has an id or a patient that is not 1 to 400 printable characters"
        elif record.split not in (None, *SPLITS):
            problem = f"is in the split '{record.split}': use {' or '.join(SPLITS)}"
        elif record.split is None and record.site in shipped:
            problem = "is in no split, but its site is shipped with one"
        if problem is None:
            good.append(record)
        else:
            findings.append(Finding(file=relative_name(record.image, folder), problem=problem))
    return good, findings


def _find_invalid_sites(records: Sequence[SourceRecord], folder: Path) -> list[Finding]:
    """Return one finding for each invalid site name, however many files the site has."""
    counts = Counter(record.site for record in records if not is_name(record.site))
    first = {record.site: relative_name(record.image, folder) for record in reversed(records)}
    problem = "is of site '{}' (as are {} files): use up to 64 letters, digits, '-' and '_' for a site"
    return [Finding(file=first[site], problem=problem.format(site, count)) for site, count in counts.items()]


def is_valid_id(text: str) -> bool:
    """Return whether this is a valid id of a sample or a patient."""
    return text.isprintable() and 0 < len(text) <= 400


DATASET_SOURCES: Registry[type[DatasetSource]] = Registry("data set")
