"""Asking for a network by name, well and badly."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import torch

from feal.errors import FealError
from feal.models import Network, build_model, list_models, restore_model


def build(name: str, **changes) -> Network:
    wanted = {"task": "classification", "classes": 3, "channels": 3, "height": 32, "width": 32}
    return build_model(name, **(wanted | changes))


def restore(name: str, weights: dict[str, torch.Tensor], **changes) -> Network:
    wanted = {"task": "classification", "classes": 3, "channels": 3, "height": 32, "width": 32}
    return restore_model(name, weights, **(wanted | changes))


def test_models_by_task() -> None:
    classifiers = ["densenet-121", "efficientnet-b0", "efficientnet-lite0", "frozen", "tiny-cnn"]
    assert list_models("classification") == classifiers
    assert list_models("segmentation") == ["basic-unet", "frozen", "unet", "unet-lite0"]


def test_an_unknown_name_gets_the_nearest_spelling() -> None:
    with pytest.raises(FealError, match="There is no model 'tinycnn': did you mean 'tiny-cnn'"):
        build("tinycnn")


def test_a_classifier_is_not_for_segmentation() -> None:
    sentence = (
        "'tiny-cnn' is for classification, not for segmentation: "
        "the models that fit are basic-unet, frozen, unet, unet-lite0."
    )
    with pytest.raises(FealError, match=re.escape(sentence)):
        build("tiny-cnn", task="segmentation")


def test_the_unet_is_not_for_classification() -> None:
    with pytest.raises(FealError, match="the models that fit are densenet-121, efficientnet-b0, .*tiny-cnn"):
        build("unet", task="classification")


@pytest.mark.parametrize(
    ("name", "changes", "sentence"),
    [
        ("tiny-cnn", {"height": 15}, "32 x 15 pixels: .* both sides are at least 16"),
        ("densenet-121", {"width": 31}, "31 x 32 pixels: .* both sides are at least 32"),
        ("efficientnet-b0", {"width": 31}, "31 x 32 pixels: .* both sides are at least 32"),
        (
            "unet",
            {"task": "segmentation", "width": 100},
            "100 x 32 pixels: .* multiples of 16 and at least 32",
        ),
        (
            "unet",
            {"task": "segmentation", "height": 16},
            "32 x 16 pixels: .* multiples of 16 and at least 32",
        ),
        ("tiny-cnn", {"classes": 1}, "at least 2 classes, and the data have 1"),
        ("tiny-cnn", {"channels": 0}, "at least 1 image channels, and the data have 0"),
    ],
)
def test_what_does_not_fit_is_one_sentence(name: str, changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(FealError, match=sentence):
        build(name, **changes)


@pytest.mark.slow
def test_monai_waits_until_it_is_needed() -> None:
    code = "import sys, feal.models; sys.exit('monai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", ["tiny-cnn", "efficientnet-b0", "densenet-121", "unet"])
def test_given_weights_nothing_is_drawn_and_the_network_is_the_same(name: str) -> None:
    task = "segmentation" if name == "unet" else "classification"
    drawn = build(name, task=task).eval()
    before = torch.get_rng_state()
    given = restore(name, drawn.state_dict(), task=task).eval()
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(tensor.is_meta for tensor in [*given.parameters(), *given.buffers()])
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(given(images), drawn(images))
        assert torch.equal(given.outputs(images).deep, drawn.outputs(images).deep)
    with pytest.raises(RuntimeError):
        restore(name, drawn.state_dict(), task=task, classes=4)
