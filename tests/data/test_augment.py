"""Turning, flipping and cutting against loops over images and pixels."""

import math
from itertools import product

import numpy as np
import pytest
import torch

from feal.data.augment import (
    adjust_brightness_and_contrast,
    augment,
    check_transforms,
    crop,
    crop_centre,
    draw_crop_offsets,
    flip,
    normalise,
    normalise_values,
    rotate,
)
from feal.data.resize import Fitting
from feal.errors import FealError
from feal.settings import Transforms

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
    """By loops, with the border reflected about the outermost pixels' centres."""
    height, width = plane.shape
    padded = np.pad(plane, 2 * max(plane.shape), mode="reflect")
    result = np.zeros_like(plane)
    for y, x in product(range(height), range(width)):
        v, u = _source(y, x, degrees, height, width)
        if nearest:
            places = [(round(v), round(u), 1.0)]
        else:
            low_v, low_u = math.floor(v), math.floor(u)
            corners = product((low_v, low_v + 1), (low_u, low_u + 1))
            places = [(b, a, (1 - abs(v - b)) * (1 - abs(u - a))) for b, a in corners]
        margin = 2 * max(plane.shape)
        result[y, x] = sum(share * padded[b + margin, a + margin] for b, a, share in places)
    return result


def test_each_image_and_mask_is_turned_by_its_own_angle() -> None:
    degrees = torch.tensor([-33.0, 0.0, 9.5], dtype=torch.float64)
    images, masks = rotate(IMAGES, MASKS, degrees)
    for index, angle in enumerate(degrees.tolist()):
        for channel in range(2):
            expected = _turned(IMAGES[index, channel].numpy(), angle, nearest=False)
            assert images[index, channel].numpy() == pytest.approx(expected, abs=1e-5)
        assert (masks[index].numpy() == _turned(MASKS[index].numpy(), angle, nearest=True)).all()
    assert torch.equal(images[1], IMAGES[1])
    assert masks.dtype == torch.uint8
    assert torch.equal(rotate(IMAGES, CLASSES, degrees)[1], CLASSES)


def test_a_quarter_turn_is_counter_clockwise_and_exact() -> None:
    square, mask = IMAGES[:1, :, :, :8], MASKS[:1, :, :8]
    image, turned = rotate(square, mask, torch.tensor([90.0], dtype=torch.float64))
    assert image[0].numpy() == pytest.approx(np.rot90(square[0].numpy(), axes=(1, 2)), abs=1e-5)
    assert (turned[0].numpy() == np.rot90(mask[0].numpy())).all()


def test_no_angle_changes_nothing() -> None:
    images, masks = rotate(IMAGES, MASKS, torch.zeros(3, dtype=torch.float64))
    assert images is IMAGES
    assert masks is MASKS


def test_each_image_is_flipped_as_its_flags_say() -> None:
    horizontal, vertical = torch.tensor([True, False, True]), torch.tensor([False, True, True])
    images, masks = flip(IMAGES, MASKS, horizontal=horizontal, vertical=vertical)
    for index in range(3):
        axes = [-1] * bool(horizontal[index]) + [-2] * bool(vertical[index])
        assert (images[index].numpy() == np.flip(IMAGES[index].numpy(), axes)).all()
        assert (masks[index].numpy() == np.flip(MASKS[index].numpy(), axes)).all()
    assert flip(IMAGES, CLASSES, horizontal=horizontal, vertical=vertical)[1] is CLASSES


@pytest.mark.parametrize(
    ("rule", "rows", "columns"),
    [("centre", [32], [16]), ("middle", range(16, 50), range(8, 25)), ("random", range(66), range(33))],
)
def test_a_crop_lies_anywhere_the_rule_allows(rule: str, rows: range, columns: range) -> None:
    draws = torch.arange(0, 1, 1e-4, dtype=torch.float64)
    offsets = draw_crop_offsets(draws, size=20, rule=rule, shape=(85, 52))
    assert set(offsets) == set(product(rows, columns))
    counts = np.unique(offsets, axis=0, return_counts=True)[1]
    assert np.ptp(counts) <= 1  # every one as likely


def test_crops_are_cut_at_their_offsets() -> None:
    offsets = [(0, 0), (2, 5), (1, 3)]
    for values in (IMAGES, MASKS):
        cut = crop(values, offsets, size=6)
        for index, (top, left) in enumerate(offsets):
            assert torch.equal(cut[index], values[index, ..., top : top + 6, left : left + 6])
    whole = draw_crop_offsets(torch.zeros(3, dtype=torch.float64), size=5, rule="centre", shape=IMAGES.shape[2:])
    assert torch.equal(crop_centre(IMAGES, 5), crop(IMAGES, whole, size=5))


def test_foreground_is_in_every_crop_and_every_such_crop_is_as_likely() -> None:
    masks = torch.zeros(2, 12, 9, dtype=torch.uint8)
    masks[0, 1, 7] = 2
    masks[1, 10:, :2] = 1
    draws = torch.arange(0, 1, 1e-3, dtype=torch.float64)
    for mask in masks:
        offsets = draw_crop_offsets(
            draws, size=4, rule="foreground", shape=(12, 9), masks=mask.expand(len(draws), -1, -1)
        )
        places = product(range(9), range(6))
        showing = {(y, x) for y, x in places if mask[y : y + 4, x : x + 4].any()}
        assert set(offsets) == showing
        assert np.ptp(np.unique(offsets, axis=0, return_counts=True)[1]) <= 1


def test_an_empty_mask_takes_any_crop_and_a_full_size_one_the_only() -> None:
    draws = torch.arange(0, 1, 1e-3, dtype=torch.float64)
    empty = torch.zeros(len(draws), 6, 7, dtype=torch.uint8)
    offsets = draw_crop_offsets(draws, size=4, rule="foreground", shape=(6, 7), masks=empty)
    assert set(offsets) == set(product(range(3), range(4)))
    for rule in ("centre", "middle", "random", "foreground"):
        alone = draw_crop_offsets(draws[:3], size=6, rule=rule, shape=(6, 6), masks=torch.ones(3, 6, 6))
        assert alone == [(0, 0)] * 3


STORED = np.random.default_rng(0).integers(0, 256, (4, 3, 9, 7)).astype(np.uint8)
IMAGES_COLOUR = torch.from_numpy(STORED.astype(np.float32) / 255)
BRIGHTNESS = torch.tensor([0.0, 0.15, -0.15, 0.6], dtype=torch.float64)
CONTRAST = torch.tensor([0.0, 0.1, -0.1, 0.0], dtype=torch.float64)


def test_brightness_is_added_and_contrast_multiplies() -> None:
    found = adjust_brightness_and_contrast(IMAGES_COLOUR, brightness=BRIGHTNESS, contrast=CONTRAST)
    for image, stored, b, c in zip(found, STORED, BRIGHTNESS.tolist(), CONTRAST.tolist(), strict=True):
        expected = np.clip(stored.astype(float) * (1 + c) + b * 255, 0, 255)
        assert image.numpy() * 255 == pytest.approx(expected, abs=1e-3)
    assert torch.equal(found[0], IMAGES_COLOUR[0])
    assert float(found[3].max()) == 1


def test_images_of_a_range_of_their_own_keep_it() -> None:
    images = IMAGES_COLOUR * 2000 - 500
    changed = adjust_brightness_and_contrast(images, brightness=0 * BRIGHTNESS, contrast=CONTRAST + 0.6)
    assert not torch.equal(changed, images)
    for after, before in zip(changed, images, strict=True):
        assert float(before.min()) <= float(after.min())
        assert float(after.max()) <= float(before.max())
    assert float(changed.max()) > 1000


def test_no_change_of_brightness_and_contrast_changes_nothing() -> None:
    none = torch.zeros(4, dtype=torch.float64)
    assert adjust_brightness_and_contrast(IMAGES_COLOUR, brightness=none, contrast=none) is IMAGES_COLOUR


def test_imagenet_s_mean_and_deviation() -> None:
    found = normalise_values(IMAGES_COLOUR, "imagenet")
    for channel, (mean, deviation) in enumerate(((0.485, 0.229), (0.456, 0.224), (0.406, 0.225))):
        expected = (STORED[:, channel] / 255 - mean) / deviation
        assert found[:, channel].numpy() == pytest.approx(expected, abs=1e-5)


def test_division_by_each_image_s_maximum() -> None:
    images = IMAGES_COLOUR.clone()
    images[1], images[2] = 0, -images[2]
    found = normalise_values(images, "maximum")
    for index in (0, 3):
        assert found[index].numpy() == pytest.approx(images[index].numpy() / images[index].numpy().max())
    assert torch.equal(found[1:3], images[1:3])


def test_none_is_none() -> None:
    assert normalise_values(IMAGES_COLOUR, "none") is IMAGES_COLOUR


DRAW_TRAINING = np.random.default_rng(1)
IMAGES_TRAINING = torch.from_numpy(DRAW_TRAINING.random((12, 3, 16, 14), dtype=np.float32))
MASKS_TRAINING = torch.from_numpy(DRAW_TRAINING.integers(0, 2, (12, 16, 14)))
CLASSES_TRAINING = torch.arange(12)
ALL = Transforms(
    rotation=10, brightness=0.15, contrast=0.1, flips=True, crop=9, crop_rule="random", normalise="imagenet"
)


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_batch_equals_its_images_one_by_one() -> None:
    """In the order rotation, brightness with contrast, flip, crop, normalisation."""
    transforms = ALL.model_copy(update={"normalise": "maximum"})
    images, masks = augment(IMAGES_TRAINING, MASKS_TRAINING, transforms, _generator())
    draws = torch.rand(12, 7, generator=_generator(), dtype=torch.float64)
    for index, (turn, angle, change, brightness, contrast, mirror, place) in enumerate(draws.tolist()):
        image, mask = IMAGES_TRAINING[index : index + 1], MASKS_TRAINING[index : index + 1]
        if turn < 0.5:
            image, mask = rotate(image, mask, torch.tensor([10 * (2 * angle - 1)], dtype=torch.float64))
        if change < 0.5:
            image = (image * (1 + 0.1 * (2 * contrast - 1)) + 0.15 * (2 * brightness - 1)).clamp(0, 1)
        axes = [[-1], [-1, -2], [-2], [], [], []][int(mirror * 6)]
        image, mask = image.flip(axes), mask.flip(axes)
        offset = [divmod(int(place * 8 * 6), 6)]
        image, mask = (crop(value, offset, size=9) for value in (image, mask))
        assert torch.allclose(images[index], image[0] / image.max(), atol=1e-5)
        assert torch.equal(masks[index], mask[0])


def test_the_corners_of_rotated_images_are_never_black() -> None:
    images, masks = torch.full((200, 3, 20, 26), 0.7), torch.ones(200, 20, 26, dtype=torch.long)
    found, turned = augment(images, masks, Transforms(rotation=10, probability=1), _generator())
    assert torch.allclose(found, images, atol=1e-5)
    assert bool((turned == 1).all())


def test_batches_do_not_shift_each_other() -> None:
    whole = augment(IMAGES_TRAINING, MASKS_TRAINING, ALL, _generator())
    generator = _generator()
    parts = [
        augment(IMAGES_TRAINING[part], MASKS_TRAINING[part], ALL, generator)
        for part in (slice(0, 5), slice(5, 12))
    ]
    for index in range(2):
        assert torch.allclose(whole[index].float(), torch.cat([part[index] for part in parts]).float(), atol=1e-6)
    fewer = ALL.model_copy(update={"rotation": 0.0, "brightness": 0.0, "crop": 0})
    state = _generator()
    augment(IMAGES_TRAINING, CLASSES_TRAINING, fewer, state)
    other = _generator()
    augment(IMAGES_TRAINING, MASKS_TRAINING, ALL, other)
    assert torch.equal(state.get_state(), other.get_state())


def test_the_same_generator_gives_the_same_and_another_another() -> None:
    first, again, other = (
        augment(IMAGES_TRAINING, MASKS_TRAINING, ALL, _generator(seed))[0] for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_nothing_asked_is_nothing_done() -> None:
    images, masks = augment(IMAGES_TRAINING, MASKS_TRAINING, Transforms(), _generator())
    assert images is IMAGES_TRAINING
    assert masks is MASKS_TRAINING
    never = ALL.model_copy(update={"probability": 0.0, "crop": 0, "normalise": "none"})
    assert torch.equal(augment(IMAGES_TRAINING, MASKS_TRAINING, never, _generator())[0], IMAGES_TRAINING)


@pytest.mark.parametrize("rule", ["centre", "foreground", "middle", "random"])
def test_masks_stay_on_their_images(rule: str) -> None:
    """Images that show their mask's colour show it afterwards too, but for what lies between two pixels."""
    blocks = torch.nn.functional.interpolate(MASKS_TRAINING[:, None, ::4, ::4].float(), size=(16, 14)).squeeze(1)
    transforms = Transforms(rotation=30, flips=True, crop=10, crop_rule=rule)
    images, masks = augment(blocks.unsqueeze(1), blocks.long(), transforms, _generator())
    sure = (images[:, 0] < 1e-4) | (images[:, 0] > 1 - 1e-4)
    assert sure.float().mean() > 0.7
    assert torch.equal(images[:, 0].round().long()[sure], masks[sure])
    still = transforms.model_copy(update={"rotation": 0.0})
    images, masks = augment(blocks.unsqueeze(1), blocks.long(), still, _generator())
    assert torch.equal(images[:, 0].long(), masks)
    assert masks.shape == (12, 10, 10)


@pytest.mark.parametrize("probability", [0.0, 0.3, 0.5, 1.0])
def test_the_laws_of_the_draws(probability: float) -> None:
    """Half of the images are not flipped at 0.5; brightness and contrast come together, a flip on its own."""
    count = 12_000
    pixels = torch.tensor([[[[0.3, 0.4], [0.45, 0.6]]]]).expand(count, 1, 2, 2)
    settings = Transforms(probability=probability, flips=True, brightness=0.1, contrast=0.2)
    images, _ = augment(pixels, torch.zeros(count), settings, _generator(3))
    horizontal = images[:, 0, 0, 0] > images[:, 0, 0, 1]
    vertical = images[:, 0, 0, 0] > images[:, 0, 1, 0]
    for flags in (horizontal & ~vertical, vertical & ~horizontal, horizontal & vertical):
        assert float(flags.float().mean()) == pytest.approx(probability / 3, abs=0.015)
    scale = (images.amax((1, 2, 3)) - images.amin((1, 2, 3))) / 0.3 - 1
    shift = images.amax((1, 2, 3)) - 0.6 * (1 + scale)
    is_scaled, is_shifted = scale.abs() > 1e-5, shift.abs() > 1e-5
    assert float((is_scaled | is_shifted).float().mean()) == pytest.approx(probability, abs=0.015)
    assert float((is_scaled ^ is_shifted).float().mean()) < 0.001  # only draws that are nearly zero
    is_flipped = horizontal | vertical
    assert float((is_scaled & is_flipped).float().mean()) == pytest.approx(probability**2, abs=0.015)
    for values, extent in ((scale[is_scaled], 0.2), (shift[is_shifted], 0.1)):
        if len(values):
            counts = np.histogram(values.numpy(), bins=5, range=(-extent, extent))[0]
            assert counts / len(values) == pytest.approx([0.2] * 5, abs=0.03)  # uniform
            assert counts.sum() >= len(values) - 2


def test_outside_training_images_are_only_normalised() -> None:
    plain = ALL.model_copy(update={"normalise": "none"})
    assert normalise(IMAGES_TRAINING, plain, task="classification") is IMAGES_TRAINING
    assert torch.equal(
        normalise(IMAGES_TRAINING, ALL, task="segmentation"), normalise_values(IMAGES_TRAINING, "imagenet")
    )


def test_the_centre_is_for_classification_in_evaluation_too() -> None:
    centre = ALL.model_copy(update={"crop_rule": "centre"})
    expected = normalise_values(IMAGES_TRAINING[:, :, 3:12, 2:11], "imagenet")
    assert torch.equal(normalise(IMAGES_TRAINING, centre, task="classification"), expected)
    largest = centre.model_copy(update={"normalise": "maximum"})
    assert float(normalise(IMAGES_TRAINING, largest, task="classification").amax((1, 2, 3)).min()) == 1
    assert normalise(IMAGES_TRAINING, centre, task="segmentation").shape == IMAGES_TRAINING.shape


@pytest.mark.parametrize(
    ("changes", "task", "sentence"),
    [
        (
            {"crop": 15},
            "segmentation",
            "of 14 x 16 pixels: set transforms.crop=14 or less",
        ),
        ({"crop": 8, "crop_rule": "foreground"}, "classification", "needs masks"),
        ({"normalise": "imagenet"}, "segmentation", "needs 3 channels, but the images have 1"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(changes: dict, task: str, sentence: str) -> None:
    with pytest.raises(FealError, match=sentence):
        check_transforms(Transforms(**changes), task=task, channels=1, height=16, width=14)
    check_transforms(Transforms(), task=task, channels=1, height=16, width=14)


def test_a_crop_that_is_too_large_names_the_square_inside_the_margin() -> None:
    margin = Fitting(shape="centre", margin=0.08)
    assert margin.add_margin(128) == 150
    with pytest.raises(FealError, match="crop=224 exceeds .* 150 x 150 pixels: set transforms.crop=128 or less"):
        check_transforms(
            Transforms(crop=224), task="classification", channels=3, height=150, width=150, fitting=margin
        )
