"""The loop with an engine that fails where a test says so."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from feal.errors import FealError
from feal.experiment import Result, resume, start
from feal.federation import messages
from feal.federation.engines import ENGINES, InProcess, Lost
from feal.federation.progress import Silence
from tests.runs import differences, fingerprint, labels, tiny

Key = tuple[str, int]


class Faulty(InProcess):
    """Delivers all but some messages: (kind, round) at the site `birch`."""

    lost: set[Key] = set()  # noqa: RUF012  (changed by tests)
    delivered: list[tuple[str, str, int]] = []  # noqa: RUF012

    def deliver(
        self, request: bytes, sites: Sequence[str], *, timeout: float | None
    ) -> Iterator[tuple[str, bytes | Lost]]:
        content = messages.decode_request(request)
        for site in sites:
            if site == "birch" and (content.kind, content.round) in self.lost:
                failed = messages.REPLIES[content.kind](
                    key=content.key, site=site, status="failed", reason="birch is away."
                )
                yield site, messages.encode(failed)
            else:
                self.delivered.append((site, content.kind, content.round))
                yield from super().deliver(request, [site], timeout=timeout)


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> type[Faulty]:
    monkeypatch.setitem(ENGINES._entries, "in-process", Faulty)
    Faulty.lost, Faulty.delivered = set(), []
    return Faulty


class UntilRoundTwo(Silence):
    """Interrupts the run once round 2 has begun."""

    def stepped(self, *, round: int, step: int, losses: object) -> None:
        if (round, step) == (2, 0):
            raise KeyboardInterrupt


def _labels(result: Result) -> list[dict[str, int]]:
    return [record["labels"] for record in result.rounds]


def test_by_default_every_site_must_answer_and_the_run_can_go_on(faulty: type[Faulty], tmp_path: Path) -> None:
    whole = start(tiny(), out=tmp_path / "whole").folder
    faulty.lost = {("train", 2)}
    with pytest.raises(FealError, match="birch is away"):
        start(tiny(), out=tmp_path / "run")
    faulty.lost = set()
    resume(tmp_path / "run")
    assert differences(fingerprint(whole), fingerprint(tmp_path / "run")) == []


def test_above_the_quorum_a_failing_site_is_left_out_of_the_average(faulty: type[Faulty], tmp_path: Path) -> None:
    faulty.lost = {("train", 1)}
    result = start(tiny(quorum=1, rounds=1), out=tmp_path / "run")
    events = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [sorted(event["loss"]) for event in events if event["event"] == "step"] == [["alder"], ["alder"]]
    assert result.rounds[0]["diagnostics"]["selection"]["birch"]["local_model"] == "global"


def test_below_the_quorum_the_run_stops(faulty: type[Faulty], tmp_path: Path) -> None:
    faulty.lost = {("train", 1)}
    with pytest.raises(FealError, match="birch is away"):
        start(tiny(quorum=2, rounds=1), out=tmp_path / "run")


def test_a_site_absent_at_the_end_of_a_round_gets_that_message_first(faulty: type[Faulty], tmp_path: Path) -> None:
    faulty.lost = {("close_round", 1)}
    settings = tiny(quorum=1, rounds=3)

    with pytest.raises(KeyboardInterrupt):
        start(settings, out=tmp_path / "run", watcher=UntilRoundTwo())
    assert "birch" not in {site for site, kind, round_ in faulty.delivered if (kind, round_) == ("train", 2)}
    faulty.lost, faulty.delivered = set(), []
    result = resume(tmp_path / "run")
    birch = [(kind, round_) for site, kind, round_ in faulty.delivered if site == "birch"]
    assert birch[:3] == [("join", 0), ("close_round", 1), ("train", 2)]
    assert _labels(result)[-1] == {"alder": 15, "birch": 15}
    for site in ("alder", "birch"):
        rows = labels(tmp_path / "run" / "sites" / site / "site.sqlite")
        assert sorted(row[1] for row in rows) == [1] * 5 + [2] * 5 + [3] * 5


def test_a_reply_to_something_else_is_not_taken(
    faulty: type[Faulty], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver = InProcess.deliver

    def confused(
        self: InProcess, request: bytes, sites: Sequence[str], *, timeout: float | None
    ) -> Iterator[tuple[str, bytes]]:
        for site, data in deliver(self, request, sites, timeout=timeout):
            reply = messages.decode_reply(data)
            yield site, messages.encode(reply.model_copy(update={"key": "another"}))

    monkeypatch.setattr(InProcess, "deliver", confused)
    with pytest.raises(FealError, match="reply to something else"):
        start(tiny(), out=tmp_path / "run")
