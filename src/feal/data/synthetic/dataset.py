"""What the synthetic data sets share: their parameters and the way they are written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from feal.data.synthetic.centres import NAMES, share_of
from feal.data.synthetic.cohort import Case, cohort
from feal.data.writing import PreparedWriter, SiteWriter
from feal.errors import FealError
from feal.settings import Task

_CHUNK = 128


@dataclass(frozen=True, kw_only=True)
class SyntheticSet(ABC):
    """A data set drawn by rule; the same parameters always give the same bytes.

    `train` is the number of training samples of the largest centre (the others have 0.8, 0.6 and 0.45 of it),
    `test` that of every centre's test samples, `size` height and width, `given` the share of training samples
    that are labelled from the start.

    Raises:
        FealError: a parameter out of its range.
    """

    name: ClassVar[str]
    task: ClassVar[Task]
    version: ClassVar[int]

    seed: int = 0
    sites: int = 4
    train: int = 600
    test: int = 200
    size: int = 32
    given: float = 0.0

    def __post_init__(self) -> None:
        self._check("seed", 0, 2**63 - 1)
        self._check("sites", 1, len(NAMES))
        self._check("train", 1, 10**6)
        self._check("test", 0, 10**6)
        self._check("size", 32, 512)
        self._check("given", 0.0, 1.0)

    @property
    @abstractmethod
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of their numbers."""

    @abstractmethod
    def draw(self, site: str, case: Case) -> tuple[NDArray[np.uint8], Any]:
        """The picture [3, size, size] of a case and its truth: a class, or a mask [size, size]."""

    def cases(self, site: str) -> list[Case]:
        """The samples of a centre, the training part first."""
        counts = {"train": max(1, round(self.train * share_of(site))), "test": self.test}
        address = (self.name, self.seed)
        return [
            case
            for split, count in counts.items()
            for case in cohort(address, site=site, split=split, count=count, given=self.given)
        ]

    def write(self, root: Path) -> None:
        """Draw the data set and write it as a prepared folder."""
        with PreparedWriter(
            root,
            name=self.name,
            task=self.task,
            classes=self.class_names,
            channels=3,
            height=self.size,
            width=self.size,
            source={"version": self.version, "parameters": asdict(self)},
        ) as writer:
            for site in NAMES[: self.sites]:
                self._write_site(writer.site(site))

    def _write_site(self, writer: SiteWriter) -> None:
        cases = self.cases(writer.name)
        for start in range(0, len(cases), _CHUNK):
            part = cases[start : start + _CHUNK]
            images, truths = zip(*(self.draw(writer.name, case) for case in part), strict=True)
            writer.append(
                ids=[case.id for case in part],
                patients=[case.patient for case in part],
                splits=[case.split for case in part],
                given=[case.given for case in part],
                sources=[case.kind for case in part],
                images=np.stack(images),
                truth=np.stack(truths),
            )

    def _check(self, key: str, low: float, high: float) -> None:
        value = getattr(self, key)
        whole = isinstance(low, int)
        kinds = (int,) if whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
            raise FealError(
                f"The parameter {key}={value!r} of data set '{self.name}' is not possible: "
                f"use a {'whole ' if whole else ''}number from {low} to {high}."
            )


def as_pixels(picture: NDArray[np.float64]) -> NDArray[np.uint8]:
    """A picture with values about [0, 1] as 8-bit pixels."""
    pixels: NDArray[np.uint8] = (np.clip(picture, 0.0, 1.0) * 255 + 0.5).astype(np.uint8)
    return pixels
