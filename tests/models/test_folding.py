import pytest
import torch
from torch import nn

from feal.evidential import build_loss
from feal.models import MODELS, Network, build_model, fold_batch_norms
from feal.selection import RoleModel, SelectionContext, Strategy, build_strategy
from feal.settings import Component

FOLDING = [name for name in MODELS.names() if MODELS.get(name).folds_batch_norms]


def _network(name: str, seed: int = 0) -> Network:
    torch.manual_seed(seed)
    network = build_model(name, task=MODELS.get(name).task, classes=3, channels=3, height=64, width=64)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.running_var, module.weight):
                assert tensor is not None
                nn.init.uniform_(tensor, 0.5, 2)
            for tensor in (module.running_mean, module.bias):
                assert tensor is not None
                nn.init.normal_(tensor, std=0.1)
    return network.eval()


def test_the_networks_that_gain_are_folded() -> None:
    assert FOLDING == ["efficientnet-b0", "efficientnet-lite0", "unet-lite0"]


@pytest.mark.parametrize("name", FOLDING)
@torch.no_grad()
def test_outputs_stay_the_same_without_any_batch_norm(name: str) -> None:
    network, images = _network(name), torch.rand(4, 3, 64, 64)
    before = network.outputs(images)
    folded = fold_batch_norms(network.train())
    for part, expected in zip(folded.outputs(images), before, strict=True):
        torch.testing.assert_close(part, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    assert torch.equal(network.outputs(images).logits, before.logits)


@torch.no_grad()
def test_new_weights_are_folded_anew() -> None:
    network, images = _network("efficientnet-b0"), torch.rand(4, 3, 64, 64)
    first = fold_batch_norms(network)(images)
    network.load_state_dict(_network("efficientnet-b0", seed=1).state_dict())
    folded, expected = fold_batch_norms(network)(images), network(images)
    torch.testing.assert_close(folded, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
    assert not torch.allclose(folded, first, rtol=1e-3)


def test_a_network_that_does_not_declare_it_is_returned_itself() -> None:
    network = _network("tiny-cnn")
    assert fold_batch_norms(network) is network


def test_only_a_strategy_that_declares_it_gets_folded_networks() -> None:
    """Folded parameters are others, and so are the norms of their gradients: own strategies may need them too."""
    network, images = _network("efficientnet-b0"), torch.rand(2, 3, 64, 64)
    strategy = build_strategy(Component(name="gradnorm"))
    context = SelectionContext.for_reading(task="classification", classes=3, loss=build_loss(None))
    norms = [
        strategy.observe(images, {"global": RoleModel(each)}, context)["gradient_global"]
        for each in (network, fold_batch_norms(network))
    ]
    assert not torch.allclose(*norms, rtol=1e-2)
    assert not strategy.folds_batch_norms
    assert not Strategy.folds_batch_norms
    assert build_strategy(Component(name="feal")).folds_batch_norms
