"""Read and write the manifest of a prepared data set: what its arrays hold, and their checksums."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from feal.data.arrays import REPAIR
from feal.data.resize import Fitting
from feal.errors import FealError
from feal.settings import Task

FORMAT = 1
FILE = "manifest.json"
TASKS = ("classification", "segmentation")
DTYPES = ("uint8", "uint16", "float16")
MOST_CLASSES = {"classification": 2**15, "segmentation": 255}
"""The largest number of classes that stored labels and mask pixels can hold beside `NO_LABEL`."""

# A name becomes a folder and part of reports: no separators, no dots, nothing special to a shell.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, kw_only=True)
class SiteRecord:
    """The manifest's record of one site: its number of samples, and the SHA-256 of each of its files."""

    samples: int
    checksums: Mapping[str, str]
    unlabelled: int = 0
    """The number of training samples without a label."""

    def content(self) -> dict[str, Any]:
        """Return the record as JSON content."""
        content: dict[str, Any] = {"samples": self.samples, "checksums": dict(self.checksums)}
        return content | ({"unlabelled": self.unlabelled} if self.unlabelled else {})


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """All facts of a prepared set that are not arrays; validated whenever it is read or written."""

    name: str
    task: Task
    classes: tuple[str, ...]
    channels: int
    height: int
    width: int
    dtype: str
    sites: Mapping[str, SiteRecord]
    source: Mapping[str, Any]
    regions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Segmentation: unions of classes that metrics are computed for; by default each class but the first."""
    fitting: Fitting | None = None
    """How images were fitted to the size; None if unknown."""

    def encode(self) -> bytes:
        """Encode `manifest.json`; the same content gives the same bytes."""
        content = {
            "format": FORMAT,
            "name": self.name,
            "task": self.task,
            "classes": list(self.classes),
            "channels": self.channels,
            "height": self.height,
            "width": self.width,
            "dtype": self.dtype,
            "sites": {name: record.content() for name, record in self.sites.items()},
            "source": dict(self.source),
        }
        if self.regions:
            content["regions"] = {name: list(members) for name, members in self.regions.items()}
        if self.fitting is not None:
            content["fitting"] = self.fitting.model_dump()
        return (json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()

    def find_problem(self) -> str | None:
        """Return what is wrong with the first invalid field, or None; an invalid name is a `FealError`."""
        check_name(self.name, "data set")
        for name in self.sites:
            check_name(name, "site")
        problems = {
            "task": None if self.task in TASKS else f"must be one of {', '.join(TASKS)}",
            "classes": _problem_of_classes(self.classes, MOST_CLASSES.get(self.task, 0)),
            "dtype": None if self.dtype in DTYPES else f"must be one of {', '.join(DTYPES)}",
            **{key: _problem_of_size(getattr(self, key)) for key in ("channels", "height", "width")},
            "regions": _problem_of_regions(self),
            "fitting": _problem_of_fitting(self.fitting, self.dtype),
            "sites": None if self.sites else "names no site",
            **{f"sites.{name}": _problem_of_record(record) for name, record in self.sites.items()},
        }
        return next((f"its '{field}' {problem}" for field, problem in problems.items() if problem), None)


def is_name(name: object) -> bool:
    """Return whether this can be the name of a data set or a site."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_name(name: str, kind: str) -> None:
    """Raise a `FealError` if the name is not a valid folder name everywhere.

    >>> check_name("alder-2", "site")
    >>> check_name("../x", "site")
    Traceback (most recent call last):
    feal.errors.FealError: The site name '../x' is invalid: use up to 64 letters, digits, '-' and '_'.
    """
    if not is_name(name):
        raise FealError(f"The {kind} name '{name}' is invalid: use up to 64 letters, digits, '-' and '_'.")


def read_manifest(root: Path) -> tuple[Manifest, str]:
    """Read and validate a manifest; return it with its digest, the SHA-256 of the file.

    Raises:
        FealError: it is missing, damaged, or of a format that this version does not know.
    """
    path = root / FILE
    try:
        data = path.read_bytes()
    except OSError:
        raise FealError(
            f"{root} is not a prepared data set (it has no readable {FILE}): "
            "name the folder that holds one, or a data set of `feal list datasets`."
        ) from None
    manifest = _decode(data, path)
    problem = manifest.find_problem()
    if problem:
        raise _damaged(path, problem)
    return manifest, hashlib.sha256(data).hexdigest()


def _decode(data: bytes, path: Path) -> Manifest:
    try:
        content = json.loads(data)
    except ValueError:
        raise _damaged(path, "it is not JSON") from None
    if not isinstance(content, dict):
        raise _damaged(path, "it is not a JSON object")
    if content.get("format") != FORMAT:
        raise FealError(
            f"{path} has format {content.get('format')!r}, but this version reads format {FORMAT}: remove "
            f"{path.parent} and prepare the data set again, or install the version that wrote it."
        )
    try:
        return Manifest(
            name=content["name"],
            task=content["task"],
            classes=tuple(content["classes"]),
            channels=content["channels"],
            height=content["height"],
            width=content["width"],
            dtype=content["dtype"],
            sites={name: _record(entry) for name, entry in sorted(content["sites"].items())},
            source=dict(content["source"]),
            regions={name: tuple(members) for name, members in content.get("regions", {}).items()},
            fitting=Fitting.model_validate(content["fitting"]) if "fitting" in content else None,
        )
    except KeyError as error:
        raise _damaged(path, f"its {error} is missing") from None
    except (TypeError, ValueError, AttributeError):
        raise _damaged(path, "a field is of the wrong kind") from None


def _record(entry: Mapping[str, Any]) -> SiteRecord:
    return SiteRecord(
        samples=entry["samples"], checksums=dict(entry["checksums"]), unlabelled=entry.get("unlabelled", 0)
    )


def _problem_of_classes(classes: tuple[object, ...], most: int) -> str | None:
    if not all(isinstance(name, str) and name.strip() for name in classes):
        return "must hold names"
    if len(classes) < 2:
        return "must hold at least two classes"
    if len(classes) > most:
        return f"must hold at most {most} classes"
    return None if len(set(classes)) == len(classes) else "names a class twice"


def _problem_of_regions(manifest: Manifest) -> str | None:
    if manifest.regions and manifest.task != "segmentation":
        return "are for segmentation"
    for name, members in manifest.regions.items():
        known = all(isinstance(member, int) and 0 <= member < len(manifest.classes) for member in members)
        if not members or not known or len(set(members)) < len(members):
            return f"must name classes for '{name}', each once"
    return None


def _problem_of_fitting(fitting: object, dtype: str) -> str | None:
    if not isinstance(fitting, Fitting | None):
        return "must be a feal.data.resize.Fitting"
    if fitting is None or fitting.clip is None or dtype == "uint16":
        return None
    return f"clips images to uint16, but pixels are {dtype}"


def _problem_of_size(value: object) -> str | None:
    return None if _is_count(value) else "must be a positive whole number"


def _problem_of_record(record: SiteRecord) -> str | None:
    if not _is_count(record.samples):
        return "must hold at least one sample"
    if record.unlabelled != 0 and not (_is_count(record.unlabelled) and record.unlabelled <= record.samples):
        return "has an invalid number of unlabelled samples"
    for file, checksum in record.checksums.items():
        if Path(file).is_absolute() or ".." in Path(file).parts or not isinstance(checksum, str):
            return f"has an invalid entry for the file {file!r}"
    return None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _damaged(path: Path, how: str) -> FealError:
    return FealError(f"The manifest {path} is damaged, {how}: {REPAIR}.")
