"""Turning, flipping and cutting against loops over images and pixels."""

import math
from itertools import product

import numpy as np
import pytest
import torch

from feal.data.transforms.geometry import centred, crop_offsets, cropped, flipped, rotated

DRAW = np.random.default_rng(0)
IMAGES = torch.from_numpy(DRAW.random((3, 2, 8, 11), dtype=np.float32))
MASKS = torch.from_numpy(DRAW.integers(0, 4, (3, 8, 11)).astype(np.uint8))
CLASSES = torch.tensor([2, 0, 1])


def _source(y: int, x: int, degrees: float, height: int, width: int) -> tuple[float, float]:
    """The place that comes to (y, x) when a picture is turned counter-clockwise around its centre."""
    down, right, angle = y - (height - 1) / 2, x - (width - 1) / 2, math.radians(degrees)
    return (
        right * math.sin(angle) + down * math.cos(angle) + (height - 1) / 2,
        right * math.cos(angle) - down * math.sin(angle) + (width - 1) / 2,
    )


def _turned(plane: np.ndarray, degrees: float, *, nearest: bool) -> np.ndarray:
    height, width = plane.shape
    result = np.zeros_like(plane)
    for y, x in product(range(height), range(width)):
        v, u = _source(y, x, degrees, height, width)
        if nearest:
            places = [(round(v), round(u), 1.0)]
        else:
            low_v, low_u = math.floor(v), math.floor(u)
            corners = product((low_v, low_v + 1), (low_u, low_u + 1))
            places = [(b, a, (1 - abs(v - b)) * (1 - abs(u - a))) for b, a in corners]
        result[y, x] = sum(share * plane[b, a] for b, a, share in places if 0 <= b < height and 0 <= a < width)
    return result


def test_each_image_and_mask_is_turned_by_its_own_angle() -> None:
    degrees = torch.tensor([-33.0, 0.0, 9.5], dtype=torch.float64)
    images, masks = rotated(IMAGES, MASKS, degrees)
    for index, angle in enumerate(degrees.tolist()):
        for channel in range(2):
            expected = _turned(IMAGES[index, channel].numpy(), angle, nearest=False)
            assert images[index, channel].numpy() == pytest.approx(expected, abs=1e-5)
        assert (masks[index].numpy() == _turned(MASKS[index].numpy(), angle, nearest=True)).all()
    assert torch.equal(images[1], IMAGES[1])
    assert masks.dtype == torch.uint8
    assert torch.equal(rotated(IMAGES, CLASSES, degrees)[1], CLASSES)


def test_a_quarter_turn_is_counter_clockwise_and_exact() -> None:
    square, mask = IMAGES[:1, :, :, :8], MASKS[:1, :, :8]
    image, turned = rotated(square, mask, torch.tensor([90.0], dtype=torch.float64))
    assert image[0].numpy() == pytest.approx(np.rot90(square[0].numpy(), axes=(1, 2)), abs=1e-5)
    assert (turned[0].numpy() == np.rot90(mask[0].numpy())).all()


def test_no_angle_changes_nothing() -> None:
    images, masks = rotated(IMAGES, MASKS, torch.zeros(3, dtype=torch.float64))
    assert images is IMAGES
    assert masks is MASKS


def test_each_image_is_flipped_as_its_flags_say() -> None:
    sideways, over = torch.tensor([True, False, True]), torch.tensor([False, True, True])
    images, masks = flipped(IMAGES, MASKS, sideways=sideways, over=over)
    for index in range(3):
        axes = [-1] * bool(sideways[index]) + [-2] * bool(over[index])
        assert (images[index].numpy() == np.flip(IMAGES[index].numpy(), axes)).all()
        assert (masks[index].numpy() == np.flip(MASKS[index].numpy(), axes)).all()
    assert flipped(IMAGES, CLASSES, sideways=sideways, over=over)[1] is CLASSES


@pytest.mark.parametrize(
    ("rule", "rows", "columns"),
    [("centre", [32], [16]), ("middle", range(16, 50), range(8, 25)), ("random", range(66), range(33))],
)
def test_a_crop_lies_anywhere_the_rule_allows(rule: str, rows: range, columns: range) -> None:
    draws = torch.arange(0, 1, 1e-4, dtype=torch.float64)
    offsets = crop_offsets(draws, size=20, rule=rule, shape=(85, 52))
    assert set(offsets) == set(product(rows, columns))
    counts = np.unique(offsets, axis=0, return_counts=True)[1]
    assert np.ptp(counts) <= 1  # every one as likely


def test_crops_are_cut_at_their_offsets() -> None:
    offsets = [(0, 0), (2, 5), (1, 3)]
    for values in (IMAGES, MASKS):
        cut = cropped(values, offsets, size=6)
        for index, (top, left) in enumerate(offsets):
            assert torch.equal(cut[index], values[index, ..., top : top + 6, left : left + 6])
    whole = crop_offsets(torch.zeros(3, dtype=torch.float64), size=5, rule="centre", shape=IMAGES.shape[2:])
    assert torch.equal(centred(IMAGES, 5), cropped(IMAGES, whole, size=5))


def test_foreground_is_in_every_crop_and_every_such_crop_is_as_likely() -> None:
    masks = torch.zeros(2, 12, 9, dtype=torch.uint8)
    masks[0, 1, 7] = 2
    masks[1, 10:, :2] = 1
    draws = torch.arange(0, 1, 1e-3, dtype=torch.float64)
    for mask in masks:
        offsets = crop_offsets(
            draws, size=4, rule="foreground", shape=(12, 9), masks=mask.expand(len(draws), -1, -1)
        )
        places = product(range(9), range(6))
        showing = {(y, x) for y, x in places if mask[y : y + 4, x : x + 4].any()}
        assert set(offsets) == showing
        assert np.ptp(np.unique(offsets, axis=0, return_counts=True)[1]) <= 1


def test_an_empty_mask_takes_any_crop_and_a_full_size_one_the_only() -> None:
    draws = torch.arange(0, 1, 1e-3, dtype=torch.float64)
    empty = torch.zeros(len(draws), 6, 7, dtype=torch.uint8)
    offsets = crop_offsets(draws, size=4, rule="foreground", shape=(6, 7), masks=empty)
    assert set(offsets) == set(product(range(3), range(4)))
    for rule in ("centre", "middle", "random", "foreground"):
        alone = crop_offsets(draws[:3], size=6, rule=rule, shape=(6, 6), masks=torch.ones(3, 6, 6))
        assert alone == [(0, 0)] * 3
