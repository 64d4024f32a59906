"""Every way in which a site can fail, in one process and in a simulation, with full and partial participation."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from feal.experiment import Result, start
from feal.federation.transport import TRANSPORTS, FlowerSimulation
from feal.federation.transport.base import DeliveryFailure
from feal.settings import Settings
from tests.federation.transport import sabotage
from tests.rebuilding import RebuildingInProcess
from tests.runs import Listener, differences, events, fingerprint, tiny

REASONS = {
    "raising": "could not answer 'train'",
    "hanging": "did not answer within",
    "NaN weights": "not finite",
    "wrong shapes": "another shape",
    "disk full": "could not answer 'train'",
    "SQLite locked": "could not answer 'train'",
    "SQLite cut short": "could not answer 'train'",
    "another key": "another request",
    "garbage": "cannot be read",
}
EXPLAINED = {
    "raising": "ZeroDivisionError (sample 17)",
    "disk full": "nor write problem.txt",
    "SQLite locked": "Another program has locked",
    "SQLite cut short": "site.sqlite cannot be used",
}
TIMEOUT = 15.0
"""Seconds; more than the first message of a process takes, which imports torch."""
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


class _Hangs(BaseException):
    """Raised in place of hanging; no `except Exception` catches it."""


class _InProcess(RebuildingInProcess):
    """Sites in this process cannot be stopped: one that would hang fails at once."""

    handler = staticmethod(sabotage.handle_request)

    def _handle(self, name: str, request: bytes) -> bytes | DeliveryFailure:
        with patch.object(sabotage, "hang", side_effect=_Hangs):
            try:
                return super()._handle(name, request)
            except _Hangs:
                return DeliveryFailure.from_timeout(name, TIMEOUT)


class _FlowerSimulation(FlowerSimulation):
    handler = staticmethod(sabotage.handle_request)


@pytest.fixture(autouse=True)
def _sabotaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRANSPORTS._entries, "in-process", _InProcess)
    monkeypatch.setitem(TRANSPORTS._entries, "flower-simulation", _FlowerSimulation)


def _settings(transport: str, *, timeout: float | None, **changes: Any) -> Settings:
    sites = {"sites": 3, "train": 40, "test": 16, "classes": 5}
    return tiny(transport=transport, quorum=2, round_timeout=timeout, dataset=sites, **changes)


def _run(out: Path, fault: str, *, transport: str, participation: float) -> tuple[Result, list[str]]:
    steps = [2] if fault == "SQLite locked" else [0, 1, 2]  # a site waits for a lock before it gives up
    sabotage.write_faults(out, dict.fromkeys(steps, fault), site="birch", kind="train", round_=1)
    timeout = TIMEOUT if fault == "hanging" and transport != "in-process" else None
    settings = _settings(transport, timeout=timeout, participation=participation, communication_rounds=3)
    listener = Listener()
    return start(settings, out=out, callback=listener), listener.notes


def _check(result: Result, fault: str, notes: list[str]) -> None:
    first, second = result.rounds
    left_out = events(result.folder, "left_out")
    if fault == "unexpected names":
        assert left_out == []
        assert first.left_out == {}
        assert {tuple(event["names"]) for event in events(result.folder, "unexpected")} == {("mood", "odd")}
        assert any("mood, odd" in note for note in notes)
    else:
        assert set(first.left_out) == {"birch"}
        assert first.left_out["birch"] >= 1
        assert REASONS[fault] in left_out[0]["reason"]
        assert "sample 17" not in json.dumps(left_out)
        assert any(EXPLAINED.get(fault, REASONS[fault]) in note for note in notes), notes
    assert (result.folder / "replies").exists() is False
    gone = fault == "SQLite cut short"
    assert second.labels == {"alder": 10, "birch": 5 if gone else 10, "cedar": 10}
    assert set(second.left_out) == ({"birch"} if gone else set())


@pytest.mark.parametrize("participation", [pytest.param(1.0, marks=pytest.mark.nightly), 0.5])
@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, marks=pytest.mark.slow if fault == "SQLite locked" else ()) for fault in sabotage.FAULTS],
)
def test_in_process(fault: str, participation: float, tmp_path: Path) -> None:
    result, notes = _run(tmp_path / "run", fault, transport="in-process", participation=participation)
    _check(result, fault, notes)


@pytest.mark.slow
def test_all_faults_in_one_simulation_with_the_same_bits(tmp_path: Path) -> None:
    # A locked database takes five seconds to fail, a hanging site as long as its timeout: each has a run of its
    # own below. With a damaged database the site fails for good.
    faults = [fault for fault in sabotage.FAULTS if fault not in ("SQLite locked", "hanging", "SQLite cut short")]
    faults.append("SQLite cut short")
    results = {}
    for transport in ("in-process", "flower-simulation"):
        sabotage.write_faults(tmp_path / transport, dict(enumerate(faults)), site="birch", kind="train", round_=1)
        settings = _settings(transport, timeout=None, rounds=1, communication_rounds=len(faults))
        listener = Listener()
        results[transport] = start(settings, out=tmp_path / transport, callback=listener).folder
        left_out = events(results[transport], "left_out")
        expected = [REASONS[fault] for fault in faults if fault in REASONS]
        for event, reason in zip(left_out, expected, strict=False):
            assert reason in event["reason"]
        assert len(left_out) == len(expected) + 1, "the damaged site cannot close the round either"
        assert {tuple(event["names"]) for event in events(results[transport], "unexpected")} == {("mood", "odd")}
        assert "sample 17" not in json.dumps(left_out)
        for fault in faults:
            explained = EXPLAINED.get(fault, REASONS.get(fault, "mood, odd"))
            assert any(explained in note for note in listener.notes), fault
        (results[transport] / "sites" / "birch" / "site.sqlite").unlink()
    one, other = (fingerprint(folder) for folder in results.values())
    assert differences(one, other) == ["config.yaml"]


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("fault", list(sabotage.FAULTS))
def test_in_simulation_with_the_same_bits(fault: str, tmp_path: Path) -> None:
    expected, _ = _run(tmp_path / "one", fault, transport="in-process", participation=0.5)
    result, notes = _run(tmp_path / "other", fault, transport="flower-simulation", participation=0.5)
    _check(result, fault, notes)
    if fault == "SQLite cut short":
        for folder in (expected.folder, result.folder):
            (folder / "sites" / "birch" / "site.sqlite").unlink()
    assert differences(fingerprint(expected.folder), fingerprint(result.folder)) == ["config.yaml"]
