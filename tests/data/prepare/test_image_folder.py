"""Pictures of one's own in folders: kinds of files, and every mistake in them."""

from pathlib import Path

import nibabel
import numpy as np
import pytest

from feal.annotation.oracle import Oracle
from feal.data import open_labels, open_prepared
from feal.data.images import write_contact_sheet
from feal.data.prepare.base import FindingsError
from feal.data.prepare.image_folder import open_image_folder
from feal.data.prepare.pipeline import prepare_dataset
from feal.errors import FealError
from feal.settings import Task
from tests.data.prepare.conftest import picture
from tests.data.prepare.own_set import findings_in, prepared_own, save


def test_a_folder_a_class(root: Path) -> None:
    for number in range(20):
        save(
            root / f"{'alder' if number < 10 else 'birch'}/{'nevus' if number % 2 else 'melanoma'}/{number}.png",
            number,
        )
    (root / "alder" / "notes.txt").touch()
    save(root / ".trash" / "nevus" / "1.png")
    data = prepared_own(root, "classification")
    assert data.classes == ("melanoma", "nevus")
    assert (data.channels, data.manifest.dtype) == (3, "uint8")
    site = data.site("birch")
    assert site.ids().tolist() == sorted(f"{'nevus' if n % 2 else 'melanoma'}/{n}" for n in range(10, 20))
    assert open_labels(site).of(["nevus/11", "melanoma/12"]).tolist() == [1, 0]
    assert data.manifest.source["remarks"] == ["1 files that are not images were skipped."]


@pytest.mark.parametrize("place", ["{split}/alder", "alder/{split}"], ids=["above", "below"])
def test_a_split_above_or_below(root: Path, place: str) -> None:
    for number in range(6):
        split = "train" if number < 4 else "test"
        save(root / place.format(split=split) / ("a" if number % 2 else "b") / f"{number}.png", number)
    data = prepared_own(root, "classification")
    assert data.sites == ["alder"]
    assert data.site("alder").ids("test").tolist() == ["test/a/5", "test/b/4"]


@pytest.mark.parametrize("names", [("image", "mask"), ("images", "masks")])
@pytest.mark.parametrize("white", [1, 255])
def test_images_with_masks(root: Path, names: tuple[str, str], white: int) -> None:
    for number in range(5):
        save(root / "alder" / names[0] / f"{number}.jpg", number)
        mask = white * (picture(number)[..., 0] > 99).astype(np.uint8)
        save(root / "alder" / names[1] / f"{number}.png", pixels=mask)
    data = prepared_own(root, "segmentation")
    assert data.classes == ("background", "foreground")
    masks = open_labels(data.site("alder")).of(data.site("alder").ids())
    assert masks.unique().tolist() == [0, 1]


def test_class_numbers_in_masks_need_names(root: Path) -> None:
    for number in range(5):
        save(root / "alder" / "image" / f"{number}.png", number)
        save(root / "alder" / "mask" / f"{number}.png", pixels=(picture(number)[..., 0] // 90).astype(np.uint8))
    found = findings_in(root, "segmentation")
    assert found["alder/mask/0.png"] == "has mask values outside the mapping (2; known are 0, 1)"
    data = prepared_own(root, "segmentation", classes=["background", "disc", "cup"])
    assert data.classes == ("background", "disc", "cup")


def test_masks_and_images_without_each_other(root: Path) -> None:
    for name in ("a", "b", "c"):
        save(root / "alder" / "image" / f"{name}.png", ord(name))
        save(root / "alder" / "mask" / f"{name}.png", pixels=np.zeros((40, 40), np.uint8))
    (root / "alder" / "image" / "a.png").rename(root / "alder" / "image" / "z.png")
    save(root / "alder" / "more" / "x.png")
    save(root / "loose.png")
    (root / "birch").mkdir()
    assert findings_in(root, "segmentation") == {
        "alder/image/z.png": "has no mask",
        "alder/mask/a.png": "is a mask without an image",
        "alder/more/x.png": "is neither in image nor in mask",
        "loose.png": "is not in site/image/ or site/mask/",
        "birch": "is a site without any image",
    }
    assert len(prepared_own(root, "segmentation", skip_bad=True).site("alder")) == 2


def test_the_same_name_twice(root: Path) -> None:
    for name in ("a.png", "a.bmp", "b.png", "c.png"):
        save(root / "alder" / "image" / name, ord(name[0]) + len(name))
        save(root / "alder" / "mask" / f"{name[0]}.png", pixels=np.zeros((40, 40), np.uint8))
    assert set(findings_in(root, "segmentation")) == {"alder/image/a.png", "alder/image/a.bmp"}


def test_two_masks_of_one_image(root: Path) -> None:
    for name in ("a", "b", "c"):
        save(root / "alder" / "image" / f"{name}.png", ord(name))
        save(root / "alder" / "mask" / f"{name}.png", pixels=np.zeros((40, 40), np.uint8))
    save(root / "alder" / "masks" / "b.png", pixels=np.zeros((40, 40), np.uint8))
    save(root / "alder" / "mask" / "c.bmp", pixels=np.zeros((40, 40), np.uint8))
    several = "is one of several masks with this name: keep one of them"
    twice = ("alder/mask/b.png", "alder/masks/b.png", "alder/mask/c.png", "alder/mask/c.bmp")
    assert findings_in(root, "segmentation") == dict.fromkeys(twice, several)
    save(root / "alder" / "image" / "d.png", 4)
    save(root / "alder" / "mask" / "d.png", pixels=np.zeros((40, 40), np.uint8))
    assert prepared_own(root, "segmentation", skip_bad=True).site("alder").ids().tolist() == ["a", "d"]


def test_nothing_to_prepare(root: Path) -> None:
    with pytest.raises(FealError, match=r"no image for segmentation in .*site/image"):
        open_image_folder(root, task="segmentation", name="mine")
    save(root / "alder" / "nevus" / "1.png")
    with pytest.raises(FealError, match=r"There is only one class \(nevus\) in "):
        open_image_folder(root, task="classification", name="mine")
    with pytest.raises(FealError, match="There is no folder"):
        open_image_folder(root / "none", task="classification", name="mine")


@pytest.mark.parametrize("task", ["classification", "segmentation"])
def test_unlabelled_samples(root: Path, task: Task, tmp_path: Path) -> None:
    for number in range(12):
        kind = "unlabelled" if number >= 8 else "image" if task == "segmentation" else f"class{number % 2}"
        save(root / "alder" / kind / f"{number}.png", number)
        if kind == "image":
            save(root / "alder" / "mask" / f"{number}.png", pixels=np.full((40, 40), 255, np.uint8))
    data = prepared_own(root, task)
    site, truth = data.site("alder"), open_labels(data.site("alder"))
    unlabelled = [sample for sample in site.ids().tolist() if sample.startswith("unlabelled")]
    assert site.unlabelled == len(unlabelled) == 4
    assert set(unlabelled) < set(site.ids("train").tolist())
    assert truth.is_known(site.ids()).tolist() == [sample not in unlabelled for sample in site.ids().tolist()]
    assert site.is_initial("train").tolist() == truth.is_known(site.ids("train")).tolist()
    assert not site.is_initial("test").any()
    truth.check()
    with pytest.raises(
        FealError, match=r"4 unlabelled training samples, .*annotator=folder.*initial_labels=dataset"
    ):
        Oracle(site, folder=tmp_path).check(allow_single_class=True)
    write_contact_sheet(site, tmp_path / "sheet.png")
    stored = np.load(data.root / "alder" / "truth.npy", mmap_mode="r+")
    stored[int(site.rows(site.ids("test"))[0])] = -1 if task == "classification" else 255
    stored.flush()
    with pytest.raises(FealError, match=r"has the class value (-1|255)"):
        open_labels(open_prepared(data.root).site("alder")).check()


def test_grey_and_sixteen_bits(root: Path) -> None:
    for number in range(6):
        grey = picture(number)[..., 0]
        deep = number % 2 == 0
        save(
            root / "alder" / "ab"[number // 3] / f"{number}.png",
            pixels=grey.astype(np.uint16) * 200 if deep else grey,
        )
    data = prepared_own(root, "classification")
    assert (data.channels, data.manifest.dtype) == (1, "uint16")
    stored = np.load(data.root / "alder" / "images.npy")
    assert stored.max() > 256 * 100


def test_colour_among_grey_is_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("feal.data.prepare.image_folder._INSPECTED", 2)
    for number in range(6):
        save(root / "alder" / "ab"[number // 3] / f"{number}.png", pixels=picture(number)[..., 0])
    save(root / "alder" / "b" / "9.png", 9)
    assert findings_in(root, "classification") == {
        "alder/b/9.png": "is in colour, but the others are grey: convert it"
    }


def test_volumes_are_sliced(root: Path) -> None:
    draw = np.random.default_rng(0)
    for case in range(5):
        for part, voxels in (("image", draw.normal(size=(20, 24, 3))), ("mask", draw.integers(0, 2, (20, 24, 3)))):
            (root / "alder" / part).mkdir(parents=True, exist_ok=True)
            saved = nibabel.Nifti1Image(voxels.astype(np.float32 if part == "image" else np.uint8), np.eye(4))
            nibabel.save(saved, root / "alder" / part / f"case{case}.nii.gz")
    data = prepared_own(root, "segmentation")
    site = data.site("alder")
    assert (data.channels, data.manifest.dtype, len(site)) == (1, "uint16", 15)
    assert site.ids()[:4].tolist() == ["case0-000", "case0-001", "case0-002", "case1-000"]
    assert site.patients()[:4].tolist() == ["case0"] * 3 + ["case1"]
    assert len(site.ids("test")) == 3
    assert len(set(site.patients("test").tolist())) == 1


def test_volumes_are_paired_whatever_the_case_of_their_suffix(root: Path) -> None:
    for case in range(2):
        _volume(root / "alder" / "image" / f"case{case}.NII.GZ", np.full((8, 8, 2), case + 1, np.uint8))
        _volume(root / "alder" / "mask" / f"case{case}.nii.gz", np.zeros((8, 8, 2), np.uint8))
    assert prepared_own(root, "segmentation").site("alder").ids()[:2].tolist() == ["case0-000", "case0-001"]


def _volume(path: Path, voxels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), path)


def test_slices_lie_as_those_of_the_prostate_do(root: Path) -> None:
    voxels = np.zeros((32, 32, 2), np.uint8)
    voxels[20:, :8] = 255  # NIfTI's first axis is x: at the right, above
    _volume(root / "alder" / "image" / "case.nii.gz", voxels)
    _volume(root / "alder" / "mask" / "case.nii.gz", voxels)
    own = open_image_folder(root, task="segmentation", name="mine")
    (record,) = own.scan(root).records
    for sample in own.read(record, size=32):
        assert isinstance(sample.label, np.ndarray)
        assert sample.image[0, :8, 20:].all()
        assert sample.label[:8, 20:].all()
        assert sample.label.sum() == 8 * 12


@pytest.mark.parametrize("flat", ["image", "mask"])
def test_a_volume_and_a_flat_picture_are_no_pair(root: Path, flat: str) -> None:
    for number in range(4):
        save(root / "alder" / "image" / f"{number}.png", pixels=picture(number)[..., 0])
        save(root / "alder" / "mask" / f"{number}.png", pixels=np.zeros((40, 40), np.uint8))
    (root / "alder" / flat / "3.png").rename(root / "alder" / flat / "4.png")
    other = "mask" if flat == "image" else "image"
    (root / "alder" / other / "3.png").unlink()
    _volume(root / "alder" / other / "4.nii.gz", np.zeros((40, 40, 3), np.uint8))
    kinds = ("volume", "flat image") if flat == "image" else ("flat image", "volume")
    assert findings_in(root, "segmentation") == {
        f"alder/mask/4.{'nii.gz' if flat == 'image' else 'png'}": (f"is a {kinds[0]} as the mask of a {kinds[1]}")
    }


def test_a_split_is_no_class(root: Path) -> None:
    for number in range(8):
        save(root / "alder" / ("train" if number < 6 else "test") / f"{number}.png", number)
        save(root / "birch" / "ab"[number % 2] / f"{number}.png", 10 + number)
    found = findings_in(root, "classification")
    assert found.pop("alder") == "is a site without any image"
    assert set(found.values()) == {"is not in site/class/"}
    assert len(found) == 8


def test_sites_behind_links(root: Path, tmp_path: Path) -> None:
    for number in range(8):
        save(tmp_path / "elsewhere" / "ab"[number % 2] / f"{number}.png", number)
    (root / "alder").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (tmp_path / "elsewhere" / "a" / "back").symlink_to(root, target_is_directory=True)
    assert len(prepared_own(root, "classification").site("alder")) == 8


@pytest.mark.parametrize("task", ["classification", "segmentation"])
def test_links_to_nothing_are_found(root: Path, task: Task) -> None:
    for number in range(4):
        kind = "image" if task == "segmentation" else "ab"[number % 2]
        save(root / "alder" / kind / f"{number}.png", number)
        if task == "segmentation":
            save(root / "alder" / "mask" / f"{number}.png", pixels=np.zeros((40, 40), np.uint8))
    broken = root / "alder" / ("mask" if task == "segmentation" else "b") / "1.png"
    broken.unlink()
    broken.symlink_to(root.parent / "unmounted" / "1.png")
    assert findings_in(root, task) == {broken.relative_to(root).as_posix(): "is a link to nothing"}
    assert len(prepared_own(root, task, skip_bad=True).site("alder")) == 3


def test_a_mask_that_goes_after_it_was_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        save(root / "alder" / "image" / f"{number}.png", number)
        save(root / "alder" / "mask" / f"{number}.png", pixels=np.zeros((40, 40), np.uint8))
    own = open_image_folder(root, task="segmentation", name="mine")
    scan = own.scan(root)
    (root / "alder" / "mask" / "2.png").unlink()
    monkeypatch.setattr(type(own), "scan", lambda *_: scan)
    with pytest.raises(FindingsError) as refused:
        prepare_dataset(own, root, root.parent / "to", size=32, threads=1)
    assert [(one.file, one.problem) for one in refused.value.findings] == [("alder/mask/2.png", "is missing")]
