"""Whole batches on their way to the network."""

import numpy as np
import pytest
import torch

from feal.data.transforms import augmented, check_transforms, seen
from feal.data.transforms.colour import brightened, contrasted, normalised
from feal.data.transforms.geometry import cropped, flipped, rotated
from feal.errors import FealError
from feal.settings import Transforms

DRAW = np.random.default_rng(1)
IMAGES = torch.from_numpy(DRAW.random((12, 3, 16, 14), dtype=np.float32))
MASKS = torch.from_numpy(DRAW.integers(0, 2, (12, 16, 14)))
CLASSES = torch.arange(12)
ALL = Transforms(
    rotation=10, brightness=0.15, contrast=0.1, flips=True, crop=9, crop_rule="random", normalise="imagenet"
)


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_batch_equals_its_images_one_by_one() -> None:
    """With the draws laid out as five coins, three extents and the crop."""
    images, masks = augmented(IMAGES, MASKS, ALL, _generator())
    draws = torch.rand(12, 9, generator=_generator(), dtype=torch.float64)
    for index, (*coins, angle, brightness, contrast, place) in enumerate(draws.tolist()):
        rotate, brighten, change, sideways, over = (coin < 0.5 for coin in coins)
        image, mask = IMAGES[index : index + 1], MASKS[index : index + 1]
        if rotate:
            image, mask = rotated(image, mask, torch.tensor([10 * (2 * angle - 1)], dtype=torch.float64))
        flags = {"sideways": torch.tensor([sideways]), "over": torch.tensor([over])}
        image, mask = flipped(image, mask, **flags)
        if brighten:
            image = brightened(image, torch.tensor([1 + 0.15 * (2 * brightness - 1)]))
        if change:
            image = contrasted(image, torch.tensor([1 + 0.1 * (2 * contrast - 1)]))
        offset = [divmod(int(place * 8 * 6), 6)]
        image, mask = (cropped(value, offset, size=9) for value in (normalised(image, "imagenet"), mask))
        assert torch.allclose(images[index], image[0], atol=1e-5)
        assert torch.equal(masks[index], mask[0])


def test_batches_do_not_shift_each_other() -> None:
    whole = augmented(IMAGES, MASKS, ALL, _generator())
    generator = _generator()
    parts = [augmented(IMAGES[part], MASKS[part], ALL, generator) for part in (slice(0, 5), slice(5, 12))]
    for index in range(2):
        assert torch.allclose(whole[index].float(), torch.cat([part[index] for part in parts]).float(), atol=1e-6)
    fewer = ALL.model_copy(update={"rotation": 0.0, "brightness": 0.0, "crop": 0})
    state = _generator()
    augmented(IMAGES, CLASSES, fewer, state)
    other = _generator()
    augmented(IMAGES, MASKS, ALL, other)
    assert torch.equal(state.get_state(), other.get_state())


def test_the_same_generator_gives_the_same_and_another_another() -> None:
    first, again, other = (augmented(IMAGES, MASKS, ALL, _generator(seed))[0] for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_nothing_asked_is_nothing_done() -> None:
    images, masks = augmented(IMAGES, MASKS, Transforms(), _generator())
    assert images is IMAGES
    assert masks is MASKS
    never = ALL.model_copy(update={"probability": 0.0, "crop": 0, "normalise": "none"})
    assert torch.equal(augmented(IMAGES, MASKS, never, _generator())[0], IMAGES)


@pytest.mark.parametrize("rule", ["centre", "foreground", "middle", "random"])
def test_masks_stay_on_their_images(rule: str) -> None:
    """Images that show their mask's colour show it afterwards too, but for what lies between two pixels."""
    blocks = torch.nn.functional.interpolate(MASKS[:, None, ::4, ::4].float(), size=(16, 14)).squeeze(1)
    transforms = Transforms(rotation=30, flips=True, crop=10, crop_rule=rule)
    images, masks = augmented(blocks.unsqueeze(1), blocks.long(), transforms, _generator())
    sure = (images[:, 0] < 1e-4) | (images[:, 0] > 1 - 1e-4)
    assert sure.float().mean() > 0.7
    assert torch.equal(images[:, 0].round().long()[sure], masks[sure])
    still = transforms.model_copy(update={"rotation": 0.0})
    images, masks = augmented(blocks.unsqueeze(1), blocks.long(), still, _generator())
    assert torch.equal(images[:, 0].long(), masks)
    assert masks.shape == (12, 10, 10)


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_each_transform_comes_as_often_as_told_and_independently(probability: float) -> None:
    pixel = torch.tensor([[[[0.1, 0.2], [0.3, 0.6]]]]).expand(4000, 1, 2, 2)
    told = Transforms(probability=probability, flips=True, brightness=0.5)
    images, _ = augmented(pixel, torch.zeros(4000), told, _generator(3))
    sideways = images[:, 0, 0, 0] > images[:, 0, 0, 1]
    over = images[:, 0, 0, 0] > images[:, 0, 1, 0]
    brighter = (images.sum((1, 2, 3)) - 1.2).abs() > 1e-6
    for flags in (sideways, over, brighter):
        assert float(flags.float().mean()) == pytest.approx(probability, abs=0.03)
    both = float((sideways & over).float().mean())
    assert both == pytest.approx(probability**2, abs=0.03)
    if probability == 1:
        factors = images.sum((1, 2, 3)) / 1.2
        assert 0.5 <= float(factors.min()) < 0.52
        assert 1.48 < float(factors.max()) <= 1.5 + 1e-6


def test_outside_training_images_are_only_normalised() -> None:
    plain = ALL.model_copy(update={"normalise": "none"})
    assert seen(IMAGES, plain, task="classification") is IMAGES
    assert torch.equal(seen(IMAGES, ALL, task="segmentation"), normalised(IMAGES, "imagenet"))


def test_the_centre_is_for_classification_in_evaluation_too() -> None:
    centre = ALL.model_copy(update={"crop_rule": "centre"})
    expected = normalised(IMAGES, "imagenet")[:, :, 3:12, 2:11]
    assert torch.equal(seen(IMAGES, centre, task="classification"), expected)
    assert seen(IMAGES, centre, task="segmentation").shape == IMAGES.shape


@pytest.mark.parametrize(
    ("changes", "task", "sentence"),
    [
        ({"crop": 15}, "segmentation", "crop=15 is more than the images' 14 x 16"),
        ({"crop": 8, "crop_rule": "foreground"}, "classification", "needs masks"),
        ({"normalise": "imagenet"}, "segmentation", "for 3 channels, and the images have 1"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(changes: dict, task: str, sentence: str) -> None:
    with pytest.raises(FealError, match=sentence):
        check_transforms(Transforms(**changes), task=task, channels=1, height=16, width=14)
    check_transforms(Transforms(), task=task, channels=1, height=16, width=14)
