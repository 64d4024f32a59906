import pytest
import torch

from feal.errors import FealError
from feal.federation import protocol as messages

WEIGHTS = {"w": torch.randn(3, 2), "count": torch.tensor(7), "half": torch.ones(2, dtype=torch.float16)}


def _train(**changes: object) -> messages.Request:
    fields = {"run": "r", "round": 1, "step": 2, "weights": WEIGHTS, "class_counts": [3, 4]}
    return messages.seal(messages.Train(**{**fields, **changes}))


def test_round_trip_keeps_every_field_and_bit() -> None:
    request = _train()
    again = messages.decode_request(messages.encode(request))
    assert isinstance(again, messages.Train)
    assert again.model_dump(exclude={"weights"}) == request.model_dump(exclude={"weights"})
    assert again.weights is not None
    for name, tensor in WEIGHTS.items():
        assert again.weights[name].dtype == tensor.dtype
        assert torch.equal(again.weights[name], tensor)


def test_bytes_are_the_same_every_time() -> None:
    assert messages.encode(_train()) == messages.encode(_train(weights=dict(reversed(WEIGHTS.items()))))


@pytest.mark.parametrize(
    "change",
    [
        {"run": "s"},
        {"round": 2},
        {"step": 3},
        {"evaluate": True},
        {"class_counts": None},
        {"weights": {**WEIGHTS, "w": WEIGHTS["w"] + 1e-7}},
        {"weights": {**WEIGHTS, "x": torch.zeros(1)}},
    ],
)
def test_key_changes_with_everything_that_is_asked(change: dict) -> None:
    assert _train(**change).key != _train().key


def test_key_depends_on_the_kind() -> None:
    close = messages.CloseRound(run="r", round=1, ask=True)
    assert messages.seal(close).key != messages.seal(messages.Labels(run="r", round=1)).key
    assert messages.seal(close).key != messages.seal(close.model_copy(update={"ask": False})).key


def test_a_request_without_weights_has_none_after_the_journey() -> None:
    close = messages.seal(messages.CloseRound(run="r", ask=True))
    assert messages.decode_request(messages.encode(close)).weights is None


@pytest.mark.parametrize(
    "data",
    [b"", b"12345678", b"\x05\0\0\0\0\0\0\0hello", messages.encode(_train())[:-3]],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(FealError, match="could not be read"):
        messages.decode_request(data)


def test_a_reply_is_no_request() -> None:
    with pytest.raises(FealError, match="could not be read"):
        messages.decode_request(messages.encode(messages.JoinReply(key="k", site="s")))


def test_replies_carry_no_number_that_is_not_finite() -> None:
    with pytest.raises(ValueError, match="finite"):
        messages.TrainReply(key="k", site="s", loss=float("nan"))
    lying = messages.encode(messages.TrainReply(key="k", site="s", loss=1.5)).replace(b"1.5", b"NaN")
    with pytest.raises(FealError, match="could not be read"):
        messages.decode_reply(lying)
