"""Define the contract between a site and its annotator: queries, answers and rejections."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from feal.data import PreparedSite
from feal.registry import Parameters, Registry


@dataclass(frozen=True, kw_only=True)
class Query:
    """A sample to be labelled, and why it was selected."""

    sample: str
    round: int
    rank: int
    score: float
    model: str
    """The hash of the global weights that selected it; empty for the first random labels."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A class number, a mask of class numbers, or None if the sample cannot be labelled."""

    sample: str
    label: int | NDArray[np.uint8] | None
    by: str


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """An answer that was not accepted, and the reason, addressed to the annotator."""

    where: str
    reason: str
    sample: str | None = None
    """The queried sample; None if it is not known."""
    written: str = ""
    """The sample as written in the answer."""


@dataclass(frozen=True, kw_only=True)
class PollResult:
    """The answers of an annotator so far."""

    answers: Sequence[Answer] = ()
    rejections: Sequence[Rejection] = ()


Entry = Answer | Rejection

PredictMasks = Callable[[Sequence[str]], NDArray[np.uint8]]
"""A function that returns the model's masks [n, height, width] of class numbers for samples."""


class Annotator(Protocol):
    """A source of labels that answers queries at once or later; its state is kept in files below `folder`."""

    Params: ClassVar[type[Parameters]] = Parameters
    """Its parameters; the coordinator reads `min_share` and `poll_seconds` where an annotator has them."""

    def __init__(self, site: PreparedSite, *, folder: Path) -> None: ...

    def check(self, *, allow_single_class: bool) -> None:
        """Raise a `FealError` if it is known in advance that no useful label can be given."""

    def ask(self, queries: Sequence[Query], *, predict_masks: PredictMasks | None) -> None:
        """Pass the queries to the annotator.

        Asking twice has the effect of asking once, since a killed run asks again. `predict_masks` drafts the
        masks (segmentation, from round 2 on).
        """

    def poll(self, *, pending: Sequence[str], answered: Sequence[str]) -> PollResult:
        """Return all valid answers to pending samples and corrections of answered ones, and reject the rest."""


ANNOTATORS: Registry[type[Annotator]] = Registry("annotator")


def to_label(value: NDArray[np.integer] | np.integer) -> int | NDArray[np.uint8]:
    """Convert a stored label to a class number, or a stored mask to uint8."""
    return value.astype(np.uint8) if isinstance(value, np.ndarray) and value.ndim else int(value)
