"""Single layers' gradient norms against autograd, one sample at a time."""

import pytest
import torch
from torch import nn

from feal.selection.layer_gradients import layer_norms


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 1},
        {"kernel_size": 1, "stride": 2},
        {"kernel_size": 1, "padding": 1},
        {"kernel_size": 3, "padding": 1},
        {"kernel_size": 3, "padding": 2, "dilation": 2, "bias": False},
        {"kernel_size": (3, 5), "stride": (2, 1), "padding": (0, 2)},
        {"kernel_size": 3, "padding": 1, "groups": 2},
        {"kernel_size": 5, "padding": 2, "groups": 8, "stride": 2},
    ],
)
@pytest.mark.parametrize("side", [5, 7, 16])  # 16 exceeds what is done for all samples at once
def test_convolutions(options: dict, side: int) -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(8, 16, **options).double()
    images = torch.randn(3, 8, side, side, dtype=torch.float64)
    check_layer(layer, images)


@pytest.mark.parametrize("shape", [(4, 6), (4, 2, 6), (4, 50, 6)])
def test_linear_layers(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    check_layer(nn.Linear(6, 9).double(), torch.randn(shape, dtype=torch.float64))


def test_batch_norm() -> None:
    torch.manual_seed(0)
    layer = nn.BatchNorm2d(4).double().eval()
    layer.running_mean.normal_()
    layer.running_var.uniform_(0.5, 2)
    check_layer(layer, torch.randn(3, 4, 5, 5, dtype=torch.float64))


def check_layer(layer: nn.Module, images: torch.Tensor) -> None:
    output = layer(images)
    slope = torch.randn_like(output)
    expected = []
    for image, each in zip(images, slope, strict=True):
        found = torch.autograd.grad(layer(image[None]), list(layer.parameters()), each[None])
        expected.append(sum(float(gradient.norm()) for gradient in found))
    with torch.no_grad():
        torch.testing.assert_close(
            layer_norms(layer, images, slope), torch.tensor(expected, dtype=torch.float64), rtol=1e-10, atol=0
        )


def test_a_layer_it_does_not_know() -> None:
    with pytest.raises(TypeError, match="PReLU"):
        layer_norms(nn.PReLU(), torch.rand(1, 2), torch.rand(1, 2))
    same = nn.Conv2d(2, 2, 3, padding="same")
    with pytest.raises(TypeError, match="same"):
        layer_norms(same, torch.rand(1, 2, 9, 9), torch.rand(1, 2, 9, 9))
