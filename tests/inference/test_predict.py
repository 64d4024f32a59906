import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from feal.data import PreparedWriter, open_prepared
from feal.errors import FealError
from feal.inference.model import InputFormat
from feal.inference.predict import check_image_files_suit, find_images, read_image

COLOUR = np.random.default_rng(0).integers(0, 256, (32, 40, 3), dtype=np.uint8)
GREY = COLOUR[..., 0]
DEEP = np.random.default_rng(1).integers(0, 65536, (32, 40), dtype=np.uint16)


def _size(channels: int = 3, *, height: int = 32, width: int = 40, dtype: str = "uint8") -> InputFormat:
    scale = {"uint8": 255.0, "uint16": 65535.0}.get(dtype)
    return InputFormat(channels=channels, height=height, width=width, dtype=dtype, scale=scale)


def _read(path: Path, channels: int = 3, **size: int) -> np.ndarray:
    return read_image(path, _size(channels, **size)).pixels


@pytest.mark.parametrize(("channels", "dtype"), [(3, "uint8"), (1, "uint8"), (1, "uint16")])
def test_a_picture_of_a_prepared_image_is_that_image_bit_by_bit(channels: int, dtype: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    images = draw.integers(0, np.iinfo(dtype).max + 1, (4, channels, 32, 40)).astype(dtype)
    with PreparedWriter(
        tmp_path / "data",
        name="any",
        task="classification",
        classes=("a", "b"),
        channels=channels,
        height=32,
        width=40,
        dtype=dtype,
    ) as writer:
        writer.site("alder").append(
            ids=list("abcd"), images=images, labels=np.array([0, 1, 0, 1], dtype=np.int16), splits=["train"] * 4
        )
    prepared = open_prepared(tmp_path / "data").site("alder").images(list("abcd"))
    for image, expected in zip(images, prepared, strict=True):
        Image.fromarray(image.transpose(1, 2, 0).squeeze()).save(tmp_path / "one.png")
        read = torch.from_numpy(_read(tmp_path / "one.png", channels))
        assert read.dtype == torch.float32
        assert torch.equal(read, expected)


@pytest.mark.parametrize("extension", ["png", "bmp", "tif"])
@pytest.mark.parametrize(
    ("picture", "channels", "expected"),
    [
        (Image.fromarray(COLOUR), 3, COLOUR.transpose(2, 0, 1)),
        (Image.fromarray(COLOUR), 1, np.asarray(Image.fromarray(COLOUR).convert("L"))[None]),
        (Image.fromarray(GREY), 1, GREY[None]),
        (Image.fromarray(GREY), 3, np.stack([GREY] * 3)),
        (Image.fromarray(GREY > 99), 1, 255 * (GREY > 99)[None]),
    ],
    ids=["rgb", "rgb-grey", "grey", "grey-rgb", "bits"],
)
def test_colour_and_grey(
    picture: Image.Image, channels: int, expected: np.ndarray, extension: str, tmp_path: Path
) -> None:
    picture.save(tmp_path / f"one.{extension}")
    assert (_read(tmp_path / f"one.{extension}", channels) == expected.astype(np.float32) / np.float32(255)).all()


def test_transparency_is_ignored(tmp_path: Path) -> None:
    alpha = np.dstack([COLOUR, GREY])
    Image.fromarray(alpha).save(tmp_path / "rgba.png")
    Image.fromarray(alpha[..., [0, 3]]).save(tmp_path / "la.png")
    assert (_read(tmp_path / "rgba.png") * 255).round().transpose(1, 2, 0) == pytest.approx(COLOUR)
    assert (_read(tmp_path / "la.png", 1)[0] * 255).round() == pytest.approx(GREY)


def test_palettes_also_with_transparency(tmp_path: Path) -> None:
    picture = Image.fromarray(GREY // 64)
    picture.putpalette([200, 0, 0, 0, 150, 0, 0, 0, 100, 9, 8, 7])
    picture.save(tmp_path / "one.png", transparency=bytes([0, 128, 255, 255]))
    table = np.array([[200, 0, 0], [0, 150, 0], [0, 0, 100], [9, 8, 7]])
    assert (_read(tmp_path / "one.png") * 255).round().transpose(1, 2, 0) == pytest.approx(table[GREY // 64])


@pytest.mark.parametrize("extension", ["png", "tif"])
@pytest.mark.parametrize("channels", [1, 3])
def test_sixteen_bits_of_grey(extension: str, channels: int, tmp_path: Path) -> None:
    Image.fromarray(DEEP).save(tmp_path / f"one.{extension}")
    read = _read(tmp_path / f"one.{extension}", channels)
    assert read.shape == (channels, 32, 40)
    assert (read == DEEP.astype(np.float32) / np.float32(65535)).all()


def test_sixteen_bits_in_the_other_byte_order(tmp_path: Path) -> None:
    Image.fromarray(DEEP.astype(">u2")).save(tmp_path / "one.tif")
    assert (_read(tmp_path / "one.tif", 1)[0] == DEEP.astype(np.float32) / np.float32(65535)).all()


def test_sixteen_bits_of_colour_come_as_eight(tmp_path: Path) -> None:
    deep = np.stack([DEEP, DEEP // 2, DEEP // 3], axis=2)
    lines = b"".join(b"\0" + line.astype(">u2").tobytes() for line in deep)
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", 40, 32, 16, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines)),
        (b"IEND", b""),
    ]
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    ]
    (tmp_path / "one.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))
    assert _read(tmp_path / "one.png").transpose(1, 2, 0) == pytest.approx(deep / 65535, abs=1 / 255)


@pytest.mark.parametrize(("height", "width"), [(16, 20), (64, 32), (48, 48)])
def test_other_sizes_are_resized_as_pillow_does(height: int, width: int, tmp_path: Path) -> None:
    Image.fromarray(COLOUR).save(tmp_path / "one.png")
    picture = read_image(tmp_path / "one.png", _size(height=height, width=width))
    expected = np.asarray(Image.fromarray(COLOUR).resize((width, height), Image.Resampling.BICUBIC))
    assert (picture.pixels == expected.transpose(2, 0, 1).astype(np.float32) / np.float32(255)).all()
    assert (picture.width, picture.height) == (40, 32)


def test_sixteen_bits_are_resized_as_floats_would_be(tmp_path: Path) -> None:
    Image.fromarray(DEEP).save(tmp_path / "one.png")
    read = _read(tmp_path / "one.png", 1, height=16, width=20)[0]
    floats = Image.fromarray(DEEP.astype(np.float32)).resize((20, 16), Image.Resampling.BICUBIC)
    assert read * 65535 == pytest.approx(np.asarray(floats).clip(0, 65535), abs=1)


def test_a_camera_s_orientation_is_heeded(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    Image.fromarray(COLOUR).save(tmp_path / "one.png", exif=exif)
    picture = read_image(tmp_path / "one.png", _size(height=40, width=32))
    assert (picture.width, picture.height) == (32, 40)
    assert (picture.pixels * 255).round().transpose(1, 2, 0) == pytest.approx(np.rot90(COLOUR, -1))


def _broken(path: Path) -> None:
    path.write_bytes(b"no picture")


def _cut(path: Path) -> None:
    Image.fromarray(COLOUR).save(path, format="PNG")
    path.write_bytes(path.read_bytes()[:900])


def _pages(path: Path) -> None:
    pages = [Image.fromarray(COLOUR)] * 3
    pages[0].save(path, format="TIFF", save_all=True, append_images=pages[1:])


def _floats(path: Path) -> None:
    Image.fromarray(DEEP.astype(np.float32)).save(path, format="TIFF")


@pytest.mark.parametrize(
    ("write", "said"), [(_broken, "identify"), (_cut, "truncated"), (_pages, "3 pages"), (_floats, "32-bit")]
)
def test_what_cannot_be_read_is_named(write: object, said: str, tmp_path: Path) -> None:
    write(tmp_path / "one.tif")
    with pytest.raises(FealError, match=f"one.tif .*{said}"):
        _read(tmp_path / "one.tif")


def test_large_pictures_are_no_warning_and_bombs_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.fromarray(COLOUR).save(tmp_path / "one.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    assert _read(tmp_path / "one.png").shape == (3, 32, 40)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)
    with pytest.raises(FealError, match="DecompressionBomb"):
        _read(tmp_path / "one.png")


def test_pictures_are_found_in_folders_in_order(tmp_path: Path) -> None:
    for name in ("b/2.PNG", "b/1.jpeg", "a.tif", "c/d/e.bmp", ".hidden/x.png", "._a.png", "notes.txt", "b.dcm"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert find_images(tmp_path) == ["a.tif", "b/1.jpeg", "b/2.PNG", "c/d/e.bmp"]


def test_no_picture_and_no_folder(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(FealError, match=rf"no image in {tmp_path} .*\.png, \.jpg"):
        find_images(tmp_path)
    with pytest.raises(FealError, match="no folder"):
        find_images(tmp_path / "missing")


def test_images_that_no_picture_holds() -> None:
    check_image_files_suit(_size(1, dtype="uint16"))
    with pytest.raises(FealError, match="2 channels"):
        check_image_files_suit(_size(2))
    with pytest.raises(FealError, match="float16 images"):
        check_image_files_suit(_size(3, dtype="float16"))
