"""Who gives the labels: the question, the answer, and the contract between a site and its annotator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from feal.data import PreparedSite
from feal.registry import Registry


@dataclass(frozen=True, kw_only=True)
class Query:
    """A sample whose label is wanted, and why it was chosen."""

    sample: str
    round: int
    rank: int
    score: float
    model: str
    """Hash of the global weights that it was chosen by; empty for the first random labels."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A label (classification) or a mask of class numbers (segmentation) for one sample."""

    sample: str
    label: int | NDArray[np.uint8]
    by: str


class Annotator(Protocol):
    """Somebody who answers queries, at once or later."""

    def __init__(self, site: PreparedSite) -> None: ...

    def check(self, *, allow_single_class: bool) -> None:
        """Raise a `FealError` if no sensible label can come from here, as far as is known beforehand."""

    def ask(self, queries: Sequence[Query]) -> list[Answer]:
        """Put the queries to the annotator and return the answers that are there at once.

        After a kill the same queries are put again, so asking twice must be like asking once.
        """

    def poll(self, samples: Sequence[str]) -> list[Answer]:
        """The answers that have come since, for samples still pending."""


ANNOTATORS: Registry[type[Annotator]] = Registry("annotator")


def as_label(truth: NDArray[np.integer] | np.integer) -> int | NDArray[np.uint8]:
    """A class number, or a mask of them as stored values."""
    return truth.astype(np.uint8) if isinstance(truth, np.ndarray) and truth.ndim else int(truth)
