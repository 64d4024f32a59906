"""Pooling to 3 x 3, against the reference numbers and against sums by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from feal.models import pool3x3

GOLDEN = json.loads((Path(__file__).parent / "pool14.json").read_text())


def test_pooling_equals_the_reference_numbers() -> None:
    pooled = pool3x3(torch.tensor(GOLDEN["maps"]))
    torch.testing.assert_close(pooled, torch.tensor(GOLDEN["pooled"]), rtol=0, atol=1e-7)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 2), (2, 5), (3, 3), (14, 14), (24, 20)])
def test_a_cell_is_the_mean_of_its_pixels(height: int, width: int) -> None:
    maps = torch.rand(2, 4, height, width, dtype=torch.float64)
    by_hand = torch.stack([cell.mean(dim=(2, 3)) for cell in _cells(maps)], dim=2).flatten(1)
    torch.testing.assert_close(pool3x3(maps), by_hand)


def _cells(maps: torch.Tensor) -> list[torch.Tensor]:
    rows, columns = (_bounds(side) for side in maps.shape[2:])
    return [maps[:, :, top:bottom, left:right] for top, bottom in rows for left, right in columns]


def _bounds(side: int) -> list[tuple[int, int]]:
    return [(cell * side // 3, -(-(cell + 1) * side // 3)) for cell in range(3)]
