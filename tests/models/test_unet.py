"""The paper's U-Net against outputs of the original, the basic one against MONAI's, and the sizes they take."""

from __future__ import annotations

import pytest
import torch
from monai.networks.nets import BasicUNet as MonaiUNet
from torch import nn

from feal.errors import FealError
from feal.models import Network, build_model
from feal.models.unet import BasicUNet, UNet
from tests.models.formula import fill_by_formula, read_golden, waves

GOLDEN = read_golden("g_unet.json")


def test_its_outputs_are_the_originals() -> None:
    model = UNet(classes=3, channels=3, params=UNet.Params(channels=GOLDEN["n"]))
    images = waves(1, 3, 32, 48)
    fill_by_formula(model, GOLDEN, images)
    with torch.no_grad():
        output = model.outputs(images)
        assert torch.equal(model(images), output.logits)
    assert torch.equal(model.head(output.head_input), output.logits)
    logits = output.logits[0].flatten(1)[:, :: GOLDEN["logit_stride"]]
    torch.testing.assert_close(logits, torch.tensor(GOLDEN["logits"]), atol=1e-4, rtol=0)
    deep = output.deep[0, :: GOLDEN["deep_stride"]]
    torch.testing.assert_close(deep, torch.tensor(GOLDEN["deep"]), atol=1e-4, rtol=0)
    assert float(output.logits.std()) == pytest.approx(GOLDEN["logit_sd"], rel=1e-4)


def test_its_size_is_the_originals() -> None:
    model = build_model("unet", task="segmentation", classes=2, channels=3, height=384, width=384)
    assert sum(tensor.numel() for tensor in model.parameters()) == GOLDEN["parameters_n16"]
    assert sum(isinstance(module, nn.Conv2d) for module in model.modules()) == 27
    assert not [module for module in model.modules() if isinstance(module, nn.InstanceNorm2d) and module.affine]
    narrow = build_model(
        "unet", task="segmentation", classes=2, channels=1, height=32, width=32, params={"channels": 4}
    )
    assert narrow.outputs(torch.rand(1, 1, 32, 32)).deep.shape == (1, 64 * 9)


def test_initial_logits_are_large_and_give_evidence_for_every_class() -> None:
    """Logits that start near zero would start without evidence."""
    deviations, shares = [], []
    for seed in range(12):
        torch.manual_seed(seed)
        with torch.no_grad():
            logits = UNet(classes=2, channels=3)(torch.rand(2, 3, 64, 64))
        deviations.append(float(logits.std()))
        shares.append((logits > 0).float().mean((0, 2, 3)))
    assert 3 < sum(deviations) / 12 < 6
    assert 0.2 < float(torch.stack(shares).mean()) < 0.8


def test_the_bottleneck_is_a_sixteenth_of_the_image() -> None:
    model, batch = UNet(classes=2, channels=3), torch.rand(2, 3, 48, 48)
    output = model.outputs(batch)
    assert output.deep.shape == (2, 256 * 9)
    assert output.head_input.shape == (2, 32, 48, 48)
    torch.testing.assert_close(output.features, output.deep.reshape(2, 256, 9).mean(2))


def test_the_basic_one_is_monais_network_bit_by_bit() -> None:
    torch.manual_seed(0)
    ours = BasicUNet(classes=3, channels=1)
    torch.manual_seed(0)
    norm = ("instance", {"affine": True})
    theirs = MonaiUNet(
        spatial_dims=2, in_channels=1, out_channels=3, features=(16, 32, 64, 128, 256, 16), norm=norm
    )
    batch = torch.rand(2, 1, 64, 48)
    assert torch.equal(ours(batch), theirs(batch))


def test_the_basic_bottleneck_is_a_sixteenth_of_the_image() -> None:
    model, batch = BasicUNet(classes=2, channels=3), torch.rand(2, 3, 48, 48)
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


def test_the_names_of_the_basic_state_are_stable() -> None:
    names = list(BasicUNet(classes=2, channels=1).state_dict())
    assert names[0] == "net.conv_0.conv_0.conv.weight"
    assert names[-1] == "net.final_conv.bias"
    assert len(names) == 82


@pytest.mark.parametrize("kind", [UNet, BasicUNet])
@pytest.mark.parametrize(("height", "width"), [(40, 64), (64, 100), (16, 64), (16, 16), (0, 32)])
def test_other_sizes_are_refused_with_advice(kind: type[Network], height: int, width: int) -> None:
    model = kind(classes=2, channels=3)
    for answer in (model, model.outputs):
        with pytest.raises(FealError, match="both sides are multiples of 16 and at least 32"):
            answer(torch.rand(1, 3, height, width))
