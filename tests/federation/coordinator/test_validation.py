"""What the coordinator takes from a site, and what it leaves."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from feal.errors import FealError
from feal.federation import protocol as messages
from feal.federation.coordinator.validation import (
    check_images,
    find_incompatibility,
    find_problem,
    list_unexpected,
)
from feal.metrics import Statistics, find_metrics
from feal.settings import Transforms
from tests.statistics import make_statistics

IMPOSSIBLE = "metrics that no evaluation gives"
WEIGHTS = {"w": torch.ones(2, 3), "b": torch.zeros(3), "n": torch.tensor(4)}
REQUEST = messages.seal(messages.Train(run="r", round=1, step=2, weights=WEIGHTS))


def _statistics(**changes: Any) -> Statistics:
    return make_statistics([[1, 0], [0, 1]], **changes)


def _reply(**changes: Any) -> messages.TrainReply:
    fields: dict[str, Any] = {"key": REQUEST.key, "site": "alder", "weights": WEIGHTS, "labelled": 3}
    return messages.TrainReply(**{**fields, "class_counts": [1, 2], "statistics": _statistics(), **changes})


def _vet(reply: messages.Reply) -> str:
    return find_problem(
        reply, REQUEST, site="alder", task="classification", classes=2, metrics=find_metrics("classification")
    )


def test_an_honest_reply_is_taken() -> None:
    assert _vet(_reply()) == ""
    assert _vet(_reply(weights=None, labelled=0, statistics=None, class_counts=None)) == ""
    drawn = _reply(statistics=_statistics(dice=[0.5, 0.5], dice_count=[1, 1]))
    assert (
        find_problem(
            drawn, REQUEST, site="alder", task="segmentation", classes=2, metrics=find_metrics("segmentation")
        )
        == ""
    )
    assert IMPOSSIBLE in find_problem(
        _reply(), REQUEST, site="alder", task="segmentation", classes=2, metrics=find_metrics("segmentation")
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"key": "another"}, "another request"),
        ({"site": "birch"}, "another request"),
        ({"status": "failed", "reason": "No."}, "No."),
        ({"class_counts": [1]}, "class counts"),
        ({"weights": None}, "no weights"),
        ({"statistics": _statistics(confusion=[[1, 0]])}, IMPOSSIBLE),
        ({"statistics": _statistics(confusion=[[1], [1]])}, IMPOSSIBLE),
        ({"statistics": _statistics(class_evidence=[1.0])}, IMPOSSIBLE),
        ({"statistics": _statistics(energy=[1])}, IMPOSSIBLE),
        ({"statistics": _statistics(calibration_confidence=[1.0])}, IMPOSSIBLE),
        ({"statistics": _statistics(dice=[1.0])}, IMPOSSIBLE),
        (
            {"statistics": _statistics(regions={"a": {"dice": 1, "hd95": 0, "count": 1}})},
            IMPOSSIBLE,
        ),
        ({"statistics": _statistics(samples=0)}, IMPOSSIBLE),
    ],
)
def test_a_reply_that_does_not_fit_is_left(changes: dict[str, Any], words: str) -> None:
    assert words in _vet(_reply(**changes))


def _without(name: str) -> dict[str, torch.Tensor]:
    return {key: tensor for key, tensor in WEIGHTS.items() if key != name}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda: {**WEIGHTS, "w": torch.full((2, 3), float("nan"))}, "not finite"),
        (lambda: {**WEIGHTS, "b": torch.tensor([0.0, float("inf"), 0.0])}, "not finite"),
        (lambda: {**WEIGHTS, "w": torch.ones(3, 2)}, "another shape"),
        (lambda: {**WEIGHTS, "w": torch.ones(2, 3, dtype=torch.float64)}, "type"),
        (lambda: _without("b"), "without b"),
    ],
)
def test_weights_that_do_not_fit_are_left(change: Callable[[], dict[str, torch.Tensor]], words: str) -> None:
    assert words in _vet(_reply(weights=change()))


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (None, None, ""),
        (None, {"shape": "resize"}, ""),
        ({"clip": 0.99}, {"clip": 0.99}, ""),
        (None, {"shape": "letterbox"}, r"alder and birch differ in how images .* \(resize; letterbox\)"),
        ({"clip": 0.99}, {"clip": 0.98}, r"\(resize, clip 0.99; resize, clip 0.98\): prepare them alike"),
    ],
)
def test_sites_that_fitted_their_pictures_otherwise(first: Any, second: Any, words: str) -> None:
    alder = messages.JoinReply(key="", site="alder", fitting=first)
    birch = messages.decode_reply(messages.encode(messages.JoinReply(key="", site="birch", fitting=second)))
    problem = find_incompatibility(birch, first=alder, counted=0)
    assert bool(problem) == bool(words)
    assert re.search(words, problem)


def test_names_that_nobody_knows_are_named() -> None:
    data = messages.encode(_reply(weights={**WEIGHTS, "extra": torch.ones(1)}))
    data = _with_field(data)
    reply = messages.decode_reply(data)
    assert list_unexpected(reply, REQUEST.weights) == ["mood", "extra"]
    assert _vet(reply) == ""


def _with_field(data: bytes) -> bytes:
    """The same reply with a field `mood`."""
    length = int.from_bytes(data[:8], "little")
    head = data[8 : 8 + length].rstrip().replace(rb"\"labelled\"", rb"\"mood\": 1, \"labelled\"")
    return len(head).to_bytes(8, "little") + head + data[8 + length :]


@pytest.mark.parametrize("model", ["unet-lite0", "unet"])
def test_a_frozen_encoder_takes_square_images_and_a_whole_network_any(model: str) -> None:
    facts = {"task": "segmentation", "classes": ["ground", "polyp"], "channels": 3}
    wide = messages.JoinReply(key="any", site="alder", height=64, width=96, **facts)
    square = wide.model_copy(update={"width": 64})
    check_images(wide, model=model, transforms=Transforms(), trainable="all")
    if model == "unet-lite0":
        check_images(square, model=model, transforms=Transforms(), trainable="tail")
    sentence = {
        "unet-lite0": "square images only, and these are 64 x 96",
        "unet": "UNet has no tail",
    }
    with pytest.raises(FealError, match=sentence[model]):
        check_images(wide, model=model, transforms=Transforms(), trainable="tail")
