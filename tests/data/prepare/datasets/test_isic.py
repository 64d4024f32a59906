"""Skin lesions: raw and preprocessed, the shipped split or ISIC's own tables, colour constancy."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from feal.data.augment import crop_centre, rotate
from feal.data.prepare.base import Finding, SourceRecord, check_records
from feal.data.prepare.datasets.isic import PREPROCESSED, RAW, FedIsic
from feal.data.resize import apply_colour_constancy
from feal.errors import FealError
from tests.data.prepare.datasets import fakes


def _rewrite(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def _problems(folder: Path) -> dict[str, str]:
    return {finding.file: finding.problem for finding in FedIsic().scan(folder).findings}


def test_flambys_split_is_kept_and_lesions_come_from_ham10000(tmp_path: Path) -> None:
    scan = FedIsic().scan(fakes.isic_flamby(tmp_path))
    assert not scan.findings
    assert scan.absent == ["bcn", "msk"]
    sites = ["vidir-molemax", "vidir-modern", "rosendahl", "vienna-dias"]
    expected = {(site, split): count for site in sites for split, count in (("train", 4), ("test", 1))}
    assert Counter((record.site, record.split) for record in scan.records) == expected
    assert {record.id[5:7]: record.site for record in scan.records} == dict(
        zip(("01", "02", "03", "05"), sites, strict=True)
    )
    record = next(record for record in scan.records if record.id == "ISIC_0300002")
    assert (record.label, record.group) == (5, "HAM_0000302")


def test_the_papers_tab_separated_copy_is_the_same_split(tmp_path: Path) -> None:
    before = FedIsic().scan(fakes.isic_flamby(tmp_path)).records
    split = tmp_path / "train_test_split"
    split.with_suffix(".csv").write_text(split.read_text().replace(",", "\t"))
    split.unlink()
    assert FedIsic().scan(tmp_path).records == before


def test_names_of_msk_are_found_with_and_without_their_ending(tmp_path: Path) -> None:
    fakes.isic_flamby(tmp_path, centres=(4,), images=2)
    _rewrite(tmp_path / "train_test_split", "ISIC_0400000_downsampled", "ISIC_0400000")
    scan = FedIsic().scan(tmp_path)
    assert [record.image.stem for record in scan.records] == [
        "ISIC_0400000_downsampled",
        "ISIC_0400001_downsampled",
    ]
    assert scan.remarks == ["Images of no known lesion, since no table here names it: 2."]


def test_preprocessed_images_go_before_raw_ones_and_it_is_said(tmp_path: Path) -> None:
    fakes.isic_raw(tmp_path)
    fakes.isic_flamby(tmp_path)
    scan = FedIsic().scan(tmp_path)
    assert {record.image.parent.name for record in scan.records} == {PREPROCESSED}
    assert f"{PREPROCESSED} is read, and {RAW} is not." in scan.remarks


def test_an_image_in_two_formats_is_found(tmp_path: Path) -> None:
    fakes.isic_flamby(tmp_path)
    fakes.save(tmp_path / PREPROCESSED / "ISIC_0100000.png", fakes.photograph(1, 224, 224))
    start = f"{PREPROCESSED}/ISIC_0100000"
    assert _problems(tmp_path) == {
        f"{start}.jpg": f"has the same name as {start}.png: keep one of them",
        f"{start}.png": f"has the same name as {start}.jpg: keep one of them",
    }
    scan = FedIsic().scan(tmp_path)
    kept, _ = check_records(scan.records, tmp_path, known=scan.findings)
    assert "ISIC_0100000" not in [record.id for record in kept]


def test_the_target_decides_and_not_the_diagnosis(tmp_path: Path) -> None:
    fakes.isic_flamby(tmp_path)
    labels = {record.id: record.label for record in FedIsic().scan(tmp_path).records}
    _rewrite(tmp_path / "HAM10000_metadata", ",nv,", ",akiec,")
    assert {record.id: record.label for record in FedIsic().scan(tmp_path).records} == labels


def test_bad_lines_of_the_split_are_all_found(tmp_path: Path) -> None:
    fakes.isic_flamby(tmp_path)
    split = tmp_path / "train_test_split"
    _rewrite(split, ",1,1,train,train_1", ",8,1,train,train_1")
    _rewrite(split, ",2,1,train,train_1", ",3,1,train,train_1")
    _rewrite(split, ",2,2,train,train_2", ",2,6,train,train_2")
    _rewrite(split, ",3,3,train,train_3", ",3,3,val,train_3")
    (tmp_path / PREPROCESSED / "ISIC_0500000.jpg").unlink()
    split.write_text(split.read_text() + ",".join(map(str, fakes.isic_split_row("ISIC_0500001", 6, 5, "test"))))
    assert _problems(tmp_path) == {
        f"{PREPROCESSED}/ISIC_0100000.jpg": "has the target '8' outside 0 to 7 (in train_test_split)",
        f"{PREPROCESSED}/ISIC_0100001.jpg": "has the target 3, but no 1 in the column AK (in train_test_split)",
        f"{PREPROCESSED}/ISIC_0200000.jpg": "is of the centre '6' outside 0 to 5 (in train_test_split)",
        f"{PREPROCESSED}/ISIC_0300000.jpg": "is in the split 'val', neither train nor test (in train_test_split)",
        f"{PREPROCESSED}/ISIC_0500000.jpg": "is missing, but train_test_split lists it",
        f"{PREPROCESSED}/ISIC_0500001.jpg": "has two lines in train_test_split",
    }
    assert "ISIC_0500001" not in [record.id for record in FedIsic().scan(tmp_path).records]


def test_images_outside_the_shipped_split_are_left_out_with_a_remark(tmp_path: Path) -> None:
    fakes.isic_flamby(tmp_path)
    fakes.save(tmp_path / PREPROCESSED / "ISIC_9999999.jpg", fakes.photograph(1, 224, 224))
    scan = FedIsic().scan(tmp_path)
    assert len(scan.records) == 20
    assert scan.remarks == ["Images left out, since train_test_split does not list them, or not rightly: 1."]


def test_without_a_split_centres_and_lesions_come_from_isics_tables(tmp_path: Path) -> None:
    scan = FedIsic().scan(fakes.isic_raw(tmp_path))
    assert not scan.findings
    assert not scan.absent
    sites = ["bcn", "vidir-molemax", "vidir-modern", "rosendahl", "msk", "vienna-dias"]
    assert Counter(record.site for record in scan.records) == dict.fromkeys(sites, 5)
    assert {record.split for record in scan.records} == {None}
    assert scan.remarks == ["Images without a lesion_id, left out as FLamby does: 1."]
    record = next(record for record in scan.records if record.id == "ISIC_0400003_downsampled")
    assert (record.site, record.label, record.group) == ("msk", 7, "MSK4_4000001")


def test_bad_lines_of_isics_tables_are_all_found(tmp_path: Path) -> None:
    fakes.isic_raw(tmp_path)
    truth = tmp_path / "ISIC_2019_Training_GroundTruth.csv"
    _rewrite(truth, "ISIC_0000000,1.0,0.0", "ISIC_0000000,1.0,1.0")
    _rewrite(truth, "ISIC_0000001,0.0,1.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0", "ISIC_0000001" + ",0.0" * 8 + ",1.0")
    _rewrite(tmp_path / "ISIC_2019_Training_Metadata.csv", "BCN_0000001", "XYZ_0000001")
    _rewrite(tmp_path / "ISIC_2019_Training_Metadata.csv", "ISIC_0000003", "ISIC_7777777")
    _rewrite(tmp_path / "HAM10000_metadata", "vidir_molemax", "elsewhere")
    fakes.save(tmp_path / RAW / "ISIC_8888888.jpg", fakes.photograph(1, 60, 80))
    assert _problems(tmp_path) == {
        f"{RAW}/ISIC_0000000.jpg": f"needs exactly one class, but {truth.name} marks MEL and NV",
        f"{RAW}/ISIC_0000001.jpg": f"needs exactly one class, but {truth.name} marks UNK",
        f"{RAW}/ISIC_0000002.jpg": "is of the lesion XYZ_0000001, whose centre is unknown",
        f"{RAW}/ISIC_0000003.jpg": "has no line in ISIC_2019_Training_Metadata.csv",
        f"{RAW}/ISIC_0100000.jpg": "is of the lesion HAM_1000000, whose centre is unknown",
        f"{RAW}/ISIC_8888888.jpg": f"has no line in {truth.name}",
    }


@pytest.mark.parametrize("missing", ["HAM10000_metadata", "ISIC_2019_Training_Metadata.csv"])
def test_a_table_that_is_needed_is_asked_for(tmp_path: Path, missing: str) -> None:
    (fakes.isic_raw(tmp_path) / missing).unlink()
    with pytest.raises(FealError, match=f"has no {missing}.*put it there"):
        FedIsic().scan(tmp_path)


def test_images_without_any_table_are_refused(tmp_path: Path) -> None:
    (fakes.isic_flamby(tmp_path) / "train_test_split").unlink()
    with pytest.raises(FealError, match="no table of classes"):
        FedIsic().scan(tmp_path)


def test_a_table_without_its_columns_is_refused_by_name(tmp_path: Path) -> None:
    _rewrite(fakes.isic_flamby(tmp_path) / "train_test_split", "target", "goal")
    with pytest.raises(FealError, match="train_test_split has no column target"):
        FedIsic().scan(tmp_path)


def test_colour_constancy_equals_its_formula_pixel_by_pixel() -> None:
    image = fakes.photograph(3, 5, 7)
    light = [sum(float(x) ** 6 for x in image[..., c].ravel()) / 35 for c in range(3)]
    light = [mean ** (1 / 6) for mean in light]
    length = sum(part**2 for part in light) ** 0.5
    expected = np.zeros_like(image)
    for place in np.ndindex(image.shape):
        expected[place] = int(min(255.0, image[place] * length / (3**0.5 * light[place[2]])))
    assert np.array_equal(apply_colour_constancy(image), expected)
    assert not np.array_equal(expected, image)


def test_colour_constancy_leaves_grey_alone_and_stands_black() -> None:
    grey = np.full((4, 4, 3), 90, dtype=np.uint8)
    assert np.abs(apply_colour_constancy(grey).astype(int) - 90).max() <= 1
    red = np.zeros((4, 4, 3), dtype=np.uint8)
    assert np.array_equal(apply_colour_constancy(red), red)
    red[..., 0] = 100
    assert apply_colour_constancy(red)[0, 0].tolist() == [57, 0, 0]


def test_what_colour_constancy_lifts_above_255_stays_there() -> None:
    image = np.full((30, 30, 3), (250, 250, 10), dtype=np.uint8)
    image[0, 0] = 255
    assert apply_colour_constancy(image)[0, 0, 2] == 255


def _read(path: Path, *, size: int) -> np.ndarray:
    record = SourceRecord(site="bcn", id="x", image=path, label=3)
    (sample,) = FedIsic().read(record, size=size)
    assert (sample.id, sample.label) == ("x", 3)
    return sample.image


def test_a_preprocessed_image_is_only_cropped(tmp_path: Path) -> None:
    image = fakes.photograph(1, 224, 300)
    path = fakes.save(tmp_path / PREPROCESSED / "x.png", image)
    canvas = np.pad(image[:, 20:280], [(18, 18), (0, 0), (0, 0)], mode="reflect")
    assert np.array_equal(_read(path, size=224), canvas.transpose(2, 0, 1))
    assert np.array_equal(canvas[18:242, 18:242], image[:, 38:262])


def test_a_raw_image_is_resized_made_constant_and_cropped(tmp_path: Path) -> None:
    image = fakes.photograph(2, 60, 80)
    path = fakes.save(tmp_path / RAW / "x.png", image)
    small = np.asarray(Image.fromarray(image).resize((40, 30), Image.Resampling.BILINEAR))
    white = apply_colour_constancy(small)
    canvas = np.pad(white[:, 2:38], [(3, 3), (0, 0), (0, 0)], mode="reflect")
    assert np.array_equal(_read(path, size=30), canvas.transpose(2, 0, 1))
    assert np.array_equal(canvas[3:33, 3:33], white[:, 5:35])


@pytest.mark.parametrize("width", [224, 231, 239, 260, 298, 299, 400])
@pytest.mark.parametrize("is_tall", [False, True], ids=["wide", "tall"])
def test_a_rotation_of_the_canvas_is_one_of_the_whole_image(tmp_path: Path, width: int, is_tall: bool) -> None:
    """The authors rotate the whole image with a reflected border, and crop the centre afterwards."""
    image = fakes.photograph(5, 224, width)
    image = image.transpose(1, 0, 2) if is_tall else image
    path = fakes.save(tmp_path / PREPROCESSED / "x.png", image)
    canvas, whole = (
        torch.from_numpy(planes.astype(np.float32))[None]
        for planes in (_read(path, size=224), image.transpose(2, 0, 1))
    )
    classes = torch.zeros(1)
    for angle in (-10.0, -6.5, -1.0, 0.0, 3.0, 9.0, 10.0):
        degrees = torch.tensor([angle])
        cut, expected = (crop_centre(rotate(images, classes, degrees)[0], 224) for images in (canvas, whole))
        assert (cut - expected).abs().max() <= 1
        if width % 2 == 0:  # the centre of an odd width is half a pixel beside that of the crop
            assert (cut - expected).abs().max() <= 0.01


def test_noise_is_rotated_alike_up_to_ten_degrees(tmp_path: Path) -> None:
    """At the corners of the square, where the margin is just wide enough, at every size."""
    for size in (8, 64, 128, 224):
        noise = np.random.default_rng(size).integers(0, 256, (size, size + 20, 3), dtype=np.uint8)
        path = fakes.save(tmp_path / PREPROCESSED / f"{size}.png", noise)
        canvas, whole = (
            torch.from_numpy(planes.astype(np.float32))[None]
            for planes in (_read(path, size=size), noise.transpose(2, 0, 1))
        )
        for angle in (-10.0, 10.0):
            cut, expected = (
                crop_centre(rotate(images, torch.zeros(1), torch.tensor([angle]))[0], size)
                for images in (canvas, whole)
            )
            assert (cut - expected).abs().max() <= 0.05


@pytest.mark.parametrize(
    ("shape", "size"), [((450, 600), 224), ((1024, 1024), 128), ((223, 298), 224), ((31, 29), 64)]
)
def test_every_shape_fills_the_square(tmp_path: Path, shape: tuple[int, int], size: int) -> None:
    for folder in (RAW, PREPROCESSED):
        path = fakes.save(tmp_path / folder / "x.png", np.full((*shape, 3), 77, dtype=np.uint8))
        image = _read(path, size=size)
        side = {224: 260, 128: 150, 64: 76}[size]
        assert image.shape == (3, side, side)
        assert image.min() >= 76


def test_findings_are_named_from_the_folder_that_was_given(tmp_path: Path) -> None:
    fakes.isic_flamby(tmp_path / "inner")
    (tmp_path / "inner" / PREPROCESSED / "ISIC_0100000.jpg").unlink()
    file = f"inner/{PREPROCESSED}/ISIC_0100000.jpg"
    assert FedIsic().scan(tmp_path).findings == [
        Finding(file=file, problem="is missing, but train_test_split lists it")
    ]
