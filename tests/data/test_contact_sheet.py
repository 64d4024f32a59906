"""Contact sheets: there, readable, the same every time."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from feal.data.contact_sheet import outline_mask, write_contact_sheet
from feal.data.prepared import PreparedSet, PreparedSite, open_prepared
from feal.data.writer import PreparedWriter
from feal.errors import FealError


def test_a_row_for_each_class(lesions: PreparedSet, tmp_path: Path) -> None:
    write_contact_sheet(lesions.site("alder"), tmp_path / "sheet.png", columns=5)
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.format == "PNG"
        assert sheet.height > 96 * 6
        assert len(sheet.convert("RGB").getcolors(2**24) or []) > 500


def test_masks_are_outlined(polyps: PreparedSet, tmp_path: Path) -> None:
    write_contact_sheet(polyps.site("alder"), tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as sheet:
        pixels = np.array(sheet.convert("RGB"))
    assert (pixels == (255, 221, 51)).all(axis=-1).sum() > 500
    title = pixels[: 56 + 16 - 1, pixels.shape[1] // 2 :]
    assert (title == (255, 221, 51)).all(axis=-1).sum() == 100, "the colour of the outline is said"


def test_an_outline_is_told_from_ground_of_its_own_colour() -> None:
    mask = np.zeros((48, 48), np.uint8)
    mask[12:36, 12:36] = 1
    yellow = Image.new("RGB", (96, 96), (255, 221, 51))
    shown = np.array(outline_mask(yellow, mask, 2)).astype(int).sum(axis=-1)
    assert (shown[48] < 120).sum() == 2
    assert (shown[:, 48] < 120).sum() == 2


def test_a_class_that_is_there_is_never_none_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr(ImageDraw.ImageDraw, "text", lambda self, place, text, **_: written.append(text))
    site = _site(tmp_path / "set", classes=("a", "b", "c"), samples=900, rare=1)
    write_contact_sheet(site, tmp_path / "sheet.png", columns=2)
    assert written[-6:] == ["a", "899 (100%)", "b", "1 (<1%)", "c", "none"]


def test_the_same_site_gives_the_same_bytes(lesions: PreparedSet, tmp_path: Path) -> None:
    for name in ("one.png", "two.png"):
        write_contact_sheet(lesions.site("birch"), tmp_path / name)
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
            labels=np.array([0, 0]),
            splits=["train", "test"],
        )
    write_contact_sheet(open_prepared(root).site("alder"), tmp_path / "sheet.png")
    assert (tmp_path / "sheet.png").is_file()


def test_a_place_that_cannot_be_written(lesions: PreparedSet, tmp_path: Path) -> None:
    (tmp_path / "sheet.png").mkdir()
    with pytest.raises(FealError, match=r"sheet.png could not be written"):
        write_contact_sheet(lesions.site("alder"), tmp_path / "sheet.png")


def _site(root: Path, *, classes: tuple[str, ...], samples: int, rare: int = 0) -> PreparedSite:
    """A site of one class, of another for the first `rare` samples."""
    facts = {"name": "s", "task": "classification", "classes": classes, "channels": 1, "height": 2, "width": 2}
    with PreparedWriter(root, **facts, dtype="uint8") as writer:
        writer.site("alder").append(
            ids=[f"{number:06}" for number in range(samples)],
            images=np.zeros((samples, 1, 2, 2), np.uint8),
            labels=(np.arange(samples) < rare).astype(np.int64),
            splits=["train"] * (samples - 1) + ["test"],
        )
    return open_prepared(root).site("alder")


def test_a_long_name_of_a_class_ends_before_the_pictures(tmp_path: Path) -> None:
    site = _site(tmp_path / "set", classes=("a", "malignant melanoma of the lower limb"), samples=2)
    write_contact_sheet(site, tmp_path / "sheet.png", columns=3)
    with Image.open(tmp_path / "sheet.png") as sheet:
        second_row = np.array(sheet.convert("RGB"))[56 + 16 + 96 + 6 :]
    assert (second_row[:, : 16 + 168] != 255).any()
    assert (second_row[:, 16 + 168 :] == 255).all()


def test_every_sample_of_a_large_site_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr(ImageDraw.ImageDraw, "text", lambda self, place, text, **_: written.append(text))
    write_contact_sheet(
        _site(tmp_path / "set", classes=("a", "b"), samples=20_005), tmp_path / "sheet.png", columns=2
    )
    assert "20005 (100%)" in written
