"""Brightness and contrast against PIL, normalisation against loops."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance

from feal.data.transforms.colour import brightened, contrasted, normalised

STORED = np.random.default_rng(0).integers(0, 256, (4, 3, 9, 7)).astype(np.uint8)
IMAGES = torch.from_numpy(STORED.astype(np.float32) / 255)
FACTORS = torch.tensor([0.0, 0.85, 1.0, 1.6], dtype=torch.float64)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("change", "enhance"), [(brightened, ImageEnhance.Brightness), (contrasted, ImageEnhance.Contrast)]
)
def test_each_image_is_changed_as_pil_does(channels: int, change: object, enhance: object) -> None:
    found = change(IMAGES[:, :channels], FACTORS)
    for image, stored, factor in zip(found, STORED[:, :channels], FACTORS.tolist(), strict=True):
        picture = Image.fromarray(stored.transpose(1, 2, 0).squeeze())
        expected = np.atleast_3d(np.asarray(enhance(picture).enhance(factor))).transpose(2, 0, 1)
        # PIL works with whole numbers, its mean grey included.
        assert image.numpy() * 255 == pytest.approx(expected.astype(float), abs=1.6)
    assert torch.equal(found[2], IMAGES[2, :channels])
    assert float(found.min()) >= 0
    assert float(found.max()) <= 1


@pytest.mark.parametrize("change", [brightened, contrasted])
def test_images_of_a_range_of_their_own_keep_it(change: object) -> None:
    images = IMAGES * 2000 - 500
    changed = change(images, FACTORS[3:].expand(4))
    assert not torch.equal(changed, images)
    for after, before in zip(changed, images, strict=True):
        assert float(before.min()) <= float(after.min())
        assert float(after.max()) <= float(before.max())
    assert float(changed.max()) > 1000


@pytest.mark.parametrize("change", [brightened, contrasted])
def test_a_factor_of_one_changes_nothing(change: object) -> None:
    assert change(IMAGES, torch.ones(4, dtype=torch.float64)) is IMAGES


def test_imagenet_s_mean_and_deviation() -> None:
    found = normalised(IMAGES, "imagenet")
    for channel, (mean, deviation) in enumerate(((0.485, 0.229), (0.456, 0.224), (0.406, 0.225))):
        expected = (STORED[:, channel] / 255 - mean) / deviation
        assert found[:, channel].numpy() == pytest.approx(expected, abs=1e-5)


def test_division_by_each_image_s_maximum() -> None:
    images = IMAGES.clone()
    images[1], images[2] = 0, -images[2]
    found = normalised(images, "maximum")
    for index in (0, 3):
        assert found[index].numpy() == pytest.approx(images[index].numpy() / images[index].numpy().max())
    assert torch.equal(found[1:3], images[1:3])


def test_none_is_none() -> None:
    assert normalised(IMAGES, "none") is IMAGES
