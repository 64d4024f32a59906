"""The U-Net against MONAI's own, and the sizes it takes."""

from __future__ import annotations

import pytest
import torch
from monai.networks.nets import BasicUNet

from feal.errors import FealError
from feal.models.unet import UNet


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
