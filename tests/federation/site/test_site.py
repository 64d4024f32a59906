"""A site by its messages alone: idempotent by key, never backwards, silent about its samples."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from feal import __version__
from feal.data import open_prepared
from feal.federation import protocol as messages
from feal.federation.site import site as site_module
from feal.federation.site.site import Site
from feal.models import build_model
from feal.settings import Settings
from tests.prepared import write_prepared
from tests.runs import labels

SETTINGS = Settings(
    dataset="blocks",
    model="tiny-cnn",
    loss="evidential",
    rounds=2,
    communication_rounds=2,
    budget=4,
    training={"batch_size": 4},
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    data = open_prepared(write_prepared(tmp_path / "data"))
    site = Site("alder", folder=tmp_path / "alder", data=data)
    yield site
    site.close()


@pytest.fixture
def weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    facts = {"task": "classification", "classes": 3, "channels": 3, "height": 32, "width": 32}
    return build_model("tiny-cnn", **facts).state_dict()


def _send(site: Site, request: messages.Request) -> messages.Reply:
    return messages.decode_reply(site.handle(messages.encode(messages.seal(request))))


def _join(site: Site, settings: Settings = SETTINGS, **changes: object) -> messages.Reply:
    fields = {"run": settings.identity(), "configuration": settings.dump(), "version": __version__}
    return _send(site, messages.Join(**{**fields, **changes}))


def _first_labels(site: Site) -> messages.Reply:
    return _send(site, messages.CloseRound(run=SETTINGS.identity(), ask=True))


def _training(weights: dict[str, torch.Tensor], step: int = 0) -> messages.Train:
    return messages.Train(run=SETTINGS.identity(), round=1, step=step, weights=weights, class_counts=[9, 9, 9])


def test_the_same_message_again_does_no_work_and_gives_the_same_reply(
    site: Site, weights: dict[str, torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    _join(site)
    first = _first_labels(site)
    trained = messages.encode(messages.seal(_training(weights)))
    reply = site.handle(trained)
    before = labels(site.folder / "site.sqlite")

    def no_work(*_: object, **__: object) -> None:
        raise AssertionError("worked twice")

    monkeypatch.setattr(site_module.MessageHandler, "handle", no_work)
    assert site.handle(trained) == reply
    assert labels(site.folder / "site.sqlite") == before
    assert first.status == "ok"


def test_an_older_message_is_refused(site: Site, weights: dict[str, torch.Tensor]) -> None:
    _join(site)
    _first_labels(site)
    _send(site, _training(weights, step=1))
    refused = _send(site, _training(weights, step=0))
    assert refused.status == "failed"
    assert "past that message" in site.problem


def test_a_message_before_the_join_is_refused(site: Site, weights: dict[str, torch.Tensor]) -> None:
    assert _send(site, _training(weights)).status == "failed"
    assert "must be joined" in site.problem


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": "0.0.1"}, "version"),
        ({"run": "another"}, "configuration"),
        ({"protocol": 99}, "coordinator 99"),
    ],
)
def test_strangers_are_refused(site: Site, change: dict[str, object], said: str) -> None:
    assert _join(site, **change).status == "failed"
    assert said in site.problem


def test_a_failure_says_nothing_of_the_samples(tmp_path: Path) -> None:
    def spoil(images: object, truth: object) -> None:
        truth[5] = 3

    data = open_prepared(write_prepared(tmp_path / "data", spoil={"alder": spoil}))
    site = Site("alder", folder=tmp_path / "alder", data=data)
    reply = _join(site)
    site.close()
    assert reply.status == "failed"
    assert "alder-0005" in site.problem
    assert "alder-0005" in (site.folder / "problem.txt").read_text()
    assert "0005" not in reply.reason
    assert str(tmp_path) not in reply.reason


def test_no_reply_holds_a_sample_id(site: Site, weights: dict[str, torch.Tensor]) -> None:
    close = messages.CloseRound(
        run=SETTINGS.identity(), round=1, step=2, weights=weights, class_counts=None, ask=True
    )
    requests = [
        messages.Join(run=SETTINGS.identity(), configuration=SETTINGS.dump(), version=__version__),
        messages.CloseRound(run=SETTINGS.identity(), ask=True),
        _training(weights),
        close,
        messages.Labels(run=SETTINGS.identity(), round=1, step=3),
    ]
    for request in requests:
        data = site.handle(messages.encode(messages.seal(request)))
        assert messages.decode_reply(data).status == "ok", site.problem
        assert b"alder-0" not in data


def test_a_site_that_never_trained_uses_the_global_model_and_says_so(
    site: Site, weights: dict[str, torch.Tensor]
) -> None:
    _join(site)
    _first_labels(site)
    request = messages.CloseRound(run=SETTINGS.identity(), round=1, weights=weights, class_counts=None, ask=True)
    reply = _send(site, request)
    assert isinstance(reply, messages.CloseRoundReply)
    assert reply.local_model == "global"
    assert (reply.asked, reply.pending) == (4, 0)


def test_a_site_without_labels_sends_no_weights(site: Site, weights: dict[str, torch.Tensor]) -> None:
    _join(site)
    reply = _send(site, _training(weights))
    assert isinstance(reply, messages.TrainReply)
    assert reply.labelled == 0
    assert reply.weights is None


def test_only_the_last_models_stay_on_disk(site: Site, weights: dict[str, torch.Tensor]) -> None:
    _join(site)
    _first_labels(site)
    for step in range(2):
        _send(site, _training(weights, step=step))
    (site.folder / "models" / "local-left-over.safetensors").write_bytes(b"a kill left this")
    (site.folder / "scratch" / "tmp123").mkdir(parents=True)
    _join(site)
    assert [path.name for path in (site.folder / "models").iterdir()] == ["local-1.safetensors"]
    assert not (site.folder / "scratch").exists()
