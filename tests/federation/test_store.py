import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from feal.annotation import Answer, Query
from feal.errors import FealError
from feal.federation.store import Memory, Store, TensorFile


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "site.sqlite")
    yield store
    store.close()


def _query(sample: str, rank: int = 1) -> Query:
    return Query(sample=sample, round=1, rank=rank, score=0.5, model="m")


def test_memory_round_trip(store: Store) -> None:
    assert store.memory() == Memory()
    memory = Memory(
        key="k",
        position=(1, 0, 3),
        reply="{}",
        local=TensorFile("models/a", "00"),
        optimizer_round=1,
        sends_local=True,
    )
    with store.transaction():
        store.remember(memory)
    assert store.memory() == memory


def test_labels_come_sorted_and_only_when_answered(store: Store) -> None:
    with store.transaction():
        store.add_queries([_query("c"), _query("a", 2), _query("b", 3)])
        store.add_answers([Answer(sample=s, label=n, by="me") for s, n in (("c", 2), ("a", 0))])
    assert store.labelled() == ["a", "c"]
    assert store.class_labels().tolist() == [0, 2]
    assert store.pending() == ["b"]
    assert store.asked() == {"a", "b", "c"}


def test_masks_come_back_to_the_pixel(store: Store) -> None:
    masks = np.random.default_rng(0).integers(0, 3, (2, 7, 5)).astype(np.uint8)
    with store.transaction():
        store.add_queries([_query("a"), _query("b")])
        store.add_answers([Answer(sample=s, label=m, by="me") for s, m in zip("ba", masks, strict=True)])
    assert np.array_equal(np.stack(list(store.masks())), masks[::-1])


def test_a_second_answer_corrects_the_first_and_is_counted(store: Store) -> None:
    with store.transaction():
        store.add_queries([_query("a")])
        store.add_answers([Answer(sample="a", label=1, by="me")])
        store.add_answers([Answer(sample="a", label=2, by="you")])
    assert store.class_labels().tolist() == [2]
    with sqlite3.connect(store.path) as connection:
        assert connection.execute("SELECT corrected, answered_by FROM labels").fetchall() == [(1, "you")]
    connection.close()


def test_a_sample_cannot_be_asked_for_twice_and_the_transaction_is_undone(store: Store) -> None:
    with store.transaction():
        store.add_queries([_query("a")])
    with pytest.raises(sqlite3.IntegrityError), store.transaction():
        store.add_queries([_query("b"), _query("a")])
    assert store.asked() == {"a"}


def test_store_belongs_to_one_run_and_its_data(store: Store) -> None:
    assert not store.admitted()
    store.admit(run="one", data="d", settings="{}")
    assert store.admitted()
    store.admit(run="one", data="d", settings='{"rounds": 8}')
    assert store.settings() == '{"rounds": 8}'
    with pytest.raises(FealError, match="belongs to another run"):
        store.admit(run="two", data="d", settings="{}")
    with pytest.raises(FealError, match="data .* changed"):
        store.admit(run="one", data="e", settings="{}")


def test_before_a_join_there_are_no_settings(store: Store) -> None:
    with pytest.raises(FealError, match="must be joined"):
        store.settings()


def test_a_damaged_file_is_said(tmp_path: Path) -> None:
    path = tmp_path / "site.sqlite"
    path.write_bytes(b"this was a database once" * 100)
    with pytest.raises(FealError, match=r"site\.sqlite cannot be used"):
        Store(path)


def test_a_locked_file_is_said(tmp_path: Path) -> None:
    store = Store(tmp_path / "site.sqlite")
    store._connection.execute("PRAGMA busy_timeout = 1")
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(FealError, match="Another program holds"):
        store.admit(run="r", data="d", settings="{}")
    other.close()
    store.close()


def test_a_full_disk_is_said_and_nothing_of_the_transaction_stays(store: Store) -> None:
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(FealError, match=r"no space left to write .*site\.sqlite"), store.transaction():
        store.add_queries([_query(f"sample {number}" * 50) for number in range(500)])
    assert store.asked() == set()
