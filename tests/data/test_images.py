"""Pictures for people: what is seen is what is stored, and a mask means what was drawn or is refused."""

import contextlib
import io
import struct
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image, ImageDraw

from feal.data.images import (
    class_colours,
    encode_png,
    mask_to_pil,
    outline_mask,
    read_mask,
    to_pil,
    write_contact_sheet,
)
from feal.data.prepared import PreparedSet, PreparedSite, open_prepared
from feal.data.writer import PreparedWriter
from feal.errors import FealError

MASK = np.array([[0, 1, 2], [2, 1, 0]], dtype=np.uint8)


def _read(picture: Image.Image, *, classes: int = 3, shape: tuple[int, int] | None = None) -> np.ndarray:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "mask.png"
        picture.save(path)
        return read_mask(path, shape=shape or picture.size[::-1], classes=classes)


def _refusal(picture: Image.Image, *, classes: int = 3, shape: tuple[int, int] | None = None) -> str:
    with pytest.raises(FealError) as refused:
        _read(picture, classes=classes, shape=shape)
    return str(refused.value)


@st.composite
def _masks(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    classes = draw(st.integers(2, 256))
    shape = draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    return draw(arrays(np.uint8, shape, elements=st.integers(0, classes - 1))), classes


@given(_masks())
def test_a_mask_comes_back_to_the_pixel_in_every_form(drawn: tuple[np.ndarray, int]) -> None:
    mask, classes = drawn
    picture = mask_to_pil(mask, classes=classes)
    forms = [picture, Image.fromarray(mask), picture.convert("RGB"), picture.convert("RGBA")]
    forms += [Image.fromarray(mask.astype(np.uint16)), Image.fromarray(mask).convert("LA")]
    for form in forms:
        assert np.array_equal(_read(form, classes=classes), mask), form.mode


@given(_masks(), st.randoms(use_true_random=False))
def test_a_palette_in_another_order_is_read_by_its_colours(drawn: tuple[np.ndarray, int], random: object) -> None:
    mask, classes = drawn
    order = list(range(classes))
    random.shuffle(order)
    shuffled = Image.fromarray(np.argsort(order).astype(np.uint8)[mask])
    shuffled.putpalette([part for number in order for part in class_colours(classes)[number]])
    assert np.array_equal(_read(shuffled, classes=classes), mask)


def test_one_bit_is_two_classes() -> None:
    bits = np.array([[True, False, True]])
    assert _read(Image.fromarray(bits), classes=2).tolist() == [[1, 0, 1]]


def test_a_palette_of_greys_means_its_values() -> None:
    picture = Image.fromarray(MASK)
    picture.putpalette([value for value in range(256) for _ in range(3)])
    assert picture.mode == "P"
    assert np.array_equal(_read(picture), MASK)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_foreign_values_are_named_with_the_allowed_ones(kind: type) -> None:
    refusal = _refusal(Image.fromarray(np.array([[0, 255, 7]], dtype=kind)))
    assert refusal == "The mask mask.png has the pixel values 7, 255: allowed are the class numbers 0 to 2."


def test_sixteen_bits_are_not_cut_to_eight() -> None:
    assert "257" in _refusal(Image.fromarray(np.array([[1, 257]], dtype=np.uint16)))


def test_many_foreign_values_are_counted() -> None:
    assert "3, 4, 5, 6, 7, 8 and 91 more" in _refusal(Image.fromarray(np.arange(100, dtype=np.uint8)[None]))


def test_soft_edges_are_refused() -> None:
    soft = (
        mask_to_pil(np.repeat(MASK, 8, axis=0), classes=3).convert("RGB").resize((9, 16), Image.Resampling.BICUBIC)
    )
    assert "which no class has: draw only #000000, #ffdd33, #33ccff, no soft edges" in _refusal(soft)


def test_a_palette_of_foreign_colours_is_refused() -> None:
    picture = Image.fromarray(MASK)
    picture.putpalette([0, 0, 0, 128, 0, 0, 0, 128, 0])
    assert "has the colours #008000, #800000, which no class has" in _refusal(picture)


def _png_chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def test_a_value_without_a_colour_in_the_palette_is_refused(tmp_path: Path) -> None:
    header = struct.pack(">IIBBBBB", 3, 1, 8, 3, 0, 0, 0)
    palette = bytes(part for colour in class_colours(3) for part in colour)
    pixels = zlib.compress(b"\0" + bytes([0, 1, 5]))
    chunks = {b"IHDR": header, b"PLTE": palette, b"IDAT": pixels, b"IEND": b""}
    (tmp_path / "x.png").write_bytes(
        b"\x89PNG\r\n\x1a\n" + b"".join(_png_chunk(name, content) for name, content in chunks.items())
    )
    with pytest.raises(FealError, match="pixel value 5, which its palette does not have"):
        read_mask(tmp_path / "x.png", shape=(1, 3), classes=3)


def test_a_colour_of_a_class_that_is_not_there_is_refused() -> None:
    assert "#33ccff" in _refusal(mask_to_pil(MASK, classes=3).convert("RGB"), classes=2)


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_see_through_pixels_are_refused(mode: str) -> None:
    picture = mask_to_pil(MASK, classes=3).convert("RGB") if mode == "RGBA" else Image.fromarray(MASK)
    picture.putalpha(Image.fromarray(np.array([[255, 255, 254], [255] * 3], dtype=np.uint8)))
    assert picture.mode == mode
    assert "transparent" in _refusal(picture)


def test_a_see_through_palette_entry_matters_where_it_is_used(tmp_path: Path) -> None:
    picture = mask_to_pil(MASK, classes=4)
    picture.save(tmp_path / "unused.png", transparency=3)
    picture.save(tmp_path / "used.png", transparency=0)
    assert np.array_equal(read_mask(tmp_path / "unused.png", shape=(2, 3), classes=4), MASK)
    with pytest.raises(FealError, match="transparent"):
        read_mask(tmp_path / "used.png", shape=(2, 3), classes=4)


def test_another_size_is_named_as_width_by_height() -> None:
    assert "is 3 x 2 pixels and the image 2 x 3" in _refusal(Image.fromarray(MASK), shape=(3, 2))


@pytest.mark.parametrize("side", [12_000, 30_000])
def test_a_huge_picture_is_refused_before_it_is_unpacked(tmp_path: Path, side: int) -> None:
    header = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    start = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    rest = encode_png(Image.fromarray(MASK))[33:]
    (tmp_path / "huge.png").write_bytes(start + rest)
    with pytest.raises(FealError, match="cannot be read|12000 x 12000"):
        read_mask(tmp_path / "huge.png", shape=(2, 3), classes=3)


@pytest.mark.parametrize("content", [b"", b"mask", b"\x89PNG\r\n\x1a\n", b"\x89PNG\r\n\x1a\n" + b"\xff" * 60])
def test_no_png(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.png").write_bytes(content)
    with pytest.raises(FealError, match="The mask x.png cannot be read"):
        read_mask(tmp_path / "x.png", shape=(2, 3), classes=3)


def test_another_format_under_the_name_is_refused(tmp_path: Path) -> None:
    Image.fromarray(MASK).save(tmp_path / "x.png", format="BMP")
    with pytest.raises(FealError, match="not a PNG"):
        read_mask(tmp_path / "x.png", shape=(2, 3), classes=3)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FealError, match="No such file"):
        read_mask(tmp_path / "x.png", shape=(2, 3), classes=3)


def test_half_a_file_is_refused_or_whole_in_its_pixels(tmp_path: Path) -> None:
    mask = np.random.default_rng(0).integers(0, 3, (40, 30)).astype(np.uint8)
    whole = encode_png(mask_to_pil(mask, classes=3))
    refused = 0
    for length in range(0, len(whole), 5):
        (tmp_path / "x.png").write_bytes(whole[:length])
        try:
            assert np.array_equal(read_mask(tmp_path / "x.png", shape=(40, 30), classes=3), mask)
        except FealError:
            refused += 1
    assert refused > 0.9 * len(whole) / 5


@given(st.data())
def test_spoiled_bytes_never_crash(data: st.DataObject) -> None:
    whole = bytearray(encode_png(mask_to_pil(MASK, classes=3)))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.png"
        path.write_bytes(bytes(whole))
        with contextlib.suppress(FealError):
            assert read_mask(path, shape=(2, 3), classes=3).max() < 3


@pytest.mark.parametrize("classes", [2, 9, 10, 64, 256])
def test_colours_differ_and_only_the_background_is_grey(classes: int) -> None:
    colours = class_colours(classes)
    assert len(set(colours)) == len(colours) == classes
    assert colours[0] == (0, 0, 0)
    assert all(len(set(colour)) > 1 for colour in colours[1:])
    assert class_colours(classes) == class_colours(256)[:classes]


def test_a_value_of_no_class_is_not_drawn() -> None:
    with pytest.raises(ValueError, match="holds the value 2"):
        mask_to_pil(MASK, classes=2)


def test_the_same_picture_gives_the_same_bytes() -> None:
    picture = mask_to_pil(MASK, classes=3)
    assert encode_png(picture) == encode_png(picture.copy())
    with Image.open(io.BytesIO(encode_png(picture))) as again:
        assert (again.format, again.mode) == ("PNG", "P")


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (2, "L"), (3, "RGB"), (5, "RGB")])
def test_stored_bytes_are_shown_one_to_one(channels: int, mode: str) -> None:
    stored = np.arange(channels * 256, dtype=np.uint32).reshape(channels, 16, 16).astype(np.uint8)
    picture = to_pil(stored.astype(np.float32) / np.float32(255))
    assert picture.mode == mode
    shown = np.array(picture)
    assert np.array_equal(shown, stored[0] if mode == "L" else stored[:3].transpose(1, 2, 0))


def test_sixteen_bits_become_eight() -> None:
    stored = np.array([[[0, 257, 65535]]], dtype=np.uint16)
    assert np.array(to_pil(stored.astype(np.float32) / np.float32(65535))).tolist() == [[0, 1, 255]]


def test_standardised_values_are_shown_over_their_range() -> None:
    image = np.array([[[-2.0, 0.0, 2.0]]], dtype=np.float32)
    assert np.array(to_pil(image)).tolist() == [[0, 128, 255]]
    assert np.array(to_pil(np.full((1, 1, 1), -3.0, dtype=np.float32))).tolist() == [[0]]


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
    assert (title == (255, 221, 51)).all(axis=-1).sum() == 100, "the legend shows the colour of the outline"


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
