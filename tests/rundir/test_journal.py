from dataclasses import replace
from pathlib import Path

import pytest
import torch

from feal.errors import FealError
from feal.rundir.journal import Journal, State
from feal.rundir.records import Note, Step

WEIGHTS = {"w": torch.arange(3.0)}


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


def test_a_commit_comes_back(journal: Journal) -> None:
    state = journal.commit(State(configuration={"seed": 0}, task="classification"), weights=("initial", WEIGHTS))
    state = journal.commit(
        replace(state, stage="train", round=1, class_counts={"a": [1, 2], "b": None}),
        weights=("round-001-step-001", {"w": torch.zeros(3)}),
        events=[Step(round=1, loss={"a": 0.5}), Note(note="A note.")],
    )
    again = Journal(journal.run.path).recover()
    assert again == state
    assert torch.equal(journal.weights(again, "initial")["w"], WEIGHTS["w"])
    assert torch.equal(journal.weights(again, again.current)["w"], torch.zeros(3))
    assert list(journal.events(again)) == [Step(round=1, loss={"a": 0.5}), Note(note="A note.")]


def test_weights_inside_a_round_are_replaced_and_those_of_rounds_stay(journal: Journal) -> None:
    state = journal.commit(State(configuration={}, task="classification"), weights=("initial", WEIGHTS))
    for name in ("round-001-step-001", "round-001-step-002", "round-001", "round-002-step-001"):
        state = journal.commit(state, weights=(name, WEIGHTS))
    names = {path.stem for path in (journal.run.path / "weights").iterdir()}
    assert names == {"initial", "round-001", "round-002-step-001"}


def test_what_a_kill_left_beyond_the_commit_is_swept(journal: Journal) -> None:
    state = journal.commit(State(configuration={}, task="classification"), weights=("initial", WEIGHTS))
    state = journal.commit(state, events=[Step(round=1, loss={})])
    with (journal.run.path / "metrics.jsonl").open("a") as log:
        log.write('{"event": "st')
    (journal.run.path / "weights" / "round-009.safetensors").write_bytes(b"not committed")
    (journal.run.path / "weights" / ".round-009.safetensors.part").write_bytes(b"not even whole")
    assert journal.recover() == state
    assert len(journal.events(state)) == 1
    assert {path.name for path in (journal.run.path / "weights").iterdir()} == {"initial.safetensors"}


def test_looking_changes_nothing(journal: Journal) -> None:
    journal.commit(State(configuration={}, task="classification"), weights=("initial", WEIGHTS))
    stray = journal.run.path / "weights" / "round-001-step-001.safetensors"
    stray.write_bytes(b"a running process is about to commit this")
    journal.load()
    assert stray.exists()


@pytest.mark.parametrize("content", ["{", '{"unknown": 1}', "[]", '{"missed": {}, "unknown": 1}', "stage"])
def test_a_damaged_state_is_said(journal: Journal, content: str) -> None:
    journal.commit(State(configuration={}, task="classification"), weights=("initial", WEIGHTS))
    path = journal.run.path / "state.json"
    path.write_text(path.read_text().replace('"close"', '"dreaming"') if content == "stage" else content)
    with pytest.raises(FealError, match=r"state\.json is damaged"):
        journal.load()
