"""What a data set must say of itself so that its download can be prepared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from feal.data.fitting import Fitting
from feal.settings import Task

Split = Literal["train", "test"]


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A file of a download that holds a sample, or several (a volume's slices); nothing is decoded yet."""

    site: str
    id: str
    image: Path
    label: int | None = None
    """The class, in classification; None where nobody gave one."""
    mask: Path | None = None
    """The file of the mask, in segmentation; None where nobody drew one."""
    group: str | None = None
    """The patient, case or lesion, which a split keeps on one side; None where the download has no such id."""
    split: Split | None = None
    """The side that the download ships it on; None where it ships no split."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A decoded sample: image [C, H, W] of the set's type, and a class, a mask [H, W], or None if unlabelled."""

    id: str
    image: NDArray[Any]
    truth: int | NDArray[np.uint8] | None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A file of a download that cannot be used, or not as it is, and why."""

    file: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What was found in a download, by names and tables alone."""

    drafts: Sequence[Draft]
    findings: Sequence[Finding] = ()
    """What is wrong: the set is refused, or prepared without these files if the user says so."""
    absent: Sequence[str] = ()
    """Sites that the data set has and this folder has not: a warning."""
    remarks: Sequence[str] = ()
    """What a user should know, a sentence each; kept in the manifest."""


class UnfitError(Exception):
    """A draft cannot be decoded; the message is the problem, as a finding words it.

    `file` is the one at fault where that is not the draft's image.
    """

    def __init__(self, problem: str, *, file: Path | None = None) -> None:
        super().__init__(problem)
        self.file = file


class Download(ABC):
    """A data set as its owners publish it; one file a data set, registered by name.

    Instances are sent to other processes, so they hold plain values only.
    """

    name: ClassVar[str]
    task: ClassVar[Task]
    classes: ClassVar[tuple[str, ...]]
    size: ClassVar[int]
    """Height and width in pixels, as in the paper."""
    version: ClassVar[int] = 1
    """To be raised when other pixels, labels or splits come of the same files."""
    channels: ClassVar[int] = 3
    dtype: ClassVar[str] = "uint8"
    fitting: ClassVar[Fitting | None] = None
    """How `read` fits a picture to the size, so that `feal predict` does the same; None: it is not told."""
    regions: ClassVar[Mapping[str, tuple[int, ...]]] = {}
    """Segmentation: unions of classes that are judged by name (optic disc = rim and cup), if not each class."""

    @abstractmethod
    def scan(self, folder: Path) -> Scan:
        """Find the samples by file names and tables, without decoding a picture.

        Raises:
            FealError: the folder does not hold this data set; the sentence says what it should hold.
        """

    @abstractmethod
    def read(self, draft: Draft, *, size: int) -> Sequence[Piece]:
        """Decode one draft and preprocess it to `size` x `size` pixels, as the paper does.

        Raises:
            UnfitError: the file is missing, unreadable, of an odd size or mode, or a value is outside the mapping.
        """
