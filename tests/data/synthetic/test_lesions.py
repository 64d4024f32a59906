"""Lesions: the same bytes every time, centres that differ, rare classes, repeats that resemble each other."""

from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage

from feal.data import locate
from feal.data.prepared import PreparedSet, open_labels, open_prepared
from feal.data.synthetic.base import SITE_NAMES
from feal.data.synthetic.lesions import APPEARANCES, SyntheticLesions, blend_appearances, class_shares
from feal.data.verify import verify
from feal.errors import FealError


def _pixels(prepared: PreparedSet, site: str) -> np.ndarray:
    return prepared.site(site).images(prepared.site(site).ids()).numpy()


def test_drawing_again_gives_the_same_bytes(lesions: PreparedSet, tmp_path: Path) -> None:
    SyntheticLesions(train=160, test=40).write(tmp_path / "again")
    verify(tmp_path / "again")
    assert open_prepared(tmp_path / "again").digest == lesions.digest


def test_a_picture_does_not_depend_on_the_others(lesions: PreparedSet) -> None:
    few = SyntheticLesions(sites=1, train=9, test=3)
    site = lesions.site("alder")
    for case in few.cases("alder"):
        image, label = few.draw("alder", case)
        assert (site.images([case.id])[0].numpy() * 255).round().astype(np.uint8).tolist() == image.tolist()
        assert open_labels(site).of([case.id]).item() == label


def test_another_seed_gives_other_pictures() -> None:
    one, other = (SyntheticLesions(sites=1, train=4, test=0, seed=seed) for seed in (0, 1))
    images = [dataset.draw("alder", dataset.cases("alder")[0])[0] for dataset in (one, other)]
    assert (images[0] != images[1]).mean() > 0.5


def test_sizes_differ_between_centres(lesions: PreparedSet) -> None:
    assert [len(lesions.site(name).ids("train")) for name in lesions.sites] == [160, 128, 96, 72]
    assert all(len(lesions.site(name).ids("test")) == 40 for name in lesions.sites)


def test_centres_differ_in_colour_sharpness_and_noise(lesions: PreparedSet) -> None:
    pixels = {name: _pixels(lesions, name) for name in lesions.sites}
    colours = np.array([images.mean(axis=(0, 2, 3)) for images in pixels.values()])
    gaps = np.abs(colours[:, None] - colours[None]).max(axis=-1)
    assert gaps[~np.eye(len(gaps), dtype=bool)].min() > 0.05
    detail = {
        name: np.abs(ndimage.laplace(images.mean(axis=1), axes=(1, 2))[:, 2:-2, 2:-2]).mean()
        for name, images in pixels.items()
    }
    assert detail["birch"] < 0.8 * detail["alder"] < 0.8 * detail["dogwood"]
    corner = {name: images[..., :3, :3].mean() / images.mean() for name, images in pixels.items()}
    assert corner["cedar"] < 0.6 < corner["alder"]


@pytest.mark.parametrize("site", SITE_NAMES)
@pytest.mark.parametrize("classes", [2, 3, 5, 6, 8])
def test_mixes_add_up_and_have_rare_classes(site: str, classes: int) -> None:
    shares = class_shares(site, classes, split="train")
    rare = {2: 0, 3: 1}.get(classes, 2)
    assert shares.sum() == pytest.approx(1)
    assert ((shares >= 0.02) & (shares <= 0.06)).sum() == rare
    assert (shares[: classes - rare] > 0.06).all()
    assert class_shares(site, classes, split="test").min() > 0.04


def test_mixes_differ_between_centres() -> None:
    shares = np.array([class_shares(site, 6, split="train") for site in SITE_NAMES[:4]])
    gaps = np.abs(shares[:, None] - shares[None]).sum(axis=-1) / 2
    assert gaps[~np.eye(4, dtype=bool)].min() > 0.08
    assert len(set(shares.argmax(axis=1))) >= 3


def test_every_class_is_tested_at_every_centre_by_default() -> None:
    for site in SITE_NAMES[:4]:
        cumulative = np.cumsum(class_shares(site, 6, split="test"))
        cases = [case for case in SyntheticLesions().cases(site) if case.split == "test"]
        labels = np.searchsorted(cumulative, [case.rank for case in cases], side="right")
        assert np.bincount(labels, minlength=6).min() >= 5


def test_repeats_resemble_each_other_and_nothing_else(lesions: PreparedSet) -> None:
    site = lesions.site("alder")
    patients, images = site.patients("train"), site.images(site.ids("train")).numpy()
    labels = open_labels(site).of(site.ids("train")).numpy()
    repeated = [patient for patient in np.unique(patients) if (patients == patient).sum() > 2]
    assert repeated
    smooth = ndimage.gaussian_filter(images, (0, 0, 1, 1))
    for patient in repeated:
        own, others = smooth[patients == patient], smooth[patients != patient]
        assert len(set(labels[patients == patient])) == 1
        within = np.abs(own[1:] - own[0]).mean()
        assert within < 0.6 * np.median(np.abs(others - own[0]).mean(axis=(1, 2, 3)))
    assert len(np.unique(images.reshape(len(images), -1), axis=0)) == len(images)


def test_the_source_does_not_tell_the_class(lesions: PreparedSet) -> None:
    site = lesions.site("alder")
    assert set(site.sources()) == {"easy", "ambiguous", "redundant"}
    assert not any(name in word for name in lesions.classes for word in {*site.sources(), *site.ids()})


def test_a_blend_lies_between_two_appearances() -> None:
    first, second = APPEARANCES["nevus"][0], APPEARANCES["vascular"][0]
    middle = blend_appearances(first, second, 0.75)
    assert middle.lakes == pytest.approx(0.75 * first.lakes + 0.25 * second.lakes)
    assert middle.colour == pytest.approx(0.75 * np.array(first.colour) + 0.25 * np.array(second.colour))
    assert blend_appearances(first, second, 1.0) == first


@pytest.mark.parametrize("size", [32, 57])
@pytest.mark.parametrize("classes", [2, 8])
def test_sizes_and_numbers_of_classes(size: int, classes: int) -> None:
    dataset = SyntheticLesions(sites=12, train=1, test=1, size=size, classes=classes)
    for site in SITE_NAMES:
        image, label = dataset.draw(site, dataset.cases(site)[0])
        assert image.shape == (3, size, size)
        assert image.dtype == np.uint8
        assert 0 <= label < classes


@pytest.mark.parametrize(
    "wrong",
    [
        {"classes": 1}, {"classes": 9}, {"sites": 0}, {"train": 0}, {"test": -1}, {"size": 16},
        {"size": True}, {"labelled_fraction": 1.5}, {"labelled_fraction": float("nan")}, {"seed": -1},
        {"seed": "x"},
    ],
)  # fmt: skip
def test_parameters_out_of_range(wrong: dict[str, object]) -> None:
    with pytest.raises(FealError, match=f"dataset.{next(iter(wrong))}=.*is not valid: it should be"):
        locate("synthetic-lesions", params=wrong)
