"""Pooling, devices and threads: against the reference numbers and against sums by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from feal.models import mixed_precision, pool_3x3, resolve_device, to_device, use_threads

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


def test_auto_is_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, name in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert resolve_device("auto").type == name
        assert resolve_device("cpu").type == "cpu"


def test_images_keep_their_values_and_come_channels_last() -> None:
    images = torch.rand(2, 3, 8, 4)
    placed = to_device(images, torch.device("cpu"))
    assert torch.equal(placed, images)
    assert placed.is_contiguous(memory_format=torch.channels_last)


def test_threads_are_given_back_also_after_a_failure() -> None:
    before = torch.get_num_threads()
    with use_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
    with pytest.raises(RuntimeError), use_threads(before + 1):
        raise RuntimeError
    assert torch.get_num_threads() == before


def test_what_is_no_image_keeps_its_form() -> None:
    features = torch.rand(5, 7)
    assert torch.equal(to_device(features, torch.device("cpu")), features)


def test_a_cpu_computes_in_full_precision() -> None:
    layer, given = torch.nn.Linear(3, 2), torch.rand(4, 3)
    with mixed_precision(torch.device("cpu")):
        assert torch.equal(layer(given), torch.nn.functional.linear(given, layer.weight, layer.bias))
        assert layer(given).dtype == torch.float32


@pytest.mark.parametrize("able", [True, False])
def test_a_gpu_that_computes_with_bfloat16_does(able: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **options: able)
    monkeypatch.setattr(torch, "autocast", lambda device, **options: asked.update(device=device, **options))
    mixed_precision(torch.device("cuda"))
    assert asked == {"device": "cuda", "dtype": torch.bfloat16, "enabled": able}
