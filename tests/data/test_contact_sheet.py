"""Contact sheets: there, readable, the same every time."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from feal.data.contact_sheet import contact_sheet
from feal.data.prepared import PreparedSet, open_prepared
from feal.data.writing import PreparedWriter
from feal.errors import FealError


def test_a_row_for_each_class(lesions: PreparedSet, tmp_path: Path) -> None:
    contact_sheet(lesions.site("alder"), tmp_path / "sheet.png", columns=5)
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.format == "PNG"
        assert sheet.height > 96 * 6
        assert len(sheet.convert("RGB").getcolors(2**24) or []) > 500


def test_masks_are_outlined(polyps: PreparedSet, tmp_path: Path) -> None:
    contact_sheet(polyps.site("alder"), tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as sheet:
        pixels = np.array(sheet.convert("RGB"))
    assert (pixels == (255, 221, 51)).all(axis=-1).sum() > 500


def test_the_same_site_gives_the_same_bytes(lesions: PreparedSet, tmp_path: Path) -> None:
    for name in ("one.png", "two.png"):
        contact_sheet(lesions.site("birch"), tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.png", "two.png"]


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_any_number_of_channels_and_standardised_pixels(tmp_path: Path, channels: int) -> None:
    root = tmp_path / "set"
    draw = np.random.default_rng(0)
    with PreparedWriter(
        root,
        name="s",
        task="classification",
        classes=("a", "b"),
        channels=channels,
        height=9,
        width=7,
        dtype="float16",
    ) as writer:
        writer.site("alder").append(
            ids=["x", "y"],
            images=draw.normal(size=(2, channels, 9, 7)).astype(np.float16),
            truth=np.array([0, 0]),
            splits=["train", "test"],
        )
    contact_sheet(open_prepared(root).site("alder"), tmp_path / "sheet.png")
    assert (tmp_path / "sheet.png").is_file()


def test_a_place_that_cannot_be_written(lesions: PreparedSet, tmp_path: Path) -> None:
    (tmp_path / "sheet.png").mkdir()
    with pytest.raises(FealError, match=r"sheet.png could not be written"):
        contact_sheet(lesions.site("alder"), tmp_path / "sheet.png")
