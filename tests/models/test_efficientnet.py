"""EfficientNet-B0 against MONAI's own, randomness included; Lite0 against the package of its weights."""

from __future__ import annotations

import copy

import pytest
import torch
from monai.networks.nets import EfficientNetBN

from feal.models import load_weights, read_weights
from feal.models.efficientnet import EfficientNetB0, EfficientNetLite0

BATCH = torch.rand(4, 3, 64, 64, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def model() -> EfficientNetB0:
    torch.manual_seed(0)
    return EfficientNetB0(classes=5, channels=3)


@pytest.fixture(scope="module")
def theirs() -> EfficientNetBN:
    torch.manual_seed(0)
    return EfficientNetBN("efficientnet-b0", pretrained=False, in_channels=3, num_classes=5)


@pytest.mark.parametrize("training", [False, True])
def test_forward_and_outputs_are_monais_bit_by_bit(
    model: EfficientNetB0, theirs: EfficientNetBN, training: bool
) -> None:
    answers = (copy.deepcopy(model), copy.deepcopy(model).outputs, copy.deepcopy(theirs))
    ours, output, reference = (seeded(answer, training=training) for answer in answers)
    assert torch.equal(ours, reference)
    assert torch.equal(output.logits, reference)


def test_statistics_follow_the_weights_within_a_hundred_steps(model: EfficientNetB0) -> None:
    momenta = {layer.momentum for layer in model.modules() if isinstance(layer, torch.nn.BatchNorm2d)}
    assert all(momentum is not None and (1 - momentum) ** 100 < 1e-4 for momentum in momenta)


def test_training_drops_blocks_and_features(model: EfficientNetB0) -> None:
    twin = copy.deepcopy(model).train()
    torch.manual_seed(1)
    first = twin.outputs(BATCH)
    second = twin.outputs(BATCH)
    assert not torch.equal(first.features, second.features)
    assert (first.head_input == 0).float().mean() == pytest.approx(0.2, abs=0.03)


def test_deep_is_the_stage_with_112_channels(model: EfficientNetB0) -> None:
    stages = model.net._blocks
    widths = [stage[-1].out_channels for stage in stages]
    assert widths == [16, 24, 40, 80, 112, 192, 320]
    with torch.no_grad():
        maps, late = model.eval().run_lower(BATCH)
    assert late.shape == (4, 112, 4, 4)
    assert maps.shape == (4, 192, 2, 2)


def test_the_names_of_its_state_are_stable(model: EfficientNetB0) -> None:
    names = list(model.state_dict())
    assert names[0] == "net._conv_stem.weight"
    assert names[-1] == "net._fc.bias"
    assert len(names) == 360


def seeded(answer, *, training: bool):
    network = getattr(answer, "__self__", answer)
    network.train(training)
    torch.manual_seed(9)
    with torch.no_grad():
        return answer(BATCH)


def test_lite0_with_its_weights_answers_as_the_package_does() -> None:
    package = pytest.importorskip("efficientnet_lite_pytorch")
    tensors = read_weights("efficientnet-lite0", "imagenet")
    reference = package.EfficientNet.from_name("efficientnet-lite0").eval()
    reference.load_state_dict(tensors)
    model = EfficientNetLite0(classes=1000, channels=3)
    load_weights(model, tensors, source="a file")
    images = torch.rand(2, 3, 96, 128, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert torch.equal(model.eval()(images), reference(images))
        features = reference._avg_pooling(reference.extract_features(images)).flatten(1)
        assert torch.equal(model.outputs(images).features, features)


def test_lite0_drops_blocks_as_b0_does() -> None:
    model = EfficientNetLite0(classes=5, channels=3).train()
    torch.manual_seed(1)
    with torch.no_grad():
        first, second = model.outputs(BATCH), model.outputs(BATCH)
    assert not torch.equal(first.features, second.features)
    assert (first.head_input == 0).float().mean() > (first.features == 0).float().mean() + 0.02
