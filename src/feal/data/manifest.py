"""Read and write the manifest of a prepared data set: what its arrays hold, and their checksums."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from feal.data.arrays import REPAIR
from feal.data.resize import Fitting
from feal.errors import FealError
from feal.plugins import describe_wanted
from feal.settings import Task

MANIFEST_FILE = "manifest.json"
MAX_CLASSES = {"classification": 2**15, "segmentation": 255}
"""The largest number of classes that stored labels and mask pixels can hold beside `NO_LABEL`."""

_FORMAT = 1
# A name becomes a folder and part of reports: no separators, no dots, nothing special to a shell.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def is_name(name: object) -> bool:
    """Return whether this can be the name of a data set or a site."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_name(name: str, kind: str) -> str:
    """Return the name, or raise a `FealError` if it is not a valid folder name everywhere.

    >>> check_name("alder-2", "site")
    'alder-2'
    >>> check_name("../x", "site")
    Traceback (most recent call last):
    feal.errors.FealError: The site name '../x' is invalid: use up to 64 letters, digits, '-' and '_'.
    """
    if not is_name(name):
        raise FealError(f"The {kind} name '{name}' is invalid: use up to 64 letters, digits, '-' and '_'.")
    return name


_Count = Annotated[int, Field(strict=True, ge=1)]
_SiteName = Annotated[str, AfterValidator(lambda name: check_name(name, "site"))]


class SiteRecord(BaseModel):
    """The manifest's record of one site: its number of samples, and the SHA-256 of each of its files."""

    model_config = ConfigDict(frozen=True)

    samples: _Count
    checksums: dict[str, str]
    unlabelled: int = Field(0, strict=True, ge=0)
    """The number of training samples without a label."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.unlabelled > self.samples:
            raise ValueError("has an invalid number of unlabelled samples")
        for file in self.checksums:
            if Path(file).is_absolute() or ".." in Path(file).parts:
                raise ValueError(f"has an invalid entry for the file {file!r}")
        return self


class Manifest(BaseModel):
    """All facts of a prepared set that are not arrays."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, AfterValidator(lambda name: check_name(name, "data set"))]
    task: Task
    classes: tuple[str, ...]
    channels: _Count
    height: _Count
    width: _Count
    dtype: Literal["uint8", "uint16", "float16"]
    sites: dict[_SiteName, SiteRecord] = Field(min_length=1)
    source: dict[str, Any]
    regions: dict[str, tuple[Annotated[int, Field(strict=True)], ...]] = Field(default_factory=dict)
    """Segmentation: unions of classes that metrics are computed for; by default each class but the first."""
    fitting: Fitting | None = None
    """How images were fitted to the size; None if unknown."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        count, most = len(self.classes), MAX_CLASSES[self.task]
        rules = {
            "'classes' must hold names": all(name.strip() for name in self.classes),
            "'classes' must hold at least two classes": count >= 2,
            f"'classes' must hold at most {most} classes": count <= most,
            "'classes' names a class twice": len(set(self.classes)) == count,
            "'regions' are for segmentation": not self.regions or self.task == "segmentation",
            **{
                f"'regions' must name classes for '{name}', each once": (
                    0 < len(members) == len(set(members)) and set(members) <= set(range(count))
                )
                for name, members in self.regions.items()
            },
            f"'fitting' clips images to uint16, but pixels are {self.dtype}": (
                self.fitting is None or self.fitting.clip is None or self.dtype == "uint16"
            ),
            "'fitting' leaves no pixel inside its margins": min(self.square) > 0,
        }
        broken = next((rule for rule, holds in rules.items() if not holds), None)
        if broken:
            raise ValueError(broken)
        return self

    @property
    def square(self) -> tuple[int, int]:
        """Return height and width of what the network is meant to see: the images without their margins."""
        fitting = self.fitting or Fitting()
        return fitting.remove_margin(self.height), fitting.remove_margin(self.width)

    @property
    def metric_regions(self) -> dict[str, tuple[int, ...]]:
        """Return what segmentation metrics are computed for: `regions`, or each class but the first."""
        if self.task != "segmentation":
            return {}
        return self.regions or {name: (number,) for number, name in enumerate(self.classes) if number}

    def encode(self) -> bytes:
        """Encode `manifest.json`; the same content gives the same bytes."""
        empty = {key for key in ("regions", "fitting") if not getattr(self, key)}
        content = {"format": _FORMAT, **self.model_dump(exclude=empty)}
        for record in content["sites"].values():
            if not record["unlabelled"]:
                del record["unlabelled"]
        return (json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def describe_invalid(error: ValidationError) -> str:
    """Return what is wrong with the first invalid field of a manifest."""
    first = error.errors()[0]
    field = f"'{'.'.join(map(str, first['loc']))}' " if first["loc"] else ""
    return f"its {field}{'is missing' if first['type'] == 'missing' else describe_wanted(first)}"


def read_manifest(root: Path) -> tuple[Manifest, str]:
    """Read and validate a manifest; return it with its digest, the SHA-256 of the file.

    Raises:
        FealError: it is missing, damaged, or of a format that this version does not know.
    """
    path = root / MANIFEST_FILE
    try:
        data = path.read_bytes()
    except OSError:
        raise FealError(
            f"{root} is not a prepared data set (it has no readable {MANIFEST_FILE}): "
            "name the folder that holds one, or a data set of `feal list datasets`."
        ) from None
    try:
        content = json.loads(data)
    except ValueError:
        raise _damaged(path, "it is not JSON") from None
    if not isinstance(content, dict):
        raise _damaged(path, "it is not a JSON object")
    if content.get("format") != _FORMAT:
        raise FealError(
            f"{path} has format {content.get('format')!r}, but this version reads format {_FORMAT}: remove "
            f"{path.parent} and prepare the data set again, or install the version that wrote it."
        )
    known: Mapping[str, Any] = {key: content[key] for key in Manifest.model_fields if key in content}
    try:
        return Manifest.model_validate(known), hashlib.sha256(data).hexdigest()
    except ValidationError as error:
        raise _damaged(path, describe_invalid(error)) from None


def _damaged(path: Path, how: str) -> FealError:
    return FealError(f"The manifest {path} is damaged, {how}: {REPAIR}.")
