"""Who gives the labels: the question, the answer, and the contract between a site and its annotator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
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
    """A label (classification), a mask of class numbers (segmentation), or None: it cannot be labelled."""

    sample: str
    label: int | NDArray[np.uint8] | None
    by: str


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """An answer that was not taken, and why, in words for the annotator."""

    where: str
    sample: str
    """As it is written there; may be empty."""
    why: str


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What an annotator has said so far."""

    answers: Sequence[Answer] = ()
    refusals: Sequence[Refusal] = ()


Draw = Callable[[Sequence[str]], NDArray[np.uint8]]
"""The model's own masks [n, height, width] for samples, as class numbers."""


class Annotator(Protocol):
    """Somebody who answers queries, at once or later; keeps what it must remember in files below `folder`."""

    def __init__(self, site: PreparedSite, *, folder: Path) -> None: ...

    def check(self, *, allow_single_class: bool) -> None:
        """Raise a `FealError` if no sensible label can come from here, as far as is known beforehand."""

    def ask(self, queries: Sequence[Query], *, draw: Draw | None) -> None:
        """Put the queries to the annotator.

        After a kill the same queries are put again: asking twice is like asking once. `draw` gives pre-drawn
        masks (segmentation, from round 2 on).
        """

    def poll(self, *, pending: Sequence[str], answered: Sequence[str]) -> Gathered:
        """Every acceptable answer that is there now, for samples asked for: pending ones and, as corrections,
        answered ones; what is not acceptable is refused by name."""


ANNOTATORS: Registry[type[Annotator]] = Registry("annotator")


def as_label(truth: NDArray[np.integer] | np.integer) -> int | NDArray[np.uint8]:
    """A class number, or a mask of them as stored values."""
    return truth.astype(np.uint8) if isinstance(truth, np.ndarray) and truth.ndim else int(truth)
