"""Define the tables of a site's labels: queries by round, who answered them, and what was corrected."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Label = int | NDArray[np.uint8] | None

SCHEMA = """
CREATE TABLE IF NOT EXISTS labels (
    sample TEXT PRIMARY KEY,
    round INTEGER NOT NULL, rank INTEGER NOT NULL, score REAL NOT NULL, model TEXT NOT NULL, asked TEXT NOT NULL,
    label INTEGER, mask BLOB, height INTEGER, width INTEGER,
    answered TEXT, answered_by TEXT, corrected INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS superseded (
    sample TEXT NOT NULL, label INTEGER, mask BLOB, height INTEGER, width INTEGER, answered TEXT, answered_by TEXT
);
CREATE INDEX IF NOT EXISTS superseded_sample ON superseded (sample);
"""

_BY_ROUND = """
SELECT round, count(*), count(answered), sum(answered IS NOT NULL AND label IS NULL AND mask IS NULL),
    sum(corrected > 0), min(answered), max(answered)
FROM labels GROUP BY round ORDER BY round
"""
_FIRST = "SELECT round, min(past.answered) FROM superseded AS past JOIN labels USING (sample) GROUP BY round"
_ASKED = "SELECT sample, round, rank, score, model, asked FROM labels ORDER BY round, rank, sample"
_ANSWER = "SELECT label, mask, height, width, answered, answered_by, corrected FROM labels WHERE sample = ?"
_PAST = (
    "SELECT label, mask, height, width, answered, answered_by, 0 FROM superseded WHERE sample = ? ORDER BY rowid"
)


@dataclass(frozen=True, kw_only=True)
class RoundLabels:
    """Counts of the samples queried for one round, and of their answers."""

    asked: int
    answered: int
    """Labelled or declined."""
    declined: int
    """Those of the answered that cannot be labelled."""
    corrected: int
    """Samples whose answer was changed."""
    first: str | None
    """Time of the first answer, in UTC."""
    last: str | None

    @property
    def pending(self) -> int:
        """Samples without an answer."""
        return self.asked - self.answered

    @property
    def labelled(self) -> int:
        """Samples with a label or a mask."""
        return self.answered - self.declined


@dataclass(frozen=True, kw_only=True)
class LabelRecord:
    """A queried sample and an answer to it: the one that counts, or one that was superseded."""

    sample: str
    round: int
    rank: int
    score: float
    model: str
    asked: str
    label: Label
    answered: str | None
    by: str | None
    corrected: int
    """How often the answer was corrected; 0 for a superseded one."""
    superseded: bool


def count_by_round(connection: sqlite3.Connection) -> dict[int, RoundLabels]:
    """Count queries and answers by the round they are for."""
    first = dict(connection.execute(_FIRST))
    return {
        row[0]: RoundLabels(
            asked=row[1],
            answered=row[2],
            declined=row[3],
            corrected=row[4],
            first=min((time for time in (row[5], first.get(row[0])) if time), default=None),
            last=row[6],
        )
        for row in connection.execute(_BY_ROUND)
    }


def read_records(connection: sqlite3.Connection) -> Iterator[LabelRecord]:
    """Yield all queried samples in the order of round and rank, each with its superseded answers first.

    One sample is read at a time: a reader that locked the file throughout would keep a run from writing.
    """
    for sample, round_, rank, score, model, asked in connection.execute(_ASKED).fetchall():
        past = connection.execute(_PAST, (sample,)).fetchall()
        current = connection.execute(_ANSWER, (sample,)).fetchall()
        for superseded, row in [*((True, row) for row in past), *((False, row) for row in current)]:
            yield LabelRecord(
                sample=sample,
                round=round_,
                rank=rank,
                score=score,
                model=model,
                asked=asked,
                label=unpack(*row[:4]),
                answered=row[4],
                by=row[5],
                corrected=row[6],
                superseded=superseded,
            )


def pack(label: Label) -> tuple[int | None, bytes | None, int | None, int | None]:
    """Return a label as the columns label, mask, height, width; all empty where a sample cannot be labelled."""
    if isinstance(label, np.ndarray):
        return None, zlib.compress(label.astype(np.uint8).tobytes(), 1), label.shape[0], label.shape[1]
    return label if label is None else int(label), None, None, None


def unpack(label: int | None, mask: bytes | None, height: int | None, width: int | None) -> Label:
    """Return the label of a row's columns."""
    if mask is None or height is None or width is None:
        return label
    return np.frombuffer(zlib.decompress(mask), dtype=np.uint8).reshape(height, width)


def is_same(one: Label, other: Label) -> bool:
    """Return whether two labels are equal."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return type(one) is type(other) and one == other
