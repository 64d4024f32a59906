import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from feal.annotation import Answer, Query
from feal.errors import FealError
from feal.rundir.site_state import SiteState, TensorFile
from feal.rundir.site_store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "site.sqlite")
    yield store
    store.close()


def _query(sample: str, rank: int = 1) -> Query:
    return Query(sample=sample, round=1, rank=rank, score=0.5, model="m")


def test_memory_round_trip(store: Store) -> None:
    assert store.state() == SiteState()
    state = SiteState(
        key="k",
        position=(1, 0, 3),
        reply="{}",
        local=TensorFile("local-0.safetensors", "00"),
        local_round=1,
        sends_local=True,
    )
    with store.transaction():
        store.save_state(state)
    assert store.state() == state


def test_a_state_of_another_version_is_said(store: Store) -> None:
    with store.transaction():
        store._connection.execute('INSERT INTO memory VALUES (0, \'{"key": "k", "optimizer_round": 1}\')')
    with pytest.raises(FealError, match=r"site\.sqlite was written by another version"):
        store.state()


def test_a_read_only_copy_without_its_journal_can_be_read(store: Store, tmp_path: Path) -> None:
    _ask(store, "a")
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(store.path, copy)
    copy.chmod(0o500)
    reader = Store(copy / "site.sqlite", read_only=True)
    assert reader.pending() == ["a"]
    reader.close()
    assert [path.name for path in copy.iterdir()] == ["site.sqlite"]


def test_labels_come_sorted_and_only_when_answered(store: Store) -> None:
    with store.transaction():
        store.add_queries([_query("c"), _query("a", 2), _query("b", 3)])
        store.add_answers([Answer(sample=s, label=n, by="me") for s, n in (("c", 2), ("a", 0))])
    assert store.labelled() == ["a", "c"]
    assert store.class_labels().tolist() == [0, 2]
    assert store.pending() == ["b"]
    assert store.queried() == {"a", "b", "c"}


def test_masks_come_back_to_the_pixel(store: Store) -> None:
    masks = np.random.default_rng(0).integers(0, 3, (2, 7, 5)).astype(np.uint8)
    with store.transaction():
        store.add_queries([_query("a"), _query("b")])
        store.add_answers([Answer(sample=s, label=m, by="me") for s, m in zip("ba", masks, strict=True)])
    assert np.array_equal(np.stack([store.mask(sample) for sample in "ab"]), masks[::-1])
    assert store.class_counts(3).tolist() == np.bincount(masks.ravel(), minlength=3).tolist()


def test_a_second_answer_corrects_the_first_and_is_counted(store: Store) -> None:
    with store.transaction():
        store.add_queries([_query("a")])
        store.add_answers([Answer(sample="a", label=1, by="me")])
        store.add_answers([Answer(sample="a", label=2, by="you")])
    assert store.class_labels().tolist() == [2]
    with sqlite3.connect(store.path) as connection:
        assert connection.execute("SELECT corrected, answered_by FROM labels").fetchall() == [(1, "you")]
    connection.close()


def _answer(store: Store, sample: str, label: object, by: str = "me") -> None:
    with store.transaction():
        store.add_answers([Answer(sample=sample, label=label, by=by)])


def _ask(store: Store, *samples: str, round: int = 1) -> None:
    with store.transaction():
        store.add_queries(
            [
                Query(sample=sample, round=round, rank=rank, score=0.5, model="m")
                for rank, sample in enumerate(samples, start=1)
            ]
        )


def test_what_cannot_be_labelled_is_answered_and_no_label(store: Store) -> None:
    _ask(store, "a", "b", "c")
    _answer(store, "a", None)
    _answer(store, "b", 1)
    assert store.pending() == ["c"]
    assert store.answered() == ["a", "b"]
    assert store.labelled() == ["b"]
    assert store.class_labels().tolist() == [1]
    counts = store.labels_by_round()[1]
    assert (counts.declined, counts.asked, counts.pending) == (1, 3, 1)


def test_masks_leave_out_what_cannot_be_labelled(store: Store) -> None:
    mask = np.arange(6, dtype=np.uint8).reshape(2, 3)
    _ask(store, "a", "b")
    _answer(store, "a", None)
    _answer(store, "b", mask)
    assert store.class_counts(6).tolist() == [1] * 6
    assert store.labelled() == ["b"]
    assert store.labels_by_round()[1].declined == 1


def test_no_label_is_an_empty_array(store: Store) -> None:
    assert store.class_labels().shape == (0,)
    assert store.class_labels().dtype == np.int64


def test_changed_answers_are_those_that_say_something_else(store: Store) -> None:
    mask = np.arange(6, dtype=np.uint8).reshape(2, 3)
    _ask(store, "label", "mask", "cannot", "open")
    _answer(store, "label", 1)
    _answer(store, "mask", mask)
    _answer(store, "cannot", None)
    same = [("label", 1), ("mask", mask.copy()), ("cannot", None)]
    assert store.find_new([Answer(sample=sample, label=label, by="you") for sample, label in same]) == []
    other = [
        ("label", 2),
        ("label", None),
        ("mask", mask.reshape(3, 2)),
        ("mask", mask[::-1]),
        ("mask", None),
        ("cannot", 0),
        ("cannot", mask),
        ("open", None),
        ("open", 0),
        ("never asked", 1),
    ]
    answers = [Answer(sample=sample, label=label, by="me") for sample, label in other]
    assert [id(answer) for answer in store.find_new(answers)] == [id(answer) for answer in answers]


def test_the_history_is_complete(store: Store) -> None:
    mask = np.ones((2, 3), dtype=np.uint8)
    _ask(store, "b", "a", round=2)
    _ask(store, "c")
    for label, by in ((1, "one"), (None, "two"), (mask, "three"), (0, "four")):
        _answer(store, "a", label, by)
    records = list(store.records())
    assert [(record.sample, record.round, record.rank) for record in records] == [
        ("c", 1, 1),
        ("b", 2, 1),
        *[("a", 2, 2)] * 4,
    ]
    assert [record.answered for record in records[:2]] == [None, None]
    assert [(record.by, record.superseded, record.corrected) for record in records[2:]] == [
        ("one", True, 0),
        ("two", True, 0),
        ("three", True, 0),
        ("four", False, 3),
    ]
    assert [record.label for record in records if record.by in ("one", "two", "four")] == [1, None, 0]
    assert np.array_equal(records[4].label, mask)
    assert all(record.answered for record in records[2:])


def test_standing_by_round(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(f"2026-01-0{day}T10:00:00+00:00" for day in range(1, 9))
    monkeypatch.setattr("feal.rundir.site_store._now", lambda: next(times))
    _ask(store, "a", "b", "c")
    _ask(store, "d", round=2)
    _answer(store, "a", 1)
    _answer(store, "b", None)
    _answer(store, "a", 2)
    rounds = store.labels_by_round()
    assert list(rounds) == [1, 2]
    assert (rounds[1].asked, rounds[1].answered, rounds[1].pending) == (3, 2, 1)
    assert (rounds[1].declined, rounds[1].labelled, rounds[1].corrected) == (1, 1, 1)
    assert (rounds[1].first, rounds[1].last) == ("2026-01-03T10:00:00+00:00", "2026-01-05T10:00:00+00:00")
    assert (rounds[2].asked, rounds[2].pending, rounds[2].first, rounds[2].last) == (1, 1, None, None)


def test_nothing_asked_stands_nowhere(store: Store) -> None:
    assert store.labels_by_round() == {}
    assert list(store.records()) == []


def test_an_undone_transaction_leaves_no_history(store: Store) -> None:
    _ask(store, "a")
    _answer(store, "a", 1)

    def interrupted() -> None:
        with store.transaction():
            store.add_answers([Answer(sample="a", label=2, by="you")])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [(record.label, record.superseded) for record in store.records()] == [(1, False)]


def test_reading_changes_nothing_and_works_beside_a_run(store: Store) -> None:
    _ask(store, "a", "b")
    _answer(store, "a", 1)
    with store.transaction():
        store.add_answers([Answer(sample="b", label=0, by="me")])
        reader = Store(store.path, read_only=True)
        assert [record.label for record in reader.records()] == [1, None]
        records = reader.records()
        next(records)
    # An export under way does not keep a run from writing either.
    store._connection.execute("PRAGMA busy_timeout = 1")
    _answer(store, "b", 2)
    assert [record.label for record in records] == [0, 2]
    with pytest.raises(FealError), reader.transaction():
        reader.add_answers([Answer(sample="b", label=1, by="me")])
    reader.close()
    assert {path.name for path in store.path.parent.iterdir()} == {"site.sqlite", "site.sqlite-journal"}


def test_reading_does_not_make_a_file(tmp_path: Path) -> None:
    for path in (tmp_path / "site.sqlite", tmp_path / "nowhere" / "site.sqlite"):
        with pytest.raises(FealError, match="cannot be used"):
            Store(path, read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_name_with_signs_of_an_address(tmp_path: Path) -> None:
    path = tmp_path / "run?mode=x#1 %20" / "site.sqlite"
    store = Store(path)
    _ask(store, "a")
    store.close()
    reader = Store(path, read_only=True)
    assert reader.pending() == ["a"]
    reader.close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["run?mode=x#1 %20"]


@pytest.mark.slow
def test_what_a_kill_left_is_not_read_but_said(tmp_path: Path) -> None:
    path = tmp_path / "site.sqlite"
    code = (
        "import os, sys; from pathlib import Path; from feal.rundir.site_store import Store; "
        "from feal.annotation import Query; store = Store(Path(sys.argv[1])); "
        "store._connection.execute('PRAGMA cache_size = 1'); store._connection.execute('BEGIN IMMEDIATE'); "
        "store.add_queries([Query(sample=f'{n:9}' * 50, round=1, rank=n, score=0, model='') for n in range(99)]); "
        "os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert (tmp_path / "site.sqlite-journal").exists()
    with pytest.raises(FealError, match="stopped while it wrote .* `feal resume` it"):
        Store(path, read_only=True)
    store = Store(path)
    assert store.queried() == set()
    store.close()
    Store(path, read_only=True).close()


def test_a_sample_cannot_be_asked_for_twice_and_the_transaction_is_undone(store: Store) -> None:
    with store.transaction():
        store.add_queries([_query("a")])
    with pytest.raises(sqlite3.IntegrityError), store.transaction():
        store.add_queries([_query("b"), _query("a")])
    assert store.queried() == {"a"}


def test_store_belongs_to_one_run_and_its_data(store: Store) -> None:
    assert store.data_digest() is None
    store.admit(run="one", data="d", settings="{}")
    assert store.data_digest() == "d"
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
    with pytest.raises(FealError, match="Another program has locked"):
        store.admit(run="r", data="d", settings="{}")
    other.close()
    store.close()


def test_a_full_disk_is_said_and_nothing_of_the_transaction_stays(store: Store) -> None:
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(FealError, match=r"No space left to write .*site\.sqlite"), store.transaction():
        store.add_queries([_query(f"sample {number}" * 50) for number in range(500)])
    assert store.queried() == set()
