"""What holds for every data set, on a fake download of each."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from feal.data.manifest import check_name
from feal.data.preparation.contract import Download, Draft, UnfitError
from feal.data.preparation.downloads import DOWNLOADS
from feal.data.preparation.downloads.fed_isic import PREPROCESSED
from feal.data.prepared import scaled
from feal.errors import FealError
from feal.inference.facts import Input
from feal.inference.pictures import read_picture
from tests.data.preparation.downloads import fakes

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
def fake(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Download, Path]:
    name, write = FAKES[request.param]
    return DOWNLOADS.get(name)(), write(tmp_path)


def _drafts(fake: tuple[Download, Path]) -> list[Draft]:
    download, folder = fake
    return list(download.scan(folder).drafts)


def test_all_six_are_registered_under_their_name() -> None:
    assert set(NAMES) <= set(DOWNLOADS.names())
    assert all(DOWNLOADS.get(name).name == name for name in NAMES)


def test_a_piece_is_of_the_declared_kind_at_any_size(fake: tuple[Download, Path]) -> None:
    download, _ = fake
    draft = _drafts(fake)[0]
    for size in (download.size, 48):
        pieces = download.read(draft, size=size)
        assert pieces
        for piece in pieces:
            assert piece.image.shape == (download.channels, size, size)
            assert piece.image.dtype == download.dtype
            assert piece.image.flags.c_contiguous
            if download.task == "classification":
                assert piece.truth == draft.label
            else:
                assert piece.truth.shape == (size, size)
                assert piece.truth.dtype == np.uint8
                assert piece.truth.max() < len(download.classes)


def test_a_picture_is_predicted_as_it_was_prepared(fake: tuple[Download, Path]) -> None:
    """The very numbers: `feal predict` does to a picture of the download what preparing does."""
    download, _ = fake
    drafts = [draft for draft in _drafts(fake) if draft.image.suffix != ".gz"]
    for draft in drafts[:: max(1, len(drafts) // 4)]:
        if draft.image.parent.name == PREPROCESSED:
            continue  # what FLamby did to colours is in the files; a new picture does not have it
        for size in (download.size, 48):
            (piece,) = download.read(draft, size=size)
            about = {"channels": download.channels, "height": size, "width": size, "dtype": download.dtype}
            read = read_picture(draft.image, Input(**about, scale=1, fitting=download.fitting))
            assert np.array_equal(read.pixels, scaled(piece.image))


def test_a_scan_reads_no_picture_and_names_are_possible(fake: tuple[Download, Path]) -> None:
    download, folder = fake
    for path in folder.rglob("*"):
        if path.suffix.lower() in (".png", ".jpg", ".bmp", ".gz"):
            path.write_bytes(b"")
    drafts = _drafts(fake)
    assert len({(draft.site, draft.id) for draft in drafts}) == len(drafts) > 0
    for draft in drafts:
        check_name(draft.site, "site")
        assert draft.image.is_relative_to(folder)
        assert (draft.label is None) == (draft.mask is not None) == (download.task == "segmentation")


def test_a_file_that_went_missing_or_is_none_is_refused(fake: tuple[Download, Path]) -> None:
    download, _ = fake
    draft = _drafts(fake)[0]
    draft.image.write_bytes(draft.image.read_bytes()[:40])
    with pytest.raises(UnfitError, match="cannot be read"):
        download.read(draft, size=32)
    draft.image.unlink()
    with pytest.raises(UnfitError, match="is missing"):
        download.read(draft, size=32)


def test_the_folder_around_the_download_will_do(fake: tuple[Download, Path]) -> None:
    download, folder = fake
    before = len(_drafts(fake))
    around = folder.with_name(f"{folder.name}-around")
    around.mkdir()
    (folder / "Fundus" if (folder / "Fundus").is_dir() else folder).rename(around / "download")
    assert len(download.scan(around).drafts) == before


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_of_something_else_is_refused_with_what_it_should_hold(name: str, tmp_path: Path) -> None:
    (tmp_path / "holiday").mkdir()
    fakes.save(tmp_path / "holiday" / "beach.jpg", fakes.photograph(1, 8, 8))
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(
            FealError, match=f"{folder} should hold .*: name the folder of the download with --from"
        ):
            DOWNLOADS.get(name)().scan(folder)


@pytest.mark.parametrize("name", NAMES)
def test_instances_can_be_sent_to_other_processes(name: str) -> None:
    """A process finds the class by its name and fills an instance with the values it was sent."""
    kind = DOWNLOADS.get(name)
    assert getattr(sys.modules[kind.__module__], kind.__qualname__) is kind
    assert vars(kind()) == {}
