"""Define what a data set source provides so that its download can be prepared, and check what it returns."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from feal.data.manifest import is_name
from feal.data.resize import Fitting
from feal.errors import FealError
from feal.fileio import wrap_os_error
from feal.registry import Registry
from feal.settings import Task

Split = Literal["train", "test"]
SplitRule = Literal["shipped", "8:2"]
"""Keep the split that a download assigns (8:2 where it has none), or split every site 8:2."""
_Text = Annotated[str, Field(min_length=1)]


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


@dataclass(frozen=True, kw_only=True, order=True)
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

    Several threads call `read` at a time, so instances hold plain values that do not change.
    """

    name: ClassVar[str]
    task: ClassVar[Task]
    classes: ClassVar[tuple[str, ...]]
    size: ClassVar[int]
    """Height and width in pixels, as in the paper, without the margins of the fitting."""
    version: ClassVar[int] = 1
    """Raise it when the same files give other pixels, labels or splits."""
    split: ClassVar[SplitRule] = "shipped"
    """The rule that `feal data prepare` takes by default, the paper's for its data sets."""
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

        Margins of the fitting are added to the size.

        Raises:
            UnusableFileError: the file is missing, unreadable, of a wrong size or mode, or has invalid values.
        """


def find_stored_side(dataset: DatasetSource, size: int) -> int:
    """Return the height and width of a source's images for a size: with the margins of its fitting."""
    return size if dataset.fitting is None else dataset.fitting.add_margin(size)


DATASET_SOURCES: Registry[type[DatasetSource]] = Registry("data set")


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


def make_finding(path: Path, folder: Path, problem: str) -> Finding:
    """Return a finding about a file or folder of the download in `folder`."""
    return Finding(file=relative_name(path, folder), problem=problem)


def relative_name(path: Path, folder: Path) -> str:
    """Return a file's path relative to the download's folder if it is inside, as findings name it."""
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)


def list_first(names: Sequence[str], count: int = 5) -> str:
    """List the first names for a message, with dots if there are more.

    >>> list_first(["a", "b", "c"], 2)
    'a, b, ...'
    """
    return ", ".join([*names[:count], *(["..."] if len(names) > count else [])])


def check_records(
    records: Sequence[SourceRecord], folder: Path, *, known: Sequence[Finding] = ()
) -> tuple[list[SourceRecord], list[Finding]]:
    """Return the valid records, and findings about the others; records with a `known` finding are left out."""
    bad = {finding.file for finding in known}
    records = [
        record
        for record in records
        if not bad.intersection(relative_name(path, folder) for path in (record.image, record.mask) if path)
    ]
    counts = Counter((record.site, record.id) for record in records)
    shipped = {record.site for record in records if record.split is not None}
    good, findings = [], []
    first = {record.site: record.image for record in reversed(records)}
    for site, files in Counter(record.site for record in records if not is_name(record.site)).items():
        problem = (
            f"is of site '{site}' (as are {files} files): use up to 64 letters, digits, '-' and '_' for a site"
        )
        findings.append(make_finding(first[site], folder, problem))
    for record in records:
        if not is_name(record.site):
            continue
        if counts[record.site, record.id] > 1:
            problem = f"has the id '{record.id}', which another file of site {record.site} has too"
        elif not _is_valid_id(record.id) or not _is_valid_id(record.group or "-"):
            problem = "has an id or a patient that is not 1 to 400 printable characters"
        elif record.split not in (None, *get_args(Split)):
            problem = f"is in the split '{record.split}': use {' or '.join(get_args(Split))}"
        elif record.split is None and record.site in shipped:
            problem = "is in no split, but its site is shipped with one"
        else:
            good.append(record)
            continue
        findings.append(make_finding(record.image, folder, problem))
    return good, findings


def create_source(kind: type[DatasetSource]) -> DatasetSource:
    """Create a source of this class after checking its attributes.

    Raises:
        FealError: an attribute is missing or invalid, or the constructor fails.
    """
    try:
        _Attributes.model_validate({name: getattr(kind, name, None) for name in _Attributes.model_fields})
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        wanted = _Attributes.model_fields[name].description
        raise FealError(f"The data set {kind.__name__} needs the attribute `{name}`, {wanted}: add it.") from None
    try:
        return kind()
    except FealError:
        raise
    except Exception as error:
        raise _class_error(kind, "cannot be created", error) from error


def scan_source(dataset: DatasetSource, folder: Path) -> ScanResult:
    """Scan a folder, and check the result.

    Raises:
        FealError: the folder does not hold the data set, or `scan` fails or returns something invalid.
    """
    kind = type(dataset)
    try:
        scan = dataset.scan(folder)
    except FealError:
        raise
    except OSError as error:
        raise wrap_os_error(error) from error
    except Exception as error:
        raise _class_error(kind, f"fails to scan {folder}", error) from error
    if not isinstance(scan, ScanResult):
        raise FealError(
            f"`scan` of {kind.__name__} returned a {type(scan).__name__}: it must return a ScanResult."
        )
    for record in scan.records:
        for name, types in _FIELDS.items():
            value = getattr(record, name, None)
            if not isinstance(value, types) or isinstance(value, bool):
                wanted = " or ".join("None" if one is type(None) else one.__name__ for one in types)
                raise FealError(
                    f"`scan` of {kind.__name__} returned a record ({getattr(record, 'image', record)}) "
                    f"whose `{name}` is {value!r}: it must be {wanted}."
                )
    return scan


def read_record(dataset: DatasetSource, record: SourceRecord, *, size: int) -> Sequence[DecodedSample]:
    """Decode a record, and check that its samples match the declarations of the data set.

    Raises:
        UnusableFileError: the file cannot be used.
        FealError: `read` fails in any other way or returns anything else than decoded samples.
    """
    kind = type(dataset)
    try:
        samples = list(dataset.read(record, size=size))
    except (UnusableFileError, FealError):
        raise
    except OSError as error:
        at_fault = Path(error.filename) if isinstance(error.filename, str) else None
        raise UnusableFileError(f"cannot be read ({error.strerror or error})", file=at_fault) from error
    except Exception as error:
        raise _class_error(kind, f"fails to read {record.image}", error) from error
    for sample in samples:
        if not isinstance(sample, DecodedSample) or not isinstance(sample.image, np.ndarray):
            raise FealError(
                f"`read` of {kind.__name__} did not return decoded samples with array images for "
                f"{record.image}: correct the class."
            )
        problem = _find_sample_problem(dataset, sample, size)
        if problem:
            raise UnusableFileError(problem)
    return samples


def _find_sample_problem(dataset: DatasetSource, sample: DecodedSample, size: int) -> str | None:
    if not isinstance(sample.id, str) or not _is_valid_id(sample.id):
        return f"gives the id {sample.id!r}, which is not 1 to 400 printable characters"
    side = find_stored_side(dataset, size)
    shape, classes = (dataset.channels, side, side), len(dataset.classes)
    if sample.image.shape != shape or sample.image.dtype != np.dtype(dataset.dtype):
        return f"was read as {sample.image.dtype} {sample.image.shape}, not {dataset.dtype} {shape}"
    if sample.image.dtype.kind == "f" and not np.isfinite(sample.image).all():
        return "has a pixel that is not a finite number"
    if sample.label is None:
        return None
    label = np.asarray(sample.label)
    if label.shape != (() if dataset.task == "classification" else (side, side)):
        return f"has a label or mask of shape {label.shape}"
    if label.dtype.kind not in "iub":
        return f"has a label or mask of {label.dtype}, not of whole numbers"
    low, high = int(label.min()), int(label.max())
    if low < 0 or high >= classes:
        return f"has the class {low if low < 0 else high}, but the {classes} classes are 0 to {classes - 1}"
    return None


def _class_error(kind: type[DatasetSource], failure: str, error: Exception) -> FealError:
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    return FealError(f"The data set {kind.__name__} {failure} ({reason}): correct the class.")


def _is_valid_id(text: str) -> bool:
    return text.isprintable() and 0 < len(text) <= 400


class _Attributes(BaseModel):
    """The attributes that a class must have, with what they must be."""

    model_config = ConfigDict(strict=True)

    name: _Text = Field(description="a string")
    task: Task = Field(description="classification or segmentation")
    classes: tuple[_Text, ...] | list[_Text] = Field(min_length=2, description="the names of two classes or more")
    size: int = Field(gt=0, description="a whole number of pixels")
    split: SplitRule = Field(description="shipped or 8:2")


_FIELDS: Mapping[str, tuple[type, ...]] = {
    "site": (str,),
    "id": (str,),
    "image": (Path,),
    "label": (int, np.integer, type(None)),
    "mask": (Path, type(None)),
    "group": (str, type(None)),
    "split": (str, type(None)),
}
"""The types of a record's fields."""
