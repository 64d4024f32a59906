"""Files as arrays: known pixels, odd modes, and what is refused."""

from pathlib import Path

import nibabel
import numpy as np
import pytest
from PIL import Image

from feal.data.prepare import UnusableFileError
from feal.data.prepare.decode import (
    check_same_size,
    decode_image,
    decode_mask,
    decode_volume,
    map_values,
    to_rgb,
)
from feal.data.resize import Fitting, resize
from tests.data.prepare.deep_files import save_png, save_tiff

COLOUR = np.random.default_rng(0).integers(0, 256, (12, 20, 3), dtype=np.uint8)
GREY = COLOUR[..., 0]
DEEP = np.random.default_rng(1).integers(0, 65536, (12, 20), dtype=np.uint16)


@pytest.mark.parametrize("ending", ["png", "bmp", "tif"])
@pytest.mark.parametrize("pixels", [COLOUR, GREY], ids=["colour", "grey"])
def test_what_was_saved_is_read(pixels: np.ndarray, ending: str, tmp_path: Path) -> None:
    Image.fromarray(pixels).save(tmp_path / f"one.{ending}")
    assert np.array_equal(decode_image(tmp_path / f"one.{ending}"), pixels)


def test_a_jpeg_is_close(tmp_path: Path) -> None:
    smooth = np.tile(np.linspace(0, 255, 64).astype(np.uint8), (64, 1))
    Image.fromarray(smooth).save(tmp_path / "one.jpg", quality=95)
    assert decode_image(tmp_path / "one.jpg") == pytest.approx(smooth.astype(float), abs=4)


@pytest.mark.parametrize("ending", ["png", "tif"])
def test_sixteen_bits_stay(ending: str, tmp_path: Path) -> None:
    Image.fromarray(DEEP).save(tmp_path / f"one.{ending}")
    read = decode_image(tmp_path / f"one.{ending}")
    assert read.dtype == np.uint16
    assert np.array_equal(read, DEEP)


def test_bits_palettes_and_opaque_alpha(tmp_path: Path) -> None:
    Image.fromarray(GREY > 99).save(tmp_path / "bits.png")
    assert np.array_equal(decode_image(tmp_path / "bits.png"), 255 * (GREY > 99))
    drawn = Image.fromarray(GREY % 3)
    drawn.putpalette([200, 0, 0, 0, 150, 0, 0, 0, 100])
    drawn.save(tmp_path / "palette.png")
    table = np.array([[200, 0, 0], [0, 150, 0], [0, 0, 100]])
    assert np.array_equal(decode_image(tmp_path / "palette.png"), table[GREY % 3])
    Image.fromarray(np.dstack([COLOUR, np.full((12, 20), 255, np.uint8)])).save(tmp_path / "alpha.png")
    assert np.array_equal(decode_image(tmp_path / "alpha.png"), COLOUR)


def test_a_turned_camera_is_heeded(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(COLOUR).save(tmp_path / "one.png", exif=exif)
    assert np.array_equal(decode_image(tmp_path / "one.png"), np.rot90(COLOUR, -1))


def _pages(path: Path) -> None:
    Image.fromarray(GREY).save(path, format="TIFF", save_all=True, append_images=[Image.fromarray(GREY)])


@pytest.mark.parametrize(
    ("write", "problem"),
    [
        (lambda path: None, "is missing"),
        (lambda path: path.mkdir(), "cannot be read .*IsADirectory"),
        (lambda path: path.write_bytes(b"GIF89a"), "cannot be read .*identify"),
        (lambda path: Image.fromarray(np.dstack([COLOUR, GREY])).save(path), "transparent"),
        (lambda path: Image.fromarray(COLOUR).convert("CMYK").save(path, format="TIFF"), "colour mode CMYK"),
        (lambda path: Image.fromarray(GREY.astype(np.float32)).save(path, format="TIFF"), "mode F"),
        (lambda path: Image.fromarray(GREY.astype(np.int32)).save(path, format="TIFF"), "32-bit"),
        (_pages, "2 pages"),
    ],
)
def test_what_is_refused(write: object, problem: str, tmp_path: Path) -> None:
    write(tmp_path / "one.png")
    with pytest.raises(UnusableFileError, match=problem) as refused:
        decode_image(tmp_path / "one.png")
    assert refused.value.file == tmp_path / "one.png"


def test_masks_by_number_or_grey(tmp_path: Path) -> None:
    numbers = Image.fromarray(GREY % 3)
    numbers.putpalette([0, 0, 0, 255, 221, 51, 51, 204, 255])
    numbers.save(tmp_path / "colours.png")
    assert np.array_equal(decode_mask(tmp_path / "colours.png"), GREY % 3)
    greys = Image.fromarray(GREY % 2)
    greys.putpalette([0, 0, 0, 255, 255, 255])
    greys.save(tmp_path / "greys.png")
    assert np.array_equal(decode_mask(tmp_path / "greys.png"), 255 * (GREY % 2))
    Image.fromarray(np.dstack([GREY] * 3)).save(tmp_path / "rgb.png")
    assert np.array_equal(decode_mask(tmp_path / "rgb.png"), GREY)


def test_colour() -> None:
    assert np.array_equal(to_rgb(GREY), np.dstack([GREY] * 3))
    assert np.array_equal(to_rgb(DEEP)[..., 1], DEEP // 256)
    assert to_rgb(COLOUR) is COLOUR


@pytest.mark.parametrize("pixels", [COLOUR, GREY, DEEP], ids=["colour", "grey", "deep"])
def test_resizing_keeps_type_and_mean(pixels: np.ndarray) -> None:
    small = resize(pixels, 6, 10, nearest=False)
    assert (small.dtype, small.shape[:2]) == (pixels.dtype, (6, 10))
    assert small.mean() == pytest.approx(pixels.mean(), rel=0.05)
    assert set(np.unique(resize(pixels, 31, 47, nearest=True))) <= set(np.unique(pixels))
    expected = np.asarray(Image.fromarray(GREY).resize((10, 6), Image.Resampling.BILINEAR))
    assert np.array_equal(resize(GREY, 6, 10, nearest=False), expected)


def test_letterbox_centres_and_pads() -> None:
    boxed = Fitting(shape="letterbox").fit_image(np.full((50, 100, 3), 9, np.uint8), 384, 384)
    assert boxed.shape == (384, 384, 3)
    assert (boxed[96:288] == 9).all()
    assert (boxed[:96] == 0).all()
    assert (boxed[288:] == 0).all()
    assert Fitting(shape="letterbox").fit_mask(np.ones((1, 900)), 8, 8).sum() == 8


def test_centre_crop() -> None:
    wide = np.tile(np.arange(40, dtype=np.uint8), (20, 1))
    crop = Fitting(shape="centre")
    assert np.array_equal(crop.fit_image(wide, 20, 20), wide[:, 10:30])
    assert crop.fit_image(wide, 10, 10).shape == (10, 10)


def test_mapping() -> None:
    assert map_values(np.array([[255, 128], [0, 0]]), {0: 2, 128: 1, 255: 0}).tolist() == [[0, 1], [2, 2]]
    for dtype in ("uint8", "uint16", "int32", "float32"):
        values = np.array([[255, 128], [0, 0]], dtype=dtype)
        assert map_values(values, {0: 2, 128: 1, 255: 0, 70_000: 3}).tolist() == [[0, 1], [2, 2]]
        with pytest.raises(UnusableFileError, match=r"outside the mapping \(255; known are 0, 128\)"):
            map_values(values, {0: 2, 128: 1})
    with pytest.raises(UnusableFileError, match=r"\(3, 7; known are 0, 255\)"):
        map_values(np.array([3, 0, 7]), {0: 0, 255: 1})
    with pytest.raises(UnusableFileError, match=r"1, 2, 3, 4, 5, 6, \.\.\."):
        map_values(np.arange(99.0), {0: 0})


def test_sizes_of_image_and_mask() -> None:
    check_same_size(COLOUR, GREY)
    with pytest.raises(UnusableFileError, match="size 19 x 12 and its image has 20 x 12"):
        check_same_size(COLOUR, GREY[:, 1:])
    with pytest.raises(UnusableFileError, match="size 4 x 4 x 3 and its image has 4 x 4 x 2"):
        check_same_size(np.zeros((4, 4, 2)), np.zeros((4, 4, 3)))


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "float32"])
@pytest.mark.parametrize("ending", ["nii", "nii.gz"])
def test_volumes(dtype: str, ending: str, tmp_path: Path) -> None:
    voxels = np.random.default_rng(2).integers(0, 200, (5, 6, 7)).astype(dtype)
    nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), tmp_path / f"one.{ending}")
    assert np.array_equal(decode_volume(tmp_path / f"one.{ending}"), voxels)
    nibabel.save(nibabel.Nifti1Image(voxels[..., None], np.eye(4)), tmp_path / f"four.{ending}")
    assert decode_volume(tmp_path / f"four.{ending}").shape == (5, 6, 7)


def test_volumes_that_are_refused(tmp_path: Path) -> None:
    def saved(name: str, voxels: np.ndarray) -> Path:
        nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), tmp_path / name)
        return tmp_path / name

    cut = saved("cut.nii", np.zeros((9, 9, 9), np.int16))
    cut.write_bytes(cut.read_bytes()[:900])
    (tmp_path / "text.nii.gz").write_bytes(b"no gzip")
    for path, problem in (
        (tmp_path / "none.nii", "is missing"),
        (cut, "cannot be read as NIfTI"),
        (tmp_path / "text.nii.gz", "cannot be read as NIfTI"),
        (saved("two.nii", np.zeros((9, 9), np.int16)), "shape 9 x 9"),
        (saved("many.nii", np.zeros((4, 4, 4, 2), np.int16)), "shape 4 x 4 x 4 x 2"),
        (saved("nan.nii", np.full((4, 4, 4), np.nan, np.float32)), "not a finite number"),
    ):
        with pytest.raises(UnusableFileError, match=problem):
            decode_volume(path)


def test_of_a_phones_jpeg_the_first_picture_is_read(tmp_path: Path) -> None:
    first, second = np.full((16, 24), 40, np.uint8), np.full((16, 24), 200, np.uint8)
    views = [Image.fromarray(second)]
    Image.fromarray(first).save(tmp_path / "phone.jpg", format="MPO", save_all=True, append_images=views)
    read = decode_image(tmp_path / "phone.jpg")
    assert np.abs(read.astype(int) - 40).max() <= 2


@pytest.mark.parametrize("ending", ["png", "tif"])
def test_of_colours_of_sixteen_bits_the_upper_eight_are_read(ending: str, tmp_path: Path) -> None:
    pixels = np.random.default_rng(2).integers(0, 65536, (5, 7, 3), dtype=np.uint16)
    path = tmp_path / f"deep.{ending}"
    (save_png if ending == "png" else save_tiff)(path, pixels)
    read = decode_image(path)
    assert read.dtype == np.uint8
    assert (read == pixels >> 8).all()


@pytest.mark.parametrize("ending", ["png", "tif"])
def test_class_numbers_in_colours_of_sixteen_bits_are_not_taken_for_background(
    ending: str, tmp_path: Path
) -> None:
    path = tmp_path / f"mask.{ending}"
    (save_png if ending == "png" else save_tiff)(path, np.ones((5, 7, 3), np.uint16))
    with pytest.raises(UnusableFileError, match="a mask in colours of 16 bits: save it with class numbers"):
        decode_mask(path)


def test_grey_of_sixteen_bits_with_alpha_loses_no_bit_unsaid(tmp_path: Path) -> None:
    save_png(tmp_path / "grey.png", np.full((5, 7, 2), 65535, np.uint16))
    for read in (decode_image, decode_mask):
        with pytest.raises(UnusableFileError, match="16 bits"):
            read(tmp_path / "grey.png")


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("coloured", [False, True])
def test_a_mask_is_turned_as_its_image(orientation: int, coloured: bool, tmp_path: Path) -> None:
    shown = np.random.default_rng(3).integers(0, 2, (5, 7), dtype=np.uint8)
    tag = Image.Exif()
    tag[0x0112] = orientation
    mask = Image.fromarray(shown)
    if coloured:
        mask.putpalette([0, 0, 0, 255, 0, 0])
    mask.save(tmp_path / "mask.png", exif=tag)
    Image.fromarray(shown * 255).save(tmp_path / "image.png", exif=tag)
    image = decode_image(tmp_path / "image.png")
    assert image.shape == ((5, 7) if orientation < 5 else (7, 5))
    assert (decode_mask(tmp_path / "mask.png") == image // 255).all()
