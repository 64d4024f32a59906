"""A user's own network: found, checked and built from one file."""

from pathlib import Path

import pytest
import torch

from feal.errors import FealError
from feal.models import Output, build_model, find_model, restore_model

SHAPE = {"task": "classification", "classes": 4, "channels": 3, "height": 16, "width": 24}
NET = """
from torch import nn
from feal.models import Network


class Net(Network):
    task = "classification"
    min_side = 8

    class Params(Network.Params):
        width: int = 6

    def __init__(self, *, classes, channels, params=None):
        super().__init__(classes=classes, channels=channels, params=params)
        self.body = nn.Conv2d(channels, self.params.width, 3, padding=1)
        self.norm = nn.BatchNorm2d(self.params.width)
        self.classifier = nn.Linear(self.params.width, classes)

    def forward(self, images):
        return self.classifier(self.norm(self.body(images)).relu().mean((2, 3)))
"""


def _write(folder: Path, *change: str) -> str:
    path = folder / "net.py"
    path.write_text(NET.replace(*change) if change else NET)
    return f"{path}:Net"


def test_head_and_features_are_observed(tmp_path: Path) -> None:
    network, images = build_model(_write(tmp_path), **SHAPE).eval(), torch.rand(5, 3, 16, 24)
    output = network.outputs(images)
    assert isinstance(output, Output)
    assert network.head is network.classifier
    assert torch.equal(output.logits, network(images))
    assert torch.equal(network.head(output.head_input), output.logits)
    assert torch.equal(output.features, network.norm(network.body(images)).relu().mean((2, 3)))
    assert output.deep.shape == (5, 6 * 9)


def test_parameters_belong_to_the_class(tmp_path: Path) -> None:
    name = _write(tmp_path)
    assert build_model(name, **SHAPE, params={"width": 9}).head.in_features == 9
    with pytest.raises(FealError, match="no parameter 'wdth': did you mean 'width'"):
        build_model(name, **SHAPE, params={"wdth": 9})


def test_the_check_draws_nothing_and_leaves_the_network_as_it_is(tmp_path: Path) -> None:
    name = _write(tmp_path)
    torch.manual_seed(3)
    network = build_model(name, **SHAPE)
    after = torch.rand(1)
    torch.manual_seed(3)
    twin = find_model(name)(classes=4, channels=3)
    assert torch.equal(after, torch.rand(1))
    assert network.training
    for key, tensor in twin.state_dict().items():
        assert torch.equal(network.state_dict()[key], tensor)


def test_a_network_is_restored_from_its_weights(tmp_path: Path) -> None:
    name = _write(tmp_path)
    weights = build_model(name, **SHAPE).state_dict()
    restored = restore_model(name, weights, **SHAPE, params={"width": 6})
    assert restored.head.weight.equal(weights["classifier.weight"])


def test_a_network_without_parameters_takes_none(tmp_path: Path) -> None:
    path = tmp_path / "plain.py"
    path.write_text(
        NET.replace(", params=None", "")
        .replace(", params=params", "")
        .replace("self.params.width", "6")
        .replace("    class Params(Network.Params):\n        width: int = 6\n", "")
    )
    assert build_model(f"{path}:Net", **SHAPE).head.in_features == 6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('task = "classification"', "pass"), "The model Net has no task: set `task`"),
        (('task = "classification"', 'task = "segmentation"'), "is for segmentation, not for classification"),
        (("min_side = 8", "min_side = 32"), "cannot take images of 24 x 16 pixels"),
        (("Linear(self.params.width, classes)", "Linear(self.params.width, 7)"), r"gives logits \[2, 7\]"),
        (("mean((2, 3))", "mean(2)"), r"The model Net (fails|gives logits)"),
        (("def forward", "def backwards"), "lacks forward"),
        (("from torch import nn", "from torch import nothing"), "cannot be imported"),
        (("class Net(Network)", "class Net(nn.Module)"), "no model: derive it from feal.models.Network"),
        (("self.norm(self", "self.missing(self"), r"fails on images of 3 channels .*AttributeError"),
        (("return self.classifier(", "return self.classifier.weight[0, 0] * ("), "gives logits"),
    ],
)
def test_a_class_that_breaks_the_contract_is_one_sentence(
    tmp_path: Path, change: tuple[str, str], words: str
) -> None:
    with pytest.raises(FealError, match=words) as raised:
        build_model(_write(tmp_path, *change), **SHAPE)
    assert "\n" not in str(raised.value)


def test_outputs_that_do_not_belong_to_the_head_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.py"
    path.write_text(
        NET
        + """
    def outputs(self, images):
        output = super().outputs(images)
        return output._replace(head_input=output.head_input + 1)
"""
    )
    with pytest.raises(FealError, match="`outputs` of the model Net are not as they should be"):
        build_model(f"{path}:Net", **SHAPE)
