"""Replies of sites: what is shown of them, and weights that stay on disk until they are averaged."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from feal.errors import FealError
from feal.federation import protocol as messages
from feal.federation.aggregation import fedavg
from feal.federation.callbacks import NullCallback
from feal.federation.coordinator.exchange import Exchange, StoredWeights
from feal.federation.transport import DeliveryFailure
from feal.rundir.layout import RunDirectory
from feal.settings import Settings

EVIL = "Site alder:\n\x1b[2J\x1b]0;title\x07 all is well\u202e" + "!" * 5000


class Talker:
    """A transport whose only site sends an arbitrary reason."""

    def __init__(self, how: str) -> None:
        self._how = how

    def deliver(
        self, request: bytes, sites: Sequence[str], *, timeout: float | None
    ) -> Iterator[tuple[str, bytes | DeliveryFailure]]:
        key = messages.decode_request(request).key
        failed = messages.LabelsReply(key=key, site="alder", status="failed", reason=EVIL)
        yield "alder", DeliveryFailure(reason=EVIL) if self._how == "lost" else messages.encode(failed)

    def sites(self) -> list[str]:
        return ["alder"]

    def explain(self, site: str, reason: str) -> str:
        return reason


def _exchange(how: str, folder: Path) -> Exchange:
    transport: Any = Talker(how)
    settings = Settings(dataset="d", model="m")
    return Exchange(settings, transport=transport, run=RunDirectory(folder), callback=NullCallback())


@pytest.mark.parametrize("how", ["lost", "failed"])
def test_a_sites_words_do_nothing_to_a_terminal(how: str, tmp_path: Path) -> None:
    exchange = _exchange(how, tmp_path)
    replies = exchange.ask(messages.Labels(run="x"), ["alder"], messages.LabelsReply, doing="labels")
    said = replies.left_out["alder"]
    assert said.isprintable()
    assert said.startswith("Site alder: [2J ]0;title all is well !!!")
    assert len(said) < 700
    with pytest.raises(FealError) as error:
        exchange.require(replies, 1)
    assert str(error.value) == said


def _stored(path: Path, weights: Mapping[str, torch.Tensor]) -> StoredWeights:
    reply = messages.TrainReply(key="k", site="alder", weights={**weights, "unasked": torch.ones(2)})
    return StoredWeights(path, messages.encode(reply), names=weights)


TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
SHAPES = st.lists(st.integers(0, 4), max_size=3)


@given(layout=st.lists(st.tuples(st.sampled_from(TYPES), SHAPES), max_size=5))
def test_what_was_kept_comes_back_bit_by_bit(
    tmp_path_factory: pytest.TempPathFactory, layout: list[tuple[torch.dtype, list[int]]]
) -> None:
    weights = {
        f"layer.{number}": (torch.rand(shape) * 200 - 100).to(dtype)
        for number, (dtype, shape) in enumerate(layout)
    }
    kept = _stored(tmp_path_factory.mktemp("run") / "alder.weights", weights)
    assert list(kept) == list(weights)
    for name, tensor in weights.items():
        assert kept[name].dtype == tensor.dtype
        assert torch.equal(kept[name], tensor)


def test_stored_weights_average_like_those_in_memory(tmp_path: Path) -> None:
    states = [{"w": torch.rand(5, 3), "n": torch.tensor(number)} for number in range(4)]
    kept = [_stored(tmp_path / str(number), state) for number, state in enumerate(states)]
    expected = fedavg(states, [1, 2, 3, 4])
    assert all(torch.equal(tensor, expected[name]) for name, tensor in fedavg(kept, [1, 2, 3, 4]).items())


def test_a_transposed_tensor_is_kept_by_value(tmp_path: Path) -> None:
    tensor = torch.arange(6.0).reshape(2, 3).T
    assert torch.equal(_stored(tmp_path / "alder", {"w": tensor})["w"], tensor)


def test_nothing_is_left_after_clearing(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    kept = _stored(run.replies / "alder", {"w": torch.ones(3)})
    exchange = _exchange("lost", tmp_path)
    exchange.clear()
    exchange.clear()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FealError, match="alder"):
        kept["w"]


def test_a_place_that_takes_no_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "replies").write_text("in the way")
    with pytest.raises(FealError, match="replies"):
        _stored(RunDirectory(tmp_path).replies / "alder", {"w": torch.ones(3)})
