"""The real images, where they are: counts as their README gives them, and every layout read."""

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from feal.data.preparation.contract import Piece, Scan
from feal.data.preparation.downloads import DOWNLOADS

ROOT = Path(os.environ.get("FEAL_TEST_DATA") or "absent")
pytestmark = pytest.mark.skipif(not ROOT.is_dir(), reason="FEAL_TEST_DATA names no folder of real images")


def _scan(name: str, folder: str) -> Scan:
    scan = DOWNLOADS.get(name)().scan(ROOT / folder)
    assert not scan.findings
    return scan


def _pieces(name: str, folder: str) -> dict[str, list[Piece]]:
    """All pieces of a small sample, by site."""
    download = DOWNLOADS.get(name)()
    pieces: dict[str, list[Piece]] = {}
    for draft in _scan(name, folder).drafts:
        pieces.setdefault(draft.site, []).extend(download.read(draft, size=download.size))
    return pieces


def test_lesions_by_site_split_and_class() -> None:
    scan = _scan("fed-isic", "fed_isic")
    assert scan.absent == ["bcn", "msk"]
    assert Counter((draft.site, draft.split) for draft in scan.drafts) == {
        ("vidir-molemax", "train"): 764,
        ("vidir-molemax", "test"): 186,
        ("vidir-modern", "train"): 757,
        ("vidir-modern", "test"): 193,
        ("rosendahl", "train"): 761,
        ("rosendahl", "test"): 189,
        ("vienna-dias", "train"): 174,
        ("vienna-dias", "test"): 46,
    }
    assert len({draft.group for draft in scan.drafts}) == len(scan.drafts) == 3070
    by_class = Counter((draft.site, draft.label) for draft in scan.drafts)
    assert not {by_class[("vidir-molemax", 3)], by_class[("vidir-molemax", 7)]} - {0}
    assert (min(by_class.values()), max(by_class.values())) == (1, 910)


def test_classes_are_those_of_the_split_file() -> None:
    lines = (ROOT / "fed_isic" / "train_test_split").read_text().split()[1:]
    cells = [line.split(",") for line in lines]
    expected = {row[0]: row[1:10].index("1.0") for row in cells}
    assert {draft.id: draft.label for draft in _scan("fed-isic", "fed_isic").drafts} == expected


def test_a_lesion_is_the_file_pixel_by_pixel() -> None:
    for draft in _scan("fed-isic", "fed_isic").drafts[::500]:
        (piece,) = DOWNLOADS.get("fed-isic")().read(draft, size=224)
        assert np.array_equal(piece.image.transpose(1, 2, 0), np.asarray(Image.open(draft.image)))


def test_polyps_by_site() -> None:
    scan = _scan("fed-polyp", "fed_polyp")
    assert not scan.absent
    expected = {"kvasir": 1000, "etis": 196, "cvc-colondb": 380, "cvc-clinicdb": 612}
    assert Counter(draft.site for draft in scan.drafts) == expected


def test_polyps_lie_inside_their_letterbox() -> None:
    download, heights = DOWNLOADS.get("fed-polyp")(), {"etis": 302, "cvc-colondb": 334, "cvc-clinicdb": 288}
    for draft in _scan("fed-polyp", "fed_polyp").drafts[::200]:
        (piece,) = download.read(draft, size=384)
        high = heights.get(draft.site, 384)
        rim = (384 - high) // 2
        assert not piece.image[:, :rim].any()
        assert not piece.image[:, rim + high :].any()
        assert piece.truth.any()
        assert piece.truth.sum() == piece.truth[rim : rim + high].sum()


def test_fundus_samples_hold_cup_inside_disc() -> None:
    pieces = _pieces("fed-fundus", "layout_samples/Fundus_DoFE")
    assert {site: len(of) for site, of in pieces.items()} == dict.fromkeys(
        ["drishti-gs", "refuge-train", "refuge-val"], 2
    )
    for piece in (piece for of in pieces.values() for piece in of):
        cup, disc = piece.truth == 2, piece.truth > 0
        assert 0 < cup.sum() < disc.sum() < 0.5 * disc.size
        assert piece.truth[0, 0] == 0
        # The cup is the bright part of a disc.
        assert piece.image[:, cup].mean() > piece.image[:, ~disc].mean()


def test_prostate_slices_of_all_six_sites() -> None:
    pieces = _pieces("fed-prostate", "layout_samples/ProstateSlice_MiDSS")
    assert sorted(pieces) == ["bidmc", "bmc", "hk", "i2cvb", "runmc", "ucl"]
    assert sum(map(len, pieces.values())) == 11
    for piece in (piece for of in pieces.values() for piece in of):
        assert 0 < piece.truth.mean() < 0.2
        assert (piece.image.min(), piece.image.max()) == (0, 65535)
        assert 0.009 < (piece.image == 65535).mean() < 0.05


def test_octa_projections_of_both_fields_of_view() -> None:
    pieces = _pieces("octa-500", "layout_samples/OCTA-500")
    assert {site: len(of) for site, of in pieces.items()} == {"octa-3m": 5, "octa-6m": 5}
    for site, of in pieces.items():
        for piece in of:
            zone = piece.truth == 1
            rows, columns = np.nonzero(zone)
            assert abs(rows.mean() - 200) < 60
            assert abs(columns.mean() - 200) < 60
            # No vessels: the zone is darker than the retina around it.
            around = piece.image[0, 48:352, 48:352]
            assert piece.image[0][zone].mean() < around.mean()
        assert (of[0].image[0, :48].max() == 0) == (site == "octa-3m")
