"""Polyps: the same bytes every time, masks that fit, small and flat and absent ones."""

from pathlib import Path

import numpy as np

from feal.data.prepared import PreparedSet, open_labels, open_prepared
from feal.data.synthetic.base import SITE_NAMES
from feal.data.synthetic.polyps import SyntheticPolyps


def _masks(prepared: PreparedSet, site: str) -> np.ndarray:
    return open_labels(prepared.site(site)).of(prepared.site(site).ids()).numpy()


def test_drawing_again_gives_the_same_bytes(polyps: PreparedSet, tmp_path: Path) -> None:
    SyntheticPolyps(train=60, test=12, size=48).write(tmp_path / "again")
    assert open_prepared(tmp_path / "again").digest == polyps.digest


def test_masks_hold_both_classes_and_some_are_empty(polyps: PreparedSet) -> None:
    masks = np.concatenate([_masks(polyps, site) for site in polyps.sites])
    shares = masks.mean(axis=(1, 2))
    assert set(np.unique(masks)) == {0, 1}
    assert 0.02 < (shares == 0).mean() < 0.12
    assert ((shares > 0) & (shares < 0.05)).mean() > 0.1
    assert 0.04 < shares.mean() < 0.25
    assert shares.max() < 0.6


def test_the_mask_is_where_the_polyp_is(polyps: PreparedSet) -> None:
    # With the polyp the same picture without one would differ inside the mask only, but for shade and light:
    # there is a visible step across the mask's border on average.
    site = polyps.site("alder")
    images, masks = site.images(site.ids()).numpy().mean(axis=1), _masks(polyps, "alder")
    down, right = np.abs(np.diff(images, axis=1)), np.abs(np.diff(images, axis=2))
    border_down, border_right = np.diff(masks.astype(int), axis=1) != 0, np.diff(masks.astype(int), axis=2) != 0
    across = np.concatenate([down[border_down], right[border_right]]).mean()
    elsewhere = np.concatenate([down[~border_down], right[~border_right]]).mean()
    assert across > 1.5 * elsewhere


def test_frames_of_one_patient_show_the_same_polyp(polyps: PreparedSet) -> None:
    site = polyps.site("alder")
    patients, masks = site.patients(), _masks(polyps, "alder").mean(axis=(1, 2))
    repeated = [patient for patient in np.unique(patients) if (patients == patient).sum() > 2]
    assert repeated
    for patient in repeated:
        sizes = masks[patients == patient]
        assert np.ptp(sizes) < 0.4 * sizes.mean() + 0.01


def test_centres_differ(polyps: PreparedSet) -> None:
    colours = np.array(
        [polyps.site(name).images(polyps.site(name).ids()).mean(dim=(0, 2, 3)) for name in polyps.sites]
    )
    gaps = np.abs(colours[:, None] - colours[None]).max(axis=-1)
    assert gaps[~np.eye(len(gaps), dtype=bool)].min() > 0.05


def test_every_centre_can_be_drawn() -> None:
    dataset = SyntheticPolyps(sites=12, train=1, test=0, size=32)
    for site in SITE_NAMES:
        image, mask = dataset.draw(site, dataset.cases(site)[0])
        assert image.shape == (3, 32, 32)
        assert mask.shape == (32, 32)
        assert image.std() > 5
