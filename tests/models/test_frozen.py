"""A network cut into a frozen trunk and a part that is trained."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from feal.errors import FealError
from feal.models import MODELS, Network, SplitClassifier, build_model
from feal.models.base import Output

NAMES = [name for name in MODELS.names() if issubclass(MODELS.get(name), SplitClassifier)]
FORMS = [torch.channels_last, torch.contiguous_format]
IMAGES = torch.rand(3, 3, 48, 64, generator=torch.Generator().manual_seed(5))
each_network = pytest.mark.parametrize("name", NAMES)
each_part = pytest.mark.parametrize("part", ["tail", "head"])


def build(name: str, *, part: str = "all", seed: int = 0) -> Network:
    torch.manual_seed(seed)
    return build_model(name, task="classification", classes=4, channels=3, height=48, width=64).keep_part(part)


@cache
def settled(name: str) -> SplitClassifier:
    """With BatchNorm's statistics those of a batch, in evaluation mode; not to be changed."""
    network = build(name).train()
    with torch.no_grad():
        network(IMAGES)
    assert isinstance(network, SplitClassifier)
    return network.eval()


def cut_from(whole: SplitClassifier, name: str, part: str) -> Network:
    network = build(name, part=part, seed=9)
    network.load_state_dict({key: whole.state_dict()[key] for key in network.state_dict()})
    return network.eval()


def test_every_classifier_can_be_cut() -> None:
    assert NAMES == ["densenet-121", "efficientnet-b0", "efficientnet-lite0", "tiny-cnn"]
    assert {name: MODELS.get(name).trainable_parts for name in MODELS.names()} == {
        **dict.fromkeys(NAMES, ("tail", "head")),
        "basic-unet": (),
        "frozen": ("head",),
        "unet": (),
        "unet-lite0": ("tail",),
    }


@each_network
@each_part
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_trunk_and_part_are_the_whole_bit_by_bit(name: str, part: str, form: torch.memory_format) -> None:
    whole, images = settled(name), IMAGES.contiguous(memory_format=form)
    cut = cut_from(whole, name, part)
    with torch.no_grad():
        given = whole.run_trunk(images, part=part)
        if part == "tail":
            given = given.contiguous(memory_format=form)
        expected: Output = whole.outputs(images)
        assert torch.equal(cut(given), expected.logits)
        for one, other in zip(cut.outputs(given), expected, strict=True):
            assert torch.equal(one, other)


@each_network
def test_the_parts_lie_within_each_other(name: str) -> None:
    whole, tail, head = (build(name, part=part).state_dict() for part in ("all", "tail", "head"))
    assert whole.keys() > tail.keys() > head.keys()
    assert len(head) == 2
    for part in (tail, head):
        assert all(part[key].shape == whole[key].shape for key in part)


@each_network
@each_part
def test_a_part_draws_the_last_layer_that_the_whole_has(name: str, part: str) -> None:
    assert torch.equal(build(name).head.weight, build(name, part=part).head.weight)


@each_network
@each_part
def test_gradients_reach_every_parameter_of_a_part(name: str, part: str) -> None:
    given = settled(name).run_trunk(IMAGES, part=part).detach().requires_grad_()
    network = build(name, part=part).train()
    network(given).square().sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
    assert given.grad is not None


def test_the_images_are_the_trunk_of_the_whole() -> None:
    assert settled("tiny-cnn").run_trunk(IMAGES, part="all") is IMAGES


def test_a_network_that_cannot_be_cut_says_so() -> None:
    with pytest.raises(FealError, match="UNet has no tail that can be trained alone: .* to all.$"):
        build_model("unet", task="segmentation", classes=2, channels=3, height=32, width=32).keep_part("tail")
