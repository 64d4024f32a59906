"""EfficientNet-B0 against outputs of the original, its regularisation, and its published names."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from feal.models import build_model, load_weights
from feal.models.efficientnet import EfficientNetB0
from tests.models.formula import fill_by_formula, read_golden, waves

GOLDEN = read_golden("h_efficientnet_b0.json")
BATCH = torch.rand(4, 3, 64, 64, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def model() -> EfficientNetB0:
    torch.manual_seed(0)
    return EfficientNetB0(classes=5, channels=3)


def test_its_outputs_are_the_originals() -> None:
    model = EfficientNetB0(classes=8, channels=3)
    images = (waves(1, 3, 64, 64) - 0.45) / 0.225
    fill_by_formula(model, GOLDEN, images)
    last: dict[str, torch.Tensor] = {}
    model.conv_stem.register_forward_hook(lambda *call: last.update(stem=call[2]))
    model.bn2.register_forward_hook(lambda *call: last.update(features=call[2]))
    with torch.no_grad():
        output = model.outputs(images)
    torch.testing.assert_close(output.logits[0], torch.tensor(GOLDEN["logits"]), atol=1e-4, rtol=0)
    stem = last["stem"].flatten()[:: GOLDEN["stem_stride"]]
    torch.testing.assert_close(stem, torch.tensor(GOLDEN["stem_conv"]), atol=1e-4, rtol=0)
    # The activation after the last norm works in place.
    features = last["features"].flatten()[:: GOLDEN["feature_stride"]]
    torch.testing.assert_close(features, torch.tensor(GOLDEN["features"]), atol=1e-4, rtol=0)
    torch.testing.assert_close(output.features, last["features"].mean((2, 3)))


def test_its_size_and_its_norms_are_the_originals() -> None:
    whole = EfficientNetB0(classes=1000, channels=3)
    assert sum(tensor.numel() for tensor in whole.parameters()) == 5_288_548
    norms = [layer for layer in whole.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert {(layer.eps, layer.momentum) for layer in norms} == {(1e-5, 0.1)}
    assert len(norms) == 49


def test_training_is_without_dropout_by_default(model: EfficientNetB0) -> None:
    twin = copy.deepcopy(model).train()
    first, second = twin(BATCH), twin(BATCH)
    assert torch.equal(first, second)


def test_dropout_and_drop_path_are_parameters() -> None:
    shape = {"task": "classification", "classes": 5, "channels": 3, "height": 64, "width": 64}
    model = build_model("efficientnet-b0", **shape, params={"dropout": 0.2}).train()
    output = model.outputs(BATCH)
    assert float((output.head_input == 0).float().mean()) == pytest.approx(0.2, abs=0.03)
    dropping = build_model("efficientnet-b0", **shape, params={"drop_path": 0.5}).train()
    assert not torch.equal(dropping.outputs(BATCH).features, dropping.outputs(BATCH).features)
    assert torch.equal(dropping.eval()(BATCH), dropping(BATCH))
    rates = [block.drop_path.probability for stage in dropping.blocks[1:] for block in stage if block.drop_path]
    assert rates == sorted(rates)
    assert rates == pytest.approx([0.5 * number / 16 for number in (2, 4, 6, 7, 9, 10, 12, 13, 14)])


def test_a_dropped_branch_keeps_its_mean() -> None:
    model = EfficientNetB0(classes=2, channels=3, params=EfficientNetB0.Params(drop_path=0.4))
    drop = model.blocks[5][3].drop_path.train()
    maps = torch.ones(20_000, 1, 1, 1)
    dropped = drop(maps)
    assert float((dropped == 0).float().mean()) == pytest.approx(drop.probability, abs=0.02)
    assert float(dropped.mean()) == pytest.approx(1, abs=0.03)


def test_deep_is_the_stage_with_112_channels(model: EfficientNetB0) -> None:
    with torch.no_grad():
        maps, late = model.eval().run_lower(BATCH)
    assert late.shape == (4, 112, 4, 4)
    assert maps.shape == (4, 192, 2, 2)


def test_its_names_are_those_of_the_published_file(model: EfficientNetB0) -> None:
    names = list(model.state_dict())
    assert {"conv_stem.weight", "blocks.0.0.conv_dw.weight", "blocks.6.0.se.conv_reduce.bias"} < set(names)
    assert names[-1] == "classifier.bias"
    assert len(names) == 360
    published = EfficientNetB0(classes=1000, channels=3).state_dict()
    other = copy.deepcopy(model)
    load_weights(other, published, source="imagenet")
    assert torch.equal(other.blocks[6][0].conv_pwl.weight, published["blocks.6.0.conv_pwl.weight"])
    assert torch.equal(other.classifier.weight, model.classifier.weight)
