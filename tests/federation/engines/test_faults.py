"""Every way in which a site may fail, on both engines, with full and with partial participation."""

import json
from pathlib import Path

import pytest

from feal.experiment import Result, start
from feal.federation.engines import ENGINES, FlowerSimulation, InProcess
from tests.federation.engines import sabotage
from tests.runs import Listener, differences, events, fingerprint, tiny

REASONS = {
    "raising": "could not answer 'train'",
    "hanging": "did not answer within",
    "NaN weights": "not finite",
    "wrong shapes": "another shape",
    "disk full": "could not answer 'train'",
    "SQLite locked": "could not answer 'train'",
    "SQLite cut short": "could not answer 'train'",
    "another key": "something else",
    "garbage": "cannot be read",
}
EXPLAINED = {
    "raising": "ZeroDivisionError (sample 17)",
    "disk full": "could not write down why",
    "SQLite locked": "Another program holds",
    "SQLite cut short": "site.sqlite cannot be used",
}
WAITED_FOR = ("hanging", "SQLite locked")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


class _InProcess(InProcess):
    answer = staticmethod(sabotage.answer)


class _FlowerSimulation(FlowerSimulation):
    answer = staticmethod(sabotage.answer)


@pytest.fixture(autouse=True)
def _sabotaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES._entries, "in-process", _InProcess)
    monkeypatch.setitem(ENGINES._entries, "flower-simulation", _FlowerSimulation)


def _run(out: Path, fault: str, *, engine: str, participation: float, timeout: float) -> tuple[Result, list[str]]:
    steps = [2] if fault == "SQLite locked" else [0, 1, 2]  # a site waits for a lock before it gives up
    sabotage.order(out, fault, site="birch", kind="train", round_=1, steps=steps)
    settings = tiny(
        engine=engine,
        fresh=True,
        quorum=2,
        participation=participation,
        communication_rounds=3,
        round_timeout=timeout if fault == "hanging" else None,
        synthetic={"sites": 3, "train": 40, "test": 16, "classes": 5},
    )
    listener = Listener()
    return start(settings, out=out, watcher=listener), listener.notes


def _check(result: Result, fault: str, notes: list[str]) -> None:
    first, second = result.rounds
    left_out = events(result.folder, "left_out")
    if fault == "unexpected names":
        assert left_out == []
        assert first["left_out"] == {}
        assert {tuple(event["names"]) for event in events(result.folder, "unexpected")} == {("mood", "odd")}
        assert any("mood, odd" in note for note in notes)
    else:
        assert set(first["left_out"]) == {"birch"}
        assert first["left_out"]["birch"] >= 1
        assert REASONS[fault] in left_out[0]["reason"]
        assert "sample 17" not in json.dumps(left_out)
        assert any(EXPLAINED.get(fault, REASONS[fault]) in note for note in notes), notes
    assert (result.folder / "spool").exists() is False
    gone = fault == "SQLite cut short"
    assert second["labels"] == {"alder": 10, "birch": 5 if gone else 10, "cedar": 10}
    assert set(second["left_out"]) == ({"birch"} if gone else set())


@pytest.mark.parametrize("participation", [pytest.param(1.0, marks=pytest.mark.slow), 0.5])
@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, marks=pytest.mark.slow if fault in WAITED_FOR else ()) for fault in sabotage.FAULTS],
)
def test_in_process(fault: str, participation: float, tmp_path: Path) -> None:
    # More than the first message of a process takes, which imports what it needs.
    result, notes = _run(tmp_path / "run", fault, engine="in-process", participation=participation, timeout=3.0)
    _check(result, fault, notes)


@pytest.mark.slow
@pytest.mark.parametrize("fault", list(sabotage.FAULTS))
def test_in_simulation_with_the_same_bits(fault: str, tmp_path: Path) -> None:
    expected, _ = _run(tmp_path / "one", fault, engine="in-process", participation=0.5, timeout=4.0)
    result, notes = _run(tmp_path / "other", fault, engine="flower-simulation", participation=0.5, timeout=4.0)
    _check(result, fault, notes)
    if fault == "SQLite cut short":
        for folder in (expected.folder, result.folder):
            (folder / "sites" / "birch" / "site.sqlite").unlink()
    assert differences(fingerprint(expected.folder), fingerprint(result.folder)) == ["config.yaml"]
