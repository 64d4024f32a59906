"""What the coordinator takes from a site, and what it leaves."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from feal.federation import messages
from feal.federation.statistics import CALIBRATION_BINS, ENERGY_BINS, Statistics
from feal.federation.vetting import unexpected, unfit, vet

WEIGHTS = {"w": torch.ones(2, 3), "b": torch.zeros(3), "n": torch.tensor(4)}
REQUEST = messages.seal(messages.Train(run="r", round=1, step=2, weights=WEIGHTS))


def _statistics(**changes: Any) -> Statistics:
    fields: dict[str, Any] = {
        "samples": 2,
        "confusion": [[1, 0], [0, 1]],
        "calibration_count": [0] * CALIBRATION_BINS,
        "calibration_confidence": [0.0] * CALIBRATION_BINS,
        "calibration_correct": [0] * CALIBRATION_BINS,
        "energy": [0] * ENERGY_BINS,
        "aleatoric": 0.1,
        "epistemic": -1.0,
        "zero_evidence": 0.0,
        "class_evidence": [0.5, 0.5],
        "dice": [],
        "dice_count": [],
    }
    return Statistics(**{**fields, **changes})


def _reply(**changes: Any) -> messages.TrainReply:
    fields: dict[str, Any] = {"key": REQUEST.key, "site": "alder", "weights": WEIGHTS, "labelled": 3}
    return messages.TrainReply(**{**fields, "class_counts": [1, 2], "statistics": _statistics(), **changes})


def _vet(reply: messages.Reply) -> str:
    return vet(reply, REQUEST, site="alder", task="classification", classes=2)


def test_an_honest_reply_is_taken() -> None:
    assert _vet(_reply()) == ""
    assert _vet(_reply(weights=None, labelled=0, statistics=None, class_counts=None)) == ""
    drawn = _reply(statistics=_statistics(dice=[0.5, 0.5], dice_count=[1, 1]))
    assert vet(drawn, REQUEST, site="alder", task="segmentation", classes=2) == ""
    assert "figures" in vet(_reply(), REQUEST, site="alder", task="segmentation", classes=2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"key": "another"}, "something else"),
        ({"site": "birch"}, "something else"),
        ({"status": "failed", "reason": "No."}, "No."),
        ({"class_counts": [1]}, "class counts"),
        ({"weights": None}, "no weights"),
        ({"statistics": _statistics(confusion=[[1, 0]])}, "figures"),
        ({"statistics": _statistics(confusion=[[1], [1]])}, "figures"),
        ({"statistics": _statistics(class_evidence=[1.0])}, "figures"),
        ({"statistics": _statistics(energy=[1])}, "figures"),
        ({"statistics": _statistics(calibration_confidence=[1.0])}, "figures"),
        ({"statistics": _statistics(dice=[1.0])}, "figures"),
        ({"statistics": _statistics(regions={"a": {"dice": 1, "hd95": 0, "count": 1}})}, "figures"),
        ({"statistics": _statistics(samples=0)}, "figures"),
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
        (None, {"shape": "letterbox"}, r"alder and birch differ in how pictures .* \(resize; letterbox\)"),
        ({"clip": 0.99}, {"clip": 0.98}, r"\(resize, clip 0.99; resize, clip 0.98\): prepare them alike"),
    ],
)
def test_sites_that_fitted_their_pictures_otherwise(first: Any, second: Any, words: str) -> None:
    alder = messages.JoinReply(key="", site="alder", fitting=first)
    birch = messages.decode_reply(messages.encode(messages.JoinReply(key="", site="birch", fitting=second)))
    problem = unfit(birch, first=alder, counted=0)
    assert bool(problem) == bool(words)
    assert re.search(words, problem)


def test_names_that_nobody_knows_are_named() -> None:
    data = messages.encode(_reply(weights={**WEIGHTS, "extra": torch.ones(1)}))
    data = _with_field(data)
    reply = messages.decode_reply(data)
    assert unexpected(reply, REQUEST) == ["mood", "extra"]
    assert _vet(reply) == ""


def _with_field(data: bytes) -> bytes:
    """The same reply with a field `mood`."""
    length = int.from_bytes(data[:8], "little")
    head = data[8 : 8 + length].rstrip().replace(rb"\"labelled\"", rb"\"mood\": 1, \"labelled\"")
    return len(head).to_bytes(8, "little") + head + data[8 + length :]
