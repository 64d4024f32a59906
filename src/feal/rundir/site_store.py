"""Keep what one site knows of a run in one SQLite file: its labels, and its state after the last message."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feal.annotation import Answer, Query
from feal.errors import FealError, ShareableError
from feal.fileio import write_error
from feal.rundir.layout import SiteDirectory
from feal.rundir.site_state import ModelFiles, SiteState

Label = int | NDArray[np.uint8] | None

_SCHEMA = """
CREATE TABLE IF NOT EXISTS site (only INTEGER PRIMARY KEY CHECK (only = 0), run TEXT, data TEXT, settings TEXT);
CREATE TABLE IF NOT EXISTS memory (only INTEGER PRIMARY KEY CHECK (only = 0), content TEXT NOT NULL);
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
# A sample that cannot be labelled is answered with neither a label nor a mask.
_LABELLED = "(label IS NOT NULL OR mask IS NOT NULL)"
_BY_ROUND = f"""
SELECT round, count(*), count(answered), sum(answered IS NOT NULL AND NOT {_LABELLED}), sum(corrected > 0),
    min(coalesce((SELECT min(past.answered) FROM superseded AS past WHERE past.sample = labels.sample), answered)),
    max(answered)
FROM labels GROUP BY round ORDER BY round
"""
_BUSY_SECONDS = 5.0
"""How long another program may lock the file before that is an error."""


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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


class Store:
    """The database of one site, with the models beside it; every change is one transaction.

    With `read_only` the file is never changed, and may be in use by a run.

    Raises:
        FealError: the file cannot be read, or belongs to another run.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self.directory = SiteDirectory(path.parent)
        self.models = ModelFiles(self.directory)
        if not read_only:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise write_error(path.parent, error) from error
        with self._explained():
            where = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
            self._connection = sqlite3.connect(where, uri=True, isolation_level=None, timeout=_BUSY_SECONDS)
            if read_only:
                self._connection.execute("SELECT labels.sample FROM labels, superseded LIMIT 1").fetchall()
                return
            # With a journal file that stays, a commit is durable when it returns: no deletion has to be. A
            # write-ahead log would be faster, but not over a network, and readers would need to write to it.
            self._connection.execute("PRAGMA journal_mode = PERSIST")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.executescript(f"BEGIN; {_SCHEMA} COMMIT;")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def admit(self, *, run: str, data: str, settings: str) -> None:
        """Assign the store to a run and its data, or check that it belongs to these.

        Raises:
            FealError: it belongs to another run or to other data.
        """
        before = self._site()
        if before is not None and before[0] != run:
            raise ShareableError(
                f"The directory of site {self.path.parent.name} belongs to another run with another configuration "
                f"({before[0]}, not {run}): resume that run, or choose another directory for this one."
            )
        if before is not None and before[1] != data:
            raise FealError(
                f"The prepared data of {self.path} changed since the run started: restore them, or start another."
            )
        if before != (run, data, settings):
            with self.transaction():
                self._connection.execute("INSERT OR REPLACE INTO site VALUES (0, ?, ?, ?)", (run, data, settings))

    def data_digest(self) -> str | None:
        """Return the digest of the prepared data that the run uses here; None before it was joined."""
        site = self._site()
        return site[1] if site else None

    def settings(self) -> str:
        """Return the configuration of the last join, as JSON."""
        site = self._site()
        if site is None:
            raise FealError(f"{self.path} belongs to no run yet: a site must be joined before any other message.")
        return site[2]

    def state(self) -> SiteState:
        """Return the state after the last message."""
        rows = self._select("SELECT content FROM memory")
        return SiteState.from_json(rows[0][0], path=self.path) if rows else SiteState()

    def save_state(self, state: SiteState) -> None:
        """Replace the state (inside a transaction)."""
        self._connection.execute("INSERT OR REPLACE INTO memory VALUES (0, ?)", (state.to_json(),))

    def add_queries(self, queries: Sequence[Query]) -> None:
        """Add queries (inside a transaction); a sample can be queried only once."""
        now = _now()
        self._connection.executemany(
            "INSERT INTO labels (sample, round, rank, score, model, asked) VALUES (?, ?, ?, ?, ?, ?)",
            [(query.sample, query.round, query.rank, query.score, query.model, now) for query in queries],
        )

    def add_answers(self, answers: Sequence[Answer]) -> None:
        """Add answers (inside a transaction).

        A second answer for a sample corrects the first, which is kept as superseded.
        """
        now = _now()
        self._connection.executemany(
            "INSERT INTO superseded SELECT sample, label, mask, height, width, answered, answered_by "
            "FROM labels WHERE sample = ? AND answered IS NOT NULL",
            [(answer.sample,) for answer in answers],
        )
        self._connection.executemany(
            "UPDATE labels SET corrected = corrected + (answered IS NOT NULL), label = ?, mask = ?, height = ?, "
            "width = ?, answered = ?, answered_by = ? WHERE sample = ?",
            [(*_pack(answer.label), now, answer.by, answer.sample) for answer in answers],
        )

    def queried(self) -> set[str]:
        """Return every sample that was ever queried."""
        return {row[0] for row in self._select("SELECT sample FROM labels")}

    def pending(self) -> list[str]:
        """Return the samples that were queried and not answered, sorted."""
        return self._samples("answered IS NULL")

    def answered(self) -> list[str]:
        """Return the samples with an answer of any kind, sorted."""
        return self._samples("answered IS NOT NULL")

    def find_new(self, answers: Sequence[Answer]) -> list[Answer]:
        """Return the answers that differ from those stored; who gave them does not matter."""
        return [answer for answer in answers if not self._holds(answer)]

    def labelled(self) -> list[str]:
        """Return the samples with a label, sorted."""
        return self._samples(_LABELLED)

    def class_labels(self) -> NDArray[np.int64]:
        """Return the class numbers of the labelled samples [n], in their order."""
        rows = self._select(f"SELECT label FROM labels WHERE {_LABELLED} ORDER BY sample")
        return np.array(rows, dtype=np.int64).reshape(-1)

    def class_counts(self, classes: int) -> NDArray[np.int64]:
        """Count the labelled samples (or pixels) of each class, [classes]."""
        statement = f"SELECT label, mask, height, width FROM labels WHERE {_LABELLED}"
        with self._explained():
            rows = self._connection.execute(statement)
        counts = np.zeros(classes, dtype=np.int64)
        for row in rows:
            counts += np.bincount(np.asarray(_unpack(*row)).ravel(), minlength=classes)
        return counts

    def labels_version(self) -> tuple[int, ...]:
        """Return numbers that change whenever a label is added or corrected."""
        return self._select("SELECT count(*), count(answered), coalesce(sum(corrected), 0) FROM labels")[0]

    def mask(self, sample: str) -> NDArray[np.uint8]:
        """Return the mask [height, width] of one labelled sample."""
        (columns,) = self._select("SELECT label, mask, height, width FROM labels WHERE sample = ?", sample)
        return np.asarray(_unpack(*columns), dtype=np.uint8)

    def labels_by_round(self) -> dict[int, RoundLabels]:
        """Count queries and answers by the round they are for."""
        return {round_: RoundLabels(*counts) for round_, *counts in self._select(_BY_ROUND)}

    def records(self) -> Iterator[LabelRecord]:
        """Yield every query by round and rank, with the answers that were superseded before the one that counts.

        One sample is read at a time: a reader that locked the file throughout would keep a run from writing.
        """
        queries = "SELECT sample, round, rank, score, model, asked FROM labels ORDER BY round, rank, sample"
        answer = "SELECT label, mask, height, width, answered, answered_by"
        for query in self._select(queries):
            past = self._select(f"{answer}, 0, 1 FROM superseded WHERE sample = ? ORDER BY rowid", query[0])
            current = self._select(f"{answer}, corrected, 0 FROM labels WHERE sample = ?", query[0])
            for *label, answered, by, corrected, superseded in (*past, *current):
                yield LabelRecord(*(*query, _unpack(*label), answered, by, corrected, bool(superseded)))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Apply all of the changes inside, or none."""
        with self._explained():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.commit()
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def commit(self) -> None:
        """Make the transaction's changes durable."""
        self._connection.execute("COMMIT")

    def _holds(self, answer: Answer) -> bool:
        statement = "SELECT label, mask, height, width FROM labels WHERE sample = ? AND answered IS NOT NULL"
        return any(_is_same(answer.label, _unpack(*row)) for row in self._select(statement, answer.sample))

    def _site(self) -> tuple[str, str, str] | None:
        """Return run, data and settings that the store belongs to."""
        rows: list[Any] = self._select("SELECT run, data, settings FROM site")
        return rows[0] if rows else None

    def _samples(self, condition: str) -> list[str]:
        return [row[0] for row in self._select(f"SELECT sample FROM labels WHERE {condition} ORDER BY sample")]

    def _select(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self._explained():
            return self._connection.execute(statement, values).fetchall()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except sqlite3.DatabaseError as error:
            known = {
                "full": f"No space left to write {self.path}: free some and repeat the command.",
                "disk I/O": f"No space left to write {self.path}: free some and repeat the command.",
                "readonly": f"A run was stopped while it wrote {self.path}: `feal resume` it, then repeat this.",
                "locked": f"Another program has locked {self.path}: close it and repeat the command.",
            }
            other = f"{self.path} cannot be used ({error}): restore it from a copy, or start a new run."
            raise FealError(next((known[word] for word in known if word in str(error)), other)) from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _pack(label: Label) -> tuple[int | None, bytes | None, int | None, int | None]:
    """Return a label as the columns label, mask, height, width; all empty where a sample cannot be labelled."""
    if isinstance(label, np.ndarray):
        return None, zlib.compress(label.astype(np.uint8).tobytes(), 1), label.shape[0], label.shape[1]
    return label if label is None else int(label), None, None, None


def _unpack(label: int | None, mask: bytes | None, height: int | None, width: int | None) -> Label:
    if mask is None or height is None or width is None:
        return label
    return np.frombuffer(zlib.decompress(mask), dtype=np.uint8).reshape(height, width)


def _is_same(one: Label, other: Label) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return type(one) is type(other) and one == other
