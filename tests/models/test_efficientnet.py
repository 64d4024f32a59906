"""EfficientNet-B0 against MONAI's own, randomness included."""

from __future__ import annotations

import copy

import pytest
import torch
from monai.networks.nets import EfficientNetBN

from feal.models.efficientnet import EfficientNetB0

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
        assert model.eval()._late_stage(BATCH).shape == (4, 112, 4, 4)


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
