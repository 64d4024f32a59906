"""Who is in a centre: patients, how often each was photographed, and how clear a case each is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count as numbers
from itertools import islice

from feal.data.synthetic.fields import addressed

# Fractional parts of its multiples fill [0, 1) evenly from the first one on.
_GOLDEN = 0.6180339887498949

_AMBIGUOUS = 0.2
_SERIES = 0.08


@dataclass(frozen=True, kw_only=True)
class Case:
    """One sample to be drawn; `kind` says what a label of it would be worth.

    `easy`: a clear case; `ambiguous`: between two classes, or hardly to be seen; `redundant`: another picture
    of something that is there already. `rank` in [0, 1) is spread evenly over a centre's patients, so that a
    mix cut out of it is kept by every beginning of the cohort.
    """

    id: str
    patient: str
    split: str
    kind: str
    given: bool
    address: tuple[str | int, ...]
    take: int
    rank: float


def cohort(address: tuple[str | int, ...], *, site: str, split: str, count: int, given: float) -> list[Case]:
    """The first `count` cases of a centre's split; more of them do not change those before.

    >>> few = cohort((0, "lesions"), site="alder", split="train", count=3, given=0.0)
    >>> few == cohort((0, "lesions"), site="alder", split="train", count=9, given=0.0)[:3]
    True
    """
    cases = islice(_cases((*address, site, split), site=site, split=split, given=given), count)
    return list(cases)


def _cases(address: tuple[str | int, ...], *, site: str, split: str, given: float) -> Iterator[Case]:
    start = addressed(*address, "rank").random()
    index = numbers()
    for patient in numbers():
        own = (*address, patient)
        generator = addressed(*own, "course")
        clear, series, length = generator.random(), generator.random(), int(generator.integers(4, 9))
        kind = "ambiguous" if clear < _AMBIGUOUS else "easy"
        # Repeats in the test part would only make its figures noisier.
        repeated = split == "train" and kind == "easy" and series < _SERIES / (1 - _AMBIGUOUS)
        for take in range(length if repeated else 1):
            yield Case(
                id=f"{site}-{split}-{next(index):06d}",
                patient=f"{site}-{split}-p{patient:06d}",
                split=split,
                kind="redundant" if take else kind,
                given=split == "train" and addressed(*own, take, "given").random() < given,
                address=own,
                take=take,
                rank=(start + patient * _GOLDEN) % 1.0,
            )
