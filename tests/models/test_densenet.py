"""DenseNet-121 against MONAI's own."""

from __future__ import annotations

import pytest
import torch
from monai.networks.nets import DenseNet121 as Monai

from feal.models import load_weights, pool_3x3
from feal.models.densenet import DenseNet121

BATCH = torch.rand(4, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def model(*, seed: int = 0) -> DenseNet121:
    torch.manual_seed(seed)
    return DenseNet121(classes=5, channels=3)


@pytest.mark.parametrize("training", [False, True])
def test_forward_and_outputs_are_monais_bit_by_bit(training: bool) -> None:
    torch.manual_seed(0)
    theirs = Monai(spatial_dims=2, in_channels=3, out_channels=5).train(training)
    with torch.no_grad():
        reference = theirs(BATCH)
        assert torch.equal(model().train(training)(BATCH), reference)
        assert torch.equal(model().train(training).outputs(BATCH).logits, reference)


def test_deep_is_the_third_dense_block() -> None:
    net = model().eval()
    seen = []
    net.net.features.denseblock3.register_forward_hook(lambda layer, given, output: seen.append(output))
    with torch.no_grad():
        deep = net.outputs(BATCH).deep
    assert seen[0].shape == (4, 1024, 4, 4)
    assert torch.equal(deep, pool_3x3(seen[0]))


@pytest.mark.parametrize("published", ["norm.1", "norm1"])
def test_takes_the_names_of_torchvision(published: str) -> None:
    source, target = model(seed=1), model(seed=2)
    tensors = {}
    for name, tensor in source.state_dict().items():
        name = name.removeprefix("net.").replace(".layers.", ".").replace("class_layers.out", "classifier")
        for kind in ("norm", "conv"):
            for number in "12":
                name = name.replace(f"{kind}{number}.", f"{published.replace('norm', kind)[:-1]}{number}.")
        tensors[name] = tensor
    assert f"features.denseblock1.denselayer1.{published}.weight" in tensors
    load_weights(target, tensors, source="a file")
    state = target.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in source.state_dict().items())
