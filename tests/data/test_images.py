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
from PIL import Image

from feal.data.images import class_colours, encode_png, mask_to_pil, read_mask, to_pil
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


def test_another_size_is_said_as_width_by_height() -> None:
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
