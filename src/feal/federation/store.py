"""A site's truth on its disk: labels, queries and answers, and the last message, in one SQLite file."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feal.annotation import Answer, Query
from feal.errors import FealError
from feal.files import unwritable

_SCHEMA = """
CREATE TABLE IF NOT EXISTS site (only INTEGER PRIMARY KEY CHECK (only = 0), run TEXT, data TEXT, settings TEXT);
CREATE TABLE IF NOT EXISTS memory (only INTEGER PRIMARY KEY CHECK (only = 0), content TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS labels (
    sample TEXT PRIMARY KEY,
    round INTEGER NOT NULL, rank INTEGER NOT NULL, score REAL NOT NULL, model TEXT NOT NULL, asked TEXT NOT NULL,
    label INTEGER, mask BLOB, height INTEGER, width INTEGER,
    answered TEXT, answered_by TEXT, corrected INTEGER NOT NULL DEFAULT 0
);
"""


@dataclass(frozen=True)
class TensorFile:
    """A file of tensors as the store knows it: its name below the site's folder and its checksum."""

    name: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What a site remembers from one message to the next."""

    key: str = ""
    position: tuple[int, int, int] = (-1, 0, 0)
    """Active-learning round, whether it is being closed, communication round: a later message has a larger one."""
    reply: str = ""
    """The last reply's fields, in case the same message comes again."""
    local: TensorFile | None = None
    optimizer: TensorFile | None = None
    optimizer_round: int = 0
    sends_local: bool = False
    """Whether the last reply carries the local model's weights."""


class Store:
    """One run's records at one site; every change is one transaction.

    Raises:
        FealError: the file cannot be read, or belongs to another run.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(path.parent, error) from error
        with self._translated():
            self._connection = sqlite3.connect(path, isolation_level=None, timeout=10)
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.executescript(_SCHEMA)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def admit(self, *, run: str, data: str, settings: str) -> None:
        """Tie the store to a run and its data, or check that it is tied to these."""
        with self._translated():
            row = self._connection.execute("SELECT run, data FROM site").fetchone()
        if row is not None and row[0] != run:
            raise FealError(f"{self.path} belongs to another run ({row[0]}, not {run}): choose another folder.")
        if row is not None and row[1] != data:
            raise FealError(
                f"The prepared data behind {self.path} changed since the run began: put them back, or start anew."
            )
        with self.transaction():
            self._connection.execute("INSERT OR REPLACE INTO site VALUES (0, ?, ?, ?)", (run, data, settings))

    def admitted(self) -> bool:
        """Whether the store belongs to a run already."""
        return bool(self._select("SELECT run FROM site"))

    def settings(self) -> str:
        """The configuration of the last join, as JSON."""
        with self._translated():
            row = self._connection.execute("SELECT settings FROM site").fetchone()
        if row is None:
            raise FealError(f"{self.path} knows no run yet: a site must be joined before anything else.")
        return str(row[0])

    def memory(self) -> Memory:
        """What the last message left."""
        with self._translated():
            row = self._connection.execute("SELECT content FROM memory").fetchone()
        if row is None:
            return Memory()
        content = json.loads(row[0])
        for name in ("local", "optimizer"):
            content[name] = TensorFile(**content[name]) if content[name] else None
        return Memory(**{**content, "position": tuple(content["position"])})

    def remember(self, memory: Memory) -> None:
        """Replace the memory (inside a transaction)."""
        content = json.dumps(asdict(memory), sort_keys=True)
        self._connection.execute("INSERT OR REPLACE INTO memory VALUES (0, ?)", (content,))

    def add_queries(self, queries: Sequence[Query]) -> None:
        """Note what is asked (inside a transaction); a sample can be asked for once only."""
        now = _now()
        self._connection.executemany(
            "INSERT INTO labels (sample, round, rank, score, model, asked) VALUES (?, ?, ?, ?, ?, ?)",
            [(query.sample, query.round, query.rank, query.score, query.model, now) for query in queries],
        )

    def add_answers(self, answers: Sequence[Answer]) -> None:
        """Note what was answered (inside a transaction); a second answer to a sample corrects the first."""
        now = _now()
        self._connection.executemany(
            "UPDATE labels SET corrected = corrected + (answered IS NOT NULL), label = ?, mask = ?, height = ?, "
            "width = ?, answered = ?, answered_by = ? WHERE sample = ?",
            [(*_columns(answer.label), now, answer.by, answer.sample) for answer in answers],
        )

    def asked(self) -> set[str]:
        """Every sample ever asked for."""
        return {row[0] for row in self._select("SELECT sample FROM labels")}

    def pending(self) -> list[str]:
        """Samples asked for and not answered, sorted."""
        return [row[0] for row in self._select("SELECT sample FROM labels WHERE answered IS NULL ORDER BY sample")]

    def answered(self) -> list[str]:
        """Samples with an answer of any kind, sorted."""
        rows = self._select("SELECT sample FROM labels WHERE answered IS NOT NULL ORDER BY sample")
        return [row[0] for row in rows]

    def declined(self) -> int:
        """How many samples annotators could not label."""
        statement = "SELECT count(*) FROM labels WHERE answered IS NOT NULL AND label IS NULL AND mask IS NULL"
        return int(self._select(statement)[0][0])

    def question(self, round_: int) -> tuple[int, int]:
        """How many samples were asked for in a round, and how many of them are not answered."""
        statement = "SELECT count(*), count(*) - count(answered) FROM labels WHERE round = ?"
        asked, pending = self._select(statement, round_)[0]
        return int(asked), int(pending)

    def changed(self, answers: Sequence[Answer]) -> list[Answer]:
        return list(answers)

    def labelled(self) -> list[str]:
        """Samples with an answer, sorted."""
        rows = self._select("SELECT sample FROM labels WHERE answered IS NOT NULL ORDER BY sample")
        return [row[0] for row in rows]

    def class_labels(self) -> NDArray[np.int64]:
        """Class numbers of the labelled samples [n], in their order."""
        rows = self._select("SELECT label FROM labels WHERE answered IS NOT NULL ORDER BY sample")
        return np.array([row[0] for row in rows], dtype=np.int64)

    def masks(self) -> Iterator[NDArray[np.uint8]]:
        """Masks of the labelled samples [height, width], one after the other in their order."""
        statement = "SELECT mask, height, width FROM labels WHERE answered IS NOT NULL ORDER BY sample"
        with self._translated():
            rows = self._connection.execute(statement)
        for mask, height, width in rows:
            yield np.frombuffer(zlib.decompress(mask), dtype=np.uint8).reshape(height, width)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of the changes inside, or none."""
        with self._translated():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.commit()
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def commit(self) -> None:
        """The moment from which the transaction's changes last."""
        self._connection.execute("COMMIT")

    def _select(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self._translated():
            return self._connection.execute(statement, values).fetchall()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except sqlite3.DatabaseError as error:
            if "full" in str(error) or "disk I/O" in str(error):
                what = f"There is no space left to write {self.path}: free some and repeat the command."
            elif "locked" in str(error):
                what = f"Another program holds {self.path}: close it and repeat the command."
            else:
                what = f"{self.path} cannot be used ({error}): put it back from a copy, or start a new run."
            raise FealError(what) from error


def _columns(label: int | NDArray[np.uint8] | None) -> tuple[int | None, bytes | None, int | None, int | None]:
    if isinstance(label, np.ndarray):
        return None, zlib.compress(label.astype(np.uint8).tobytes(), 1), label.shape[0], label.shape[1]
    return label, None, None, None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
