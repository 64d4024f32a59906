"""Gradient norms against one plain backward pass a sample, in float64."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from feal.evidential import concentration, expected_probability
from feal.models import Network, build_model
from feal.selection import gradient_norms as kernel
from feal.selection.gradient_norms import (
    entropy_gradient,
    gradient_norms,
    head_gradient_norms,
    layer_norms,
    supported_layers,
)

SIZE = 32
NETWORKS = {
    "tiny-cnn": "classification",
    "efficientnet-b0": "classification",
    "unet": "segmentation",
    "basic-unet": "segmentation",
}
PARAMS = {"unet": {"channels": 4}}
every_network = pytest.mark.parametrize(
    "name", ["tiny-cnn", pytest.param("efficientnet-b0", marks=pytest.mark.slow), "unet", "basic-unet"]
)


def softmax(logits: torch.Tensor) -> torch.Tensor:
    return torch.softmax(logits, dim=1)


def evidential(logits: torch.Tensor) -> torch.Tensor:
    return expected_probability(concentration(logits, "softplus", squared=True))


PROBABILITIES = {"plain": softmax, "evidential": evidential}


def network(name: str, *, classes: int = 3) -> Network:
    torch.manual_seed(3)
    task, params = NETWORKS[name], PARAMS.get(name)
    model = build_model(
        name, task=task, classes=classes, channels=3, height=SIZE, width=SIZE, params=params
    ).double()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0
    with torch.no_grad():
        model.train()(pictures(16))  # statistics that keep the signal alive through random weights
    return model.eval()


def pictures(count: int) -> torch.Tensor:
    return torch.rand(count, 3, SIZE, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


def by_backward(model: Network, images: torch.Tensor, probability: Callable, parameters: list) -> torch.Tensor:
    """Entropy, one backward a sample, the norms of what is in `.grad`."""
    scores = []
    for image in images:
        model.zero_grad()
        p = probability(model(image[None]))
        (-(p * p.log()).sum(1)).mean().backward()
        scores.append(sum(float(parameter.grad.square().sum().sqrt()) for parameter in parameters))
    model.zero_grad()
    return torch.tensor(scores, dtype=torch.float64)


@pytest.mark.parametrize("loss", PROBABILITIES)
@every_network
def test_all_parameters_against_one_backward_a_sample(name: str, loss: str) -> None:
    model, images = network(name), pictures(4)
    expected = by_backward(model, images, PROBABILITIES[loss], list(model.parameters()))
    assert float(expected.min()) > 0
    with torch.no_grad():
        found = gradient_norms(model, images, PROBABILITIES[loss])
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=0)


@pytest.mark.parametrize("loss", PROBABILITIES)
@every_network
def test_the_head_is_its_part_of_the_full_gradient(name: str, loss: str) -> None:
    model, images = network(name), pictures(4)
    expected = by_backward(model, images, PROBABILITIES[loss], list(model.head.parameters()))
    with torch.no_grad():
        found = head_gradient_norms(model.head, model.outputs(images), PROBABILITIES[loss])
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=0)


def test_the_heads_closed_form_for_softmax() -> None:
    model, images = network("tiny-cnn"), pictures(6)
    with torch.no_grad():
        output = model.outputs(images)
        p = softmax(output.logits)
        entropy = -(p * p.log()).sum(1, keepdim=True)
        delta = -p * (p.log() + entropy)
        expected = (output.head_input.norm(dim=1) + 1) * delta.norm(dim=1)
        direction, length = entropy_gradient(output.logits, softmax)
        torch.testing.assert_close(direction * length[:, None], delta)
        torch.testing.assert_close(head_gradient_norms(model.head, output, softmax), expected)


@every_network
@pytest.mark.parametrize("images_at_a_time", [1, 2, 3])
def test_chunks_do_not_matter(name: str, images_at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = network(name), pictures(5)
    together = gradient_norms(model, images, softmax)
    monkeypatch.setattr(kernel, "CHUNK_PIXELS", images_at_a_time * SIZE * SIZE)
    torch.testing.assert_close(gradient_norms(model, images, softmax), together, rtol=1e-10, atol=0)


@every_network
def test_float32_agrees_with_float64(name: str) -> None:
    model, images = network(name), pictures(3)
    exact = gradient_norms(model, images, softmax)
    # The bottleneck of the paper's U-Net has four pixels at this size, and their norm amplifies rounding.
    rtol = 1e-2 if name == "unet" else 1e-3
    torch.testing.assert_close(gradient_norms(model.float(), images.float(), softmax), exact, rtol=rtol, atol=0)


@every_network
@pytest.mark.parametrize("frozen", [False, True])
def test_nothing_is_left_on_the_network(name: str, frozen: bool) -> None:
    model, images = network(name), pictures(2)
    expected = gradient_norms(model, images, softmax)
    for number, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(not frozen and number % 2 == 0)
    flags = [parameter.requires_grad for parameter in model.parameters()]
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with torch.no_grad():
        found = gradient_norms(model, images, softmax)
        assert not torch.is_grad_enabled()
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=0)
    assert not found.requires_grad
    assert not images.requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())
    assert [parameter.requires_grad for parameter in model.parameters()] == flags
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_hooks_go_when_the_network_fails() -> None:
    model = network("tiny-cnn")
    with pytest.raises(RuntimeError):
        gradient_norms(model, torch.rand(2, 5, SIZE, SIZE, dtype=torch.float64), softmax)
    assert not any(module._forward_hooks for module in model.modules())


@every_network
@pytest.mark.parametrize("probability", [softmax, lambda z: expected_probability(concentration(z))])
def test_networks_of_zeros_and_constant_images_give_finite_scores(name: str, probability: Callable) -> None:
    model = network(name)
    flat = torch.stack([torch.full((3, SIZE, SIZE), value, dtype=torch.float64) for value in (0.0, 0.5, 1.0)])
    for scores in (
        gradient_norms(model, flat, probability),
        head_gradient_norms(model.head, model.outputs(flat), probability),
    ):
        assert bool(torch.isfinite(scores).all())
    for parameter in model.parameters():
        parameter.detach().zero_()
    for scores in (
        gradient_norms(model, flat, probability),
        head_gradient_norms(model.head, model.outputs(flat), probability),
    ):
        # A uniform prediction's gradient is 0 but for rounding, and ties stay ties.
        assert float(scores.max()) < 1e-15
        assert len(set(scores.tolist())) == 1


def test_probabilities_of_zero_and_tiny_gradients() -> None:
    logits = torch.tensor([[0.0, 3000.0, -3000.0], [0.0, 120.0, -50.0]])
    direction, length = entropy_gradient(logits, softmax)
    delta = direction * length[:, None]
    assert bool(torch.isfinite(delta).all())
    assert delta[0].tolist() == [0, 0, 0]
    # Below what float32 can hold: e^-120 * 120.
    assert float(delta[1, 0]) == pytest.approx(120 * torch.exp(torch.tensor(-120.0, dtype=torch.float64)).item())
    model = network("tiny-cnn").float()
    model.head.bias.data.copy_(torch.tensor([0.0, 120.0, -50.0]))
    images = pictures(2).float()
    exact = gradient_norms(model.double(), images.double(), softmax)
    assert 0 < float(exact.max()) < 1e-40
    torch.testing.assert_close(gradient_norms(model.float(), images, softmax), exact, rtol=1e-3, atol=0)


def test_a_spoiled_image_spoils_its_own_score_only() -> None:
    for name in NETWORKS:
        images = pictures(3)
        images[1] = torch.nan
        assert torch.isnan(gradient_norms(network(name), images, softmax)).tolist() == [False, True, False]


@every_network
def test_no_images(name: str) -> None:
    assert gradient_norms(network(name), pictures(0), softmax).shape == (0,)


def test_which_networks_go_layer_by_layer() -> None:
    assert supported_layers(network("tiny-cnn"))
    assert supported_layers(network("efficientnet-b0"))
    assert supported_layers(network("unet"))  # its instance norms have no parameters
    assert not supported_layers(network("basic-unet"))  # instance norm, transposed convolution
    assert not supported_layers(network("tiny-cnn").train())
    tied = network("tiny-cnn")
    tied.blocks.add_module("again", nn.Conv2d(128, 128, 1, bias=False).double())
    tied.blocks.add_module("same", nn.Conv2d(128, 128, 1, bias=False).double())
    assert supported_layers(tied)
    tied.blocks.same.weight = tied.blocks.again.weight
    assert not supported_layers(tied)


def test_a_layer_used_twice_is_left_to_one_backward_a_sample() -> None:
    model, images = network("tiny-cnn"), pictures(3)
    twice = nn.Conv2d(128, 128, 3, padding=1).double()
    model.blocks.append(nn.Sequential(twice, nn.ReLU(), twice))
    assert supported_layers(model)
    expected = by_backward(model, images, softmax, list(model.parameters()))
    torch.testing.assert_close(gradient_norms(model, images, softmax), expected, rtol=1e-8, atol=0)


def test_an_activation_in_place_on_a_view() -> None:
    model, images = network("tiny-cnn"), pictures(3)
    layer = nn.Conv2d(128, 128, 1).double()
    layer.register_forward_hook(lambda module, given, output: output.view_as(output))
    model.blocks.append(nn.Sequential(layer, nn.LeakyReLU(inplace=True)))
    expected = by_backward(model, images, softmax, list(model.parameters()))
    layers = supported_layers(model)
    assert layers
    found = kernel._chunk_norms(model, layers, images, softmax)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=0)


# Single layers against autograd, one sample at a time


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
