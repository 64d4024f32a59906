"""The real images, where they are: counts as their README gives them, and every layout read."""

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from feal.data.prepare.base import DecodedSample, ScanResult
from feal.data.prepare.datasets import DATASET_SOURCES

ROOT = Path(os.environ.get("FEAL_TEST_DATA") or "absent")
pytestmark = pytest.mark.skipif(not ROOT.is_dir(), reason="FEAL_TEST_DATA names no folder of real images")


def _scan(name: str, folder: str) -> ScanResult:
    scan = DATASET_SOURCES.get(name)().scan(ROOT / folder)
    assert not scan.findings
    return scan


def _pieces(name: str, folder: str) -> dict[str, list[DecodedSample]]:
    """All pieces of a small sample, by site."""
    dataset = DATASET_SOURCES.get(name)()
    samples: dict[str, list[DecodedSample]] = {}
    for record in _scan(name, folder).records:
        samples.setdefault(record.site, []).extend(dataset.read(record, size=dataset.size))
    return samples


def test_lesions_by_site_split_and_class() -> None:
    scan = _scan("fed-isic", "fed_isic")
    assert scan.absent == ["bcn", "msk"]
    assert Counter((record.site, record.split) for record in scan.records) == {
        ("vidir-molemax", "train"): 764,
        ("vidir-molemax", "test"): 186,
        ("vidir-modern", "train"): 757,
        ("vidir-modern", "test"): 193,
        ("rosendahl", "train"): 761,
        ("rosendahl", "test"): 189,
        ("vienna-dias", "train"): 174,
        ("vienna-dias", "test"): 46,
    }
    assert len({record.group for record in scan.records}) == len(scan.records) == 3070
    by_class = Counter((record.site, record.label) for record in scan.records)
    assert not {by_class[("vidir-molemax", 3)], by_class[("vidir-molemax", 7)]} - {0}
    assert (min(by_class.values()), max(by_class.values())) == (1, 910)


def test_classes_are_those_of_the_split_file() -> None:
    lines = (ROOT / "fed_isic" / "train_test_split").read_text().split()[1:]
    cells = [line.split(",") for line in lines]
    expected = {row[0]: row[1:10].index("1.0") for row in cells}
    assert {record.id: record.label for record in _scan("fed-isic", "fed_isic").records} == expected


def test_the_centre_of_a_lesion_is_the_file_pixel_by_pixel() -> None:
    for record in _scan("fed-isic", "fed_isic").records[::500]:
        (sample,) = DATASET_SOURCES.get("fed-isic")().read(record, size=224)
        assert sample.image.shape == (3, 260, 260)
        centre = sample.image[:, 18:242, 18:242]
        assert np.array_equal(centre.transpose(1, 2, 0), np.asarray(Image.open(record.image)))


def test_polyps_by_site() -> None:
    scan = _scan("fed-polyp", "fed_polyp")
    assert not scan.absent
    expected = {"kvasir": 1000, "etis": 196, "cvc-colondb": 380, "cvc-clinicdb": 612}
    assert Counter(record.site for record in scan.records) == expected


def test_polyps_lie_inside_their_letterbox() -> None:
    dataset, heights = DATASET_SOURCES.get("fed-polyp")(), {"etis": 302, "cvc-colondb": 334, "cvc-clinicdb": 288}
    for record in _scan("fed-polyp", "fed_polyp").records[::200]:
        (sample,) = dataset.read(record, size=384)
        high = heights.get(record.site, 384)
        rim = (384 - high) // 2
        assert not sample.image[:, :rim].any()
        assert not sample.image[:, rim + high :].any()
        assert sample.label.any()
        assert sample.label.sum() == sample.label[rim : rim + high].sum()


def test_fundus_samples_hold_cup_inside_disc() -> None:
    samples = _pieces("fed-fundus", "layout_samples/Fundus_DoFE")
    assert {site: len(of) for site, of in samples.items()} == dict.fromkeys(
        ["drishti-gs", "refuge-train", "refuge-val"], 2
    )
    for sample in (sample for of in samples.values() for sample in of):
        cup, disc = sample.label == 2, sample.label > 0
        assert 0 < cup.sum() < disc.sum() < 0.5 * disc.size
        assert sample.label[0, 0] == 0
        # The cup is the bright part of a disc.
        assert sample.image[:, cup].mean() > sample.image[:, ~disc].mean()


def test_prostate_slices_of_all_six_sites() -> None:
    samples = _pieces("fed-prostate", "layout_samples/ProstateSlice_MiDSS")
    assert sorted(samples) == ["bidmc", "bmc", "hk", "i2cvb", "runmc", "ucl"]
    assert sum(map(len, samples.values())) == 11
    for sample in (sample for of in samples.values() for sample in of):
        assert 0 < sample.label.mean() < 0.2
        assert (sample.image.min(), sample.image.max()) == (0, 65535)
        assert 0.009 < (sample.image == 65535).mean() < 0.05


def test_octa_projections_of_both_fields_of_view() -> None:
    samples = _pieces("octa-500", "layout_samples/OCTA-500")
    assert {site: len(of) for site, of in samples.items()} == {"octa-3m": 5, "octa-6m": 5}
    for site, of in samples.items():
        for sample in of:
            zone = sample.label == 1
            rows, columns = np.nonzero(zone)
            assert abs(rows.mean() - 200) < 60
            assert abs(columns.mean() - 200) < 60
            # No vessels: the zone is darker than the retina around it.
            around = sample.image[0, 48:352, 48:352]
            assert sample.image[0][zone].mean() < around.mean()
        assert (of[0].image[0, :48].max() == 0) == (site == "octa-3m")
