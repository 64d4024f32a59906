"""A site's truth on its disk: labels, queries and answers, and the last message, in one SQLite file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feal.annotation import Answer, Query
from feal.errors import FealError, RefusalError
from feal.federation import history
from feal.federation.history import Record, Standing
from feal.files import unwritable

_SCHEMA = """
CREATE TABLE IF NOT EXISTS site (only INTEGER PRIMARY KEY CHECK (only = 0), run TEXT, data TEXT, settings TEXT);
CREATE TABLE IF NOT EXISTS memory (only INTEGER PRIMARY KEY CHECK (only = 0), content TEXT NOT NULL);
"""
BUSY_SECONDS = 5.0
"""How long another program may hold the file before that is a failure."""
# A sample that cannot be labelled is answered with neither.
_LABELLED = "(label IS NOT NULL OR mask IS NOT NULL)"


@dataclass(frozen=True)
class TensorFile:
    """A file of tensors as the store knows it: its name below the site's folder and its checksum."""

    name: str
    sha256: str


@dataclass(frozen=True)
class Closed:
    """The models that an active-learning round ended with."""

    round: int
    global_: TensorFile
    local: TensorFile


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
    initial: TensorFile | None = None
    """The weights that the run began with, for strategies that want them."""
    closed: tuple[Closed, ...] = ()
    """The last rounds' models, for strategies that want those: the last two, as the last may be closed anew."""

    def before(self, round_: int) -> Closed | None:
        """What the round before that one ended with."""
        return next((closed for closed in reversed(self.closed) if closed.round < round_), None)

    def files(self) -> set[str]:
        """The names of all files that are remembered."""
        ended = [file for closed in self.closed for file in (closed.global_, closed.local)]
        return {file.name for file in (self.local, self.optimizer, self.initial, *ended) if file is not None}


class Store:
    """One run's records at one site; every change is one transaction.

    `read_only` never changes the file and works beside a run that holds it.

    Raises:
        FealError: the file cannot be read, or belongs to another run.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        if not read_only:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise unwritable(path.parent, error) from error
        with self._translated():
            where = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
            self._connection = sqlite3.connect(where, uri=True, isolation_level=None, timeout=BUSY_SECONDS)
            if read_only:
                self._connection.execute("SELECT sample FROM labels LIMIT 1").fetchall()
                return
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.executescript(_SCHEMA + history.SCHEMA)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def admit(self, *, run: str, data: str, settings: str) -> None:
        """Tie the store to a run and its data, or check that it is tied to these."""
        with self._translated():
            row = self._connection.execute("SELECT run, data FROM site").fetchone()
        if row is not None and row[0] != run:
            raise RefusalError(
                f"What site {self.path.parent.name} keeps belongs to another run, of another configuration "
                f"({row[0]}, not {run}): go on with that one's folder, or choose another for this one."
            )
        if row is not None and row[1] != data:
            raise FealError(
                f"The prepared data behind {self.path} changed since the run began: put them back, or start anew."
            )
        with self.transaction():
            self._connection.execute("INSERT OR REPLACE INTO site VALUES (0, ?, ?, ?)", (run, data, settings))

    def admitted(self) -> bool:
        """Whether the store belongs to a run already."""
        return bool(self._select("SELECT run FROM site"))

    def data(self) -> str | None:
        """The digest of the prepared data that the run has had here; None before it was joined."""
        rows = self._select("SELECT data FROM site")
        return str(rows[0][0]) if rows else None

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
        return _memory(json.loads(row[0]))

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
        """Note what was answered (inside a transaction).

        A second answer to a sample corrects the first, which is kept as superseded.
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
            [(*history.pack(answer.label), now, answer.by, answer.sample) for answer in answers],
        )

    def asked(self) -> set[str]:
        """Every sample ever asked for."""
        return {row[0] for row in self._select("SELECT sample FROM labels")}

    def pending(self) -> list[str]:
        """Samples asked for and not answered, sorted."""
        return self._samples("answered IS NULL")

    def answered(self) -> list[str]:
        """Samples with an answer of any kind, sorted."""
        return self._samples("answered IS NOT NULL")

    def declined(self) -> int:
        """How many samples annotators could not label."""
        statement = f"SELECT count(*) FROM labels WHERE answered IS NOT NULL AND NOT {_LABELLED}"
        return int(self._select(statement)[0][0])

    def question(self, round_: int) -> tuple[int, int]:
        """How many samples were asked for in a round, and how many of them are not answered."""
        statement = "SELECT count(*), count(*) - count(answered) FROM labels WHERE round = ?"
        asked, pending = self._select(statement, round_)[0]
        return int(asked), int(pending)

    def changed(self, answers: Sequence[Answer]) -> list[Answer]:
        """The answers that say something else than what is stored; who says it does not matter."""
        return [answer for answer in answers if not self._holds(answer)]

    def labelled(self) -> list[str]:
        """Samples with a label, sorted."""
        return self._samples(_LABELLED)

    def class_labels(self) -> NDArray[np.int64]:
        """Class numbers of the labelled samples [n], in their order."""
        rows = self._select(f"SELECT label FROM labels WHERE {_LABELLED} ORDER BY sample")
        return np.array(rows, dtype=np.int64).reshape(-1)

    def masks(self) -> Iterator[NDArray[np.uint8]]:
        """Masks of the labelled samples [height, width], one after the other in their order."""
        statement = f"SELECT label, mask, height, width FROM labels WHERE {_LABELLED} ORDER BY sample"
        with self._translated():
            rows = self._connection.execute(statement)
        for row in rows:
            yield np.asarray(history.unpack(*row), dtype=np.uint8)

    def mask(self, sample: str) -> NDArray[np.uint8]:
        """The mask [height, width] of one labelled sample."""
        ((*columns,),) = self._select("SELECT label, mask, height, width FROM labels WHERE sample = ?", sample)
        return np.asarray(history.unpack(*columns), dtype=np.uint8)

    def standing(self) -> Standing:
        """How the labels of each round stand."""
        with self._translated():
            return history.read_standing(self._connection)

    def records(self) -> Iterator[Record]:
        """Every question with its answer, and every answer that another one superseded."""
        with self._translated():
            yield from history.read_records(self._connection)

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

    def _holds(self, answer: Answer) -> bool:
        statement = "SELECT label, mask, height, width FROM labels WHERE sample = ? AND answered IS NOT NULL"
        return any(
            history.same(answer.label, history.unpack(*row)) for row in self._select(statement, answer.sample)
        )

    def _samples(self, condition: str) -> list[str]:
        return [row[0] for row in self._select(f"SELECT sample FROM labels WHERE {condition} ORDER BY sample")]

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
            elif "readonly" in str(error):
                what = f"A run was stopped while it wrote {self.path}: go on with `feal resume`, then repeat this."
            elif "locked" in str(error):
                what = f"Another program holds {self.path}: close it and repeat the command."
            else:
                what = f"{self.path} cannot be used ({error}): put it back from a copy, or start a new run."
            raise FealError(what) from error


def _memory(content: dict[str, Any]) -> Memory:
    files = {name: _file(content.get(name)) for name in ("local", "optimizer", "initial")}
    closed = tuple(
        Closed(entry["round"], TensorFile(**entry["global_"]), TensorFile(**entry["local"]))
        for entry in content.get("closed", ())
    )
    return Memory(**{**content, **files, "closed": closed, "position": tuple(content["position"])})


def _file(content: dict[str, str] | None) -> TensorFile | None:
    return TensorFile(**content) if content else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
