"""What only shows when all samples are seen together: copies over sites, and sites without a test part."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from feal.data import open_prepared
from feal.data.preparation.preparing import prepare
from tests.data.preparation.conftest import Blobs, Given


def _copied(path: Path, to: Path, *, brighter: int = 0) -> None:
    """The picture again, perhaps with another light, so that it is alike and not the same."""
    pixels = np.asarray(Image.open(path)).astype(int) + brighter
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(to)


@pytest.mark.parametrize("brighter", [0, 3])
def test_copies_at_another_site_do_not_tear_a_group(download: Path, brighter: int) -> None:
    for number in range(4):
        original = download / "alder" / f"{number:02}.png"
        shutil.copy(original, download / "birch" / f"{number:02}.png")
        _copied(original, download / "birch" / f"{number + 4:02}.png", brighter=brighter)
        if brighter:
            shutil.copy(download / "birch" / f"{number + 4:02}.png", download / "alder" / f"{number + 4:02}.png")
    site = open_prepared(prepare(Blobs(), download, download.parent / "to", processes=1).root).site("birch")
    patients = dict(zip(site.ids().tolist(), site.patients().tolist(), strict=True))
    tested = set(site.ids("test").tolist())
    assert tested
    for number in range(4):
        one, other = f"{number:02}", f"{number + 4:02}"
        assert patients[one] == patients[other] == one
        assert (one in tested) == (other in tested)


def test_named_patients_between_do_not_tear_a_group(download: Path) -> None:
    for name in ("01", "02"):
        shutil.copy(download / "alder" / "00.png", download / "alder" / f"{name}.png")
    root = prepare(Given(alder={"00": {"group": "ann"}}), download, download.parent / "to", processes=1).root
    assert open_prepared(root).site("alder").patients()[:3].tolist() == ["ann", "01", "01"]


def test_a_site_without_a_test_part_is_told(download: Path) -> None:
    sides = {f"{number:02}": {"split": "train"} for number in range(10)}
    outcome = prepare(Given(birch=sides), download, download.parent / "to", processes=1)
    assert outcome.source["remarks"] == ["Site birch has no test sample: nothing is measured there."]
    assert len(open_prepared(outcome.root).site("birch").ids("test")) == 0
