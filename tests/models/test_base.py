"""Pooling and observed layers: against reference numbers and sums by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from feal.errors import FealError
from feal.models import ModuleAdapter, pool_3x3

GOLDEN = json.loads((Path(__file__).parent / "pool14.json").read_text())


def test_pooling_equals_the_reference_numbers() -> None:
    pooled = pool_3x3(torch.tensor(GOLDEN["maps"]))
    torch.testing.assert_close(pooled, torch.tensor(GOLDEN["pooled"]), rtol=0, atol=1e-7)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 2), (2, 5), (3, 3), (14, 14), (24, 20)])
def test_a_cell_is_the_mean_of_its_pixels(height: int, width: int) -> None:
    maps = torch.rand(2, 4, height, width, dtype=torch.float64)
    by_hand = torch.stack([cell.mean(dim=(2, 3)) for cell in _cells(maps)], dim=2).flatten(1)
    torch.testing.assert_close(pool_3x3(maps), by_hand)


def _cells(maps: torch.Tensor) -> list[torch.Tensor]:
    rows, columns = (_bounds(side) for side in maps.shape[2:])
    return [maps[:, :, top:bottom, left:right] for top, bottom in rows for left, right in columns]


def _bounds(side: int) -> list[tuple[int, int]]:
    return [(cell * side // 3, -(-(cell + 1) * side // 3)) for cell in range(3)]


class Residual(nn.Module):
    """A small residual classifier, written as one would write it elsewhere."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.block = nn.Conv2d(8, 8, 3, padding=1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        x = x + self.block(x)
        return self.fc(self.pool(x).flatten(1))


class Segmenter(nn.Module):
    """An encoder, a decoder, and a 1 x 1 head."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4))
        self.bottleneck = nn.Conv2d(6, 10, 3, padding=1)
        self.up = nn.Upsample(scale_factor=4)
        self.head = nn.Conv2d(10, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.up(self.bottleneck(self.down(x))))


def test_classifier_features_are_the_input_of_its_last_layer() -> None:
    module, images = Residual().eval(), torch.rand(5, 3, 16, 16)
    network = ModuleAdapter(module)
    output = network.outputs(images)
    x = torch.relu(module.norm(module.stem(images)))
    deep = module.block(x)
    torch.testing.assert_close(output.logits, module(images))
    torch.testing.assert_close(output.features, module.pool(x + deep).flatten(1))
    torch.testing.assert_close(output.deep, pool_3x3(deep))
    torch.testing.assert_close(network.head(output.head_input), output.logits)
    assert (network.task, network.classes) == ("classification", 4)


def test_segmentation_features_come_from_the_bottleneck() -> None:
    module, images = Segmenter().eval(), torch.rand(2, 1, 32, 32)
    network = ModuleAdapter(module)
    output = network.outputs(images)
    bottleneck = module.bottleneck(module.down(images))
    torch.testing.assert_close(output.features, bottleneck.mean((2, 3)))
    torch.testing.assert_close(output.deep, pool_3x3(bottleneck))
    torch.testing.assert_close(network.head(output.head_input), output.logits)
    assert (network.task, network.classes) == ("segmentation", 2)


def test_a_layer_that_runs_twice_counts_by_its_last_run() -> None:
    relu = nn.ReLU()
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3), relu, nn.Conv2d(4, 5, 3), relu, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 2)
    )
    network, images = ModuleAdapter(module), torch.rand(2, 3, 9, 9)
    for _ in range(2):
        torch.testing.assert_close(network.outputs(images).deep, pool_3x3(module[:4](images)))


def test_vectors_have_their_features_as_deep_ones() -> None:
    output = ModuleAdapter(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))).outputs(torch.rand(4, 6))
    torch.testing.assert_close(output.deep, output.features)


def test_no_hook_is_left_behind() -> None:
    module = Residual().eval()
    ModuleAdapter(module).outputs(torch.rand(2, 3, 16, 16))
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in module.modules())


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Flatten(0)), "must return logits"),
        (nn.Sequential(nn.Linear(6, 8), nn.Unflatten(1, (4, 2)), nn.Flatten(1, 2), nn.MaxPool1d(2)), "No linear"),
    ],
)
def test_modules_that_do_not_fit(module: nn.Module, sentence: str) -> None:
    with pytest.raises(FealError, match=sentence):
        ModuleAdapter(module).outputs(torch.rand(4, 6))
