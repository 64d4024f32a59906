"""The loop with a transport that fails where a test says so."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import feal
from feal.config import revise
from feal.errors import FealError
from feal.experiment import Result, resume, start
from feal.federation import protocol as messages
from feal.federation.callbacks import NullCallback
from feal.federation.coordinator.loop import has_enough_labels, order_missed
from feal.federation.transport import TRANSPORTS, DeliveryFailure, InProcessTransport
from feal.rundir.journal import RoundEnd, read_settings
from tests.runs import Listener, differences, events, fingerprint, labels, tiny

Key = tuple[str, int]


class Faulty(InProcessTransport):
    """Delivers all but some messages: (kind, round) at the site `birch`."""

    lost: set[Key] = set()
    delivered: list[tuple[str, str, int]] = []

    def deliver(
        self, request: bytes, sites: Sequence[str], *, timeout: float | None
    ) -> Iterator[tuple[str, bytes | DeliveryFailure]]:
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
    monkeypatch.setitem(TRANSPORTS._entries, "in-process", Faulty)
    Faulty.lost, Faulty.delivered = set(), []
    return Faulty


class UntilRoundTwo(NullCallback):
    """Interrupts the run once round 2 has begun."""

    def on_step(self, *, round: int, step: int, losses: object) -> None:
        if (round, step) == (2, 0):
            raise KeyboardInterrupt


def _labels(result: Result) -> list[dict[str, int]]:
    return [record.labels for record in result.rounds]


def test_by_default_every_site_must_answer_and_the_run_can_go_on(faulty: type[Faulty], tmp_path: Path) -> None:
    whole = start(tiny(), out=tmp_path / "whole").folder
    faulty.lost = {("train", 2)}
    with pytest.raises(FealError, match="birch is away"):
        start(tiny(), out=tmp_path / "run")
    faulty.lost = set()
    resume(tmp_path / "run")
    assert differences(fingerprint(whole), fingerprint(tmp_path / "run")) == []


def test_sites_are_joined_once_when_a_run_starts_and_once_when_it_is_resumed(
    faulty: type[Faulty], tmp_path: Path
) -> None:
    start(tiny(rounds=1), out=tmp_path / "run")
    assert [entry for entry in faulty.delivered if entry[1] == "join"] == [
        ("alder", "join", 0),
        ("birch", "join", 0),
    ]
    faulty.delivered = []
    feal.resume(tmp_path / "run", rounds=2)
    assert [entry for entry in faulty.delivered if entry[1] == "join"] == [
        ("alder", "join", 0),
        ("birch", "join", 0),
    ]


def test_above_the_quorum_a_failing_site_is_left_out_of_the_average(faulty: type[Faulty], tmp_path: Path) -> None:
    faulty.lost = {("train", 1)}
    result = start(tiny(quorum=1, rounds=1), out=tmp_path / "run")
    assert [sorted(event["loss"]) for event in events(tmp_path / "run", "step")] == [["alder"], ["alder"]]
    assert result.rounds[0].diagnostics.selection["birch"].local_model == "global"


def test_below_the_quorum_the_run_stops(faulty: type[Faulty], tmp_path: Path) -> None:
    faulty.lost = {("train", 1)}
    with pytest.raises(FealError, match="birch is away"):
        start(tiny(quorum=2, rounds=1), out=tmp_path / "run")


def test_a_site_absent_at_the_end_of_a_round_gets_that_message_first(faulty: type[Faulty], tmp_path: Path) -> None:
    faulty.lost = {("close_round", 1)}
    settings = tiny(quorum=1, rounds=3)

    with pytest.raises(KeyboardInterrupt):
        start(settings, out=tmp_path / "run", callback=UntilRoundTwo())
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
    deliver = InProcessTransport.deliver

    def confused(
        self: InProcessTransport, request: bytes, sites: Sequence[str], *, timeout: float | None
    ) -> Iterator[tuple[str, bytes]]:
        for site, data in deliver(self, request, sites, timeout=timeout):
            reply = messages.decode_reply(data)
            yield site, messages.encode(reply.model_copy(update={"key": "another"}))

    monkeypatch.setattr(InProcessTransport, "deliver", confused)
    with pytest.raises(FealError, match="reply to another request"):
        start(tiny(), out=tmp_path / "run")


THREE = {"dataset": {"sites": 3, "train": 40, "test": 16, "classes": 5}}


def test_a_site_left_out_is_said_logged_and_counted(faulty: type[Faulty], tmp_path: Path) -> None:
    faulty.lost = {("train", 1)}
    listener = Listener()
    result = start(tiny(quorum=1, rounds=2), out=tmp_path / "run", callback=listener)
    assert [note for note in listener.notes if "birch" in note] == ["Left out: birch is away."]
    assert [record.left_out for record in result.rounds] == [{"birch": 2}, {}]
    left = events(tmp_path / "run", "left_out")
    assert [(event["site"], event["round"], event["step"], event["reason"]) for event in left] == [
        ("birch", 1, 0, "birch is away."),
        ("birch", 1, 1, "birch is away."),
    ]


def test_the_next_site_drawn_stands_in_for_one_that_fails(faulty: type[Faulty], tmp_path: Path) -> None:
    settings = tiny(**THREE, quorum=2, rounds=1, communication_rounds=6, participation=0.34)
    start(settings, out=tmp_path / "whole")
    faulty.lost = {("train", 1)}
    start(settings, out=tmp_path / "run")
    whole = [sorted(event["loss"]) for event in events(tmp_path / "whole", "step")]
    run = [sorted(event["loss"]) for event in events(tmp_path / "run", "step")]
    assert [len(sites) for sites in whole] == [2, 2, 2, 2, 2, 3]
    assert [len(sites) for sites in run] == [2] * 6
    assert any("birch" in sites for sites in whole[:-1])
    assert not any("birch" in sites for sites in run)
    assert all(sites == others for sites, others in zip(whole[:-1], run[:-1], strict=True) if "birch" not in sites)


def test_without_a_quorum_nobody_stands_in(faulty: type[Faulty], tmp_path: Path) -> None:
    faulty.lost = {("train", 1)}
    with pytest.raises(FealError, match="birch is away"):
        start(tiny(**THREE, communication_rounds=6, participation=0.34), out=tmp_path / "run")


def test_a_site_that_could_not_join_takes_part_once_it_can(faulty: type[Faulty], tmp_path: Path) -> None:
    faulty.lost = {("join", 0)}
    settings = tiny(quorum=1, rounds=3)

    class Healing(NullCallback):
        def on_round(self, record: object) -> None:
            faulty.lost = set()

    result = start(settings, out=tmp_path / "run", callback=Healing())
    assert _labels(result) == [{"alder": 5}, {"alder": 10, "birch": 10}, {"alder": 15, "birch": 15}]
    birch = [(kind, round_) for site, kind, round_ in faulty.delivered if site == "birch"]
    assert birch[:4] == [("join", 0), ("close_round", 0), ("close_round", 1), ("train", 2)]
    assert [record.left_out for record in result.rounds] == [{"birch": 4}, {}, {}]


def test_a_site_that_lost_labels_is_left_out(faulty: type[Faulty], tmp_path: Path) -> None:
    start(tiny(quorum=1, rounds=1), out=tmp_path / "run")
    (tmp_path / "run" / "sites" / "birch" / "site.sqlite").unlink()
    listener = Listener()
    settings = revise(read_settings(tmp_path / "run"), {"rounds": 2})
    result = resume(tmp_path / "run", settings=settings, callback=listener)
    assert any("0 labels where 5 were counted" in note for note in listener.notes)
    assert _labels(result)[-1] == {"alder": 10, "birch": 5}
    with pytest.raises(FealError, match="0 labels where 5 were counted"):
        feal.resume(tmp_path / "run", rounds=3, quorum=2)


def test_a_site_that_comes_back_in_between_makes_nobody_train_twice(faulty: type[Faulty], tmp_path: Path) -> None:
    settings = tiny(**THREE, quorum=2, rounds=1, communication_rounds=1)
    faulty.lost = {("close_round", 0)}
    with pytest.raises(KeyboardInterrupt):
        start(settings, out=tmp_path / "run", callback=UntilRoundOneHasBegun())
    models = tmp_path / "run" / "sites" / "alder" / "models"
    trained = sorted(path.name for path in models.iterdir())
    faulty.lost = set()
    result = resume(tmp_path / "run")
    assert result.rounds[0].labels == {"alder": 5, "birch": 5, "cedar": 5}
    assert sorted(path.name for path in models.iterdir()) == trained


class UntilRoundOneHasBegun(NullCallback):
    """Interrupts the run after its sites have trained and before that is committed."""

    def on_reply(self, *, round: int, step: int, site: str, doing: str, loss: float | None) -> None:
        if doing == "training" and site == "cedar":
            raise KeyboardInterrupt


@pytest.mark.parametrize(("share", "sites", "enough"), [(0.5, 2, True), (0.6, 2, False), (0.6, 1, True)])
def test_enough_sites_must_have_enough_answers(share: float, sites: int, enough: bool) -> None:
    replies = {
        "alder": messages.LabelsReply(key="k", site="alder", asked=10, pending=5),
        "birch": messages.LabelsReply(key="k", site="birch", asked=10, pending=0),
    }
    assert has_enough_labels(replies, share=share, sites=sites) is enough


def test_ends_of_rounds_come_once_and_in_order() -> None:
    first, second = (RoundEnd(round=number, class_counts=None, ask=True) for number in (1, 2))
    assert order_missed({"alder": (second,), "birch": (first, second)}) == [first, second]
