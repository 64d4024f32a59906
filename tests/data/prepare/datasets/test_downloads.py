"""What holds for every data set, on a fake download of each."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from feal.data.manifest import check_name
from feal.data.prepare.base import DatasetSource, SourceRecord, UnusableFileError, find_stored_side
from feal.data.prepare.datasets import DATASET_SOURCES
from feal.data.prepare.datasets.isic import PREPROCESSED
from feal.data.prepared import scale_pixels
from feal.errors import FealError
from feal.inference.model import InputFormat
from feal.inference.predict import read_image
from tests.data.prepare.datasets import fakes

FAKES: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "isic-flamby": ("fed-isic", lambda root: fakes.isic_flamby(root, images=2)),
    "isic-raw": ("fed-isic", lambda root: fakes.isic_raw(root, images=2)),
    "camelyon": ("fed-camelyon", lambda root: fakes.camelyon(root, patients=1, patches=1)),
    "polyps": ("fed-polyp", lambda root: fakes.polyps(root, frames=1)),
    "polyps-pranet": ("fed-polyp", fakes.polyps_pranet),
    "prostate": ("fed-prostate", lambda root: fakes.prostate(root, cases=1)),
    "prostate-slices": ("fed-prostate", fakes.prostate_slices),
    "fundus": ("fed-fundus", lambda root: fakes.fundus(root, train=1, test=1)),
    "octa": ("octa-500", lambda root: fakes.octa(root, cases=1)),
    "octa-old": ("octa-500", lambda root: fakes.octa(root, cases=1, old=True)),
}
NAMES = ["fed-camelyon", "fed-fundus", "fed-isic", "fed-polyp", "fed-prostate", "octa-500"]


@pytest.fixture(params=FAKES)
def fake(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[DatasetSource, Path]:
    name, write = FAKES[request.param]
    return DATASET_SOURCES.get(name)(), write(tmp_path)


def _drafts(fake: tuple[DatasetSource, Path]) -> list[SourceRecord]:
    dataset, folder = fake
    return list(dataset.scan(folder).records)


def test_all_six_are_registered_under_their_name() -> None:
    assert set(NAMES) <= set(DATASET_SOURCES.names())
    assert all(DATASET_SOURCES.get(name).name == name for name in NAMES)


def test_a_piece_is_of_the_declared_kind_at_any_size(fake: tuple[DatasetSource, Path]) -> None:
    dataset, _ = fake
    record = _drafts(fake)[0]
    for size in (dataset.size, 48):
        samples, side = dataset.read(record, size=size), find_stored_side(dataset, size)
        assert samples
        for sample in samples:
            assert sample.image.shape == (dataset.channels, side, side)
            assert sample.image.dtype == dataset.dtype
            assert sample.image.flags.c_contiguous
            if dataset.task == "classification":
                assert sample.label == record.label
            else:
                assert sample.label.shape == (side, side)
                assert sample.label.dtype == np.uint8
                assert sample.label.max() < len(dataset.classes)


def test_a_picture_is_predicted_as_it_was_prepared(fake: tuple[DatasetSource, Path]) -> None:
    """The very numbers: `feal predict` does to a picture of the download what preparing does."""
    dataset, _ = fake
    records = [record for record in _drafts(fake) if record.image.suffix != ".gz"]
    for record in records[:: max(1, len(records) // 4)]:
        if record.image.parent.name == PREPROCESSED:
            continue  # what FLamby did to colours is in the files; a new picture does not have it
        for size in (dataset.size, 48):
            (sample,) = dataset.read(record, size=size)
            side = find_stored_side(dataset, size)
            about = {"channels": dataset.channels, "height": side, "width": side, "dtype": dataset.dtype}
            read = read_image(record.image, InputFormat(**about, scale=1, fitting=dataset.fitting))
            assert np.array_equal(read.pixels, scale_pixels(sample.image))


def test_a_scan_reads_no_picture_and_names_are_possible(fake: tuple[DatasetSource, Path]) -> None:
    dataset, folder = fake
    for path in folder.rglob("*"):
        if path.suffix.lower() in (".png", ".jpg", ".bmp", ".gz"):
            path.write_bytes(b"")
    records = _drafts(fake)
    assert len({(record.site, record.id) for record in records}) == len(records) > 0
    for record in records:
        check_name(record.site, "site")
        assert record.image.is_relative_to(folder)
        assert (record.label is None) == (record.mask is not None) == (dataset.task == "segmentation")


def test_a_file_that_went_missing_or_is_none_is_refused(fake: tuple[DatasetSource, Path]) -> None:
    dataset, _ = fake
    record = _drafts(fake)[0]
    record.image.write_bytes(record.image.read_bytes()[:40])
    with pytest.raises(UnusableFileError, match="cannot be read"):
        dataset.read(record, size=32)
    record.image.unlink()
    with pytest.raises(UnusableFileError, match="is missing"):
        dataset.read(record, size=32)


def test_the_folder_around_the_download_will_do(fake: tuple[DatasetSource, Path]) -> None:
    dataset, folder = fake
    before = len(_drafts(fake))
    around = folder.with_name(f"{folder.name}-around")
    around.mkdir()
    (folder / "Fundus" if (folder / "Fundus").is_dir() else folder).rename(around / "download")
    assert len(dataset.scan(around).records) == before


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_of_something_else_is_refused_with_what_it_should_hold(name: str, tmp_path: Path) -> None:
    (tmp_path / "holiday").mkdir()
    fakes.save(tmp_path / "holiday" / "beach.jpg", fakes.photograph(1, 8, 8))
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(
            FealError, match=f"{folder} should hold .*: name the folder of the download with --from"
        ):
            DATASET_SOURCES.get(name)().scan(folder)


@pytest.mark.parametrize("name", NAMES)
def test_instances_have_no_state_that_threads_would_share(name: str) -> None:
    assert vars(DATASET_SOURCES.get(name)()) == {}
