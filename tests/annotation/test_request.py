"""The request as files: complete, the same twice, readable by people, and nothing of the truth in it."""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from feal.annotation import FolderAnnotator, request
from feal.annotation.answers import read_requested_images
from feal.annotation.request import name_image
from feal.data import PreparedSite, open_prepared
from feal.errors import FealError
from tests.annotation.asking import IDS, queries, write_site
from tests.prepared import write_prepared


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _pixels(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.array(picture)


class Model:
    """Draws the same mask for a sample every time, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, samples: Sequence[str]) -> np.ndarray:
        self.asked.append(list(samples))
        return np.stack([self.mask(sample) for sample in samples])

    @staticmethod
    def mask(sample: str) -> np.ndarray:
        return np.random.default_rng(len(sample)).integers(0, 3, (4, 6)).astype(np.uint8)


def test_a_request_says_what_is_asked_and_shows_it(
    labelling: FolderAnnotator, lesions: PreparedSite, first: Path, second: Path
) -> None:
    rows = _rows(first / "request.csv")
    assert list(rows[0]) == ["sample", "rank", "score", "image", "label"]
    assert [row["sample"] for row in rows] == IDS[:3]
    assert [row["rank"] for row in rows] == ["1", "2", "3"]
    assert [row["label"] for row in rows] == ["", "", ""]
    for row in rows:
        stored = (lesions.images([row["sample"]])[0].numpy() * 255).round().transpose(1, 2, 0)
        assert np.array_equal(_pixels(first / row["image"]), stored)
    assert [row["sample"] for row in _rows(second / "request.csv")] == ["Ümlaut, 2"]
    readme = (first / "README.txt").read_text()
    assert "Site alder, round 1: 3 images" in readme
    assert "  1  melanoma" in readme
    assert "cannot" in readme
    assert sorted(path.name for path in first.iterdir()) == ["README.txt", "images", "request.csv"]


def test_drafts_are_the_models_masks(polyps: PreparedSite, tmp_path: Path, second: Path) -> None:
    annotator = FolderAnnotator(polyps, folder=tmp_path / "site")
    annotator.ask(queries(IDS, round=2), predict_masks=Model())
    rows = _rows(second / "request.csv")
    assert list(rows[0]) == ["sample", "rank", "score", "image", "draft", "label"]
    for row in rows:
        with Image.open(second / row["draft"]) as draft:
            assert draft.mode == "P"
            assert np.array_equal(np.array(draft), Model.mask(row["sample"]))
    readme = (second / "README.txt").read_text()
    assert "#ffdd33  melanoma" in readme
    assert "drafts" in readme
    assert "6 x 4 pixels" in readme


@pytest.mark.parametrize(("dtype", "channels"), [("uint8", 1), ("uint16", 1), ("float16", 3), ("uint8", 5)])
def test_every_kind_of_image_becomes_eight_bits(tmp_path: Path, dtype: str, channels: int) -> None:
    site = write_site(tmp_path / "data", task="classification", dtype=dtype, channels=channels)
    FolderAnnotator(site, folder=tmp_path / "site").ask(queries(IDS), predict_masks=None)
    for path in (tmp_path / "site" / "annotation" / "round-001" / "images").iterdir():
        pixels = _pixels(path)
        assert pixels.dtype == np.uint8
        assert pixels.shape == ((4, 6) if channels == 1 else (4, 6, 3))
        assert np.ptp(pixels) > 100


def test_asking_twice_is_asking_once_and_answers_stay(polyps: PreparedSite, tmp_path: Path, first: Path) -> None:
    annotator = FolderAnnotator(polyps, folder=tmp_path / "site")
    annotator.ask(queries(IDS), predict_masks=Model())
    (first / "answers.csv").write_text("sample,label\n")
    (first / "masks").mkdir()
    (first / "masks" / "001-a-1.png").write_bytes(b"half")
    before = _content(first)
    annotator.ask(queries(IDS), predict_masks=Model())
    assert _content(first) == before


def test_an_interrupted_request_is_not_complete_and_is_written_anew(
    polyps: PreparedSite, tmp_path: Path, first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    annotator = FolderAnnotator(polyps, folder=tmp_path / "site")
    annotator.ask(queries(IDS[::-1]), predict_masks=Model())
    written = []

    def killed(path: Path, data: bytes) -> None:
        if len(written) == 7:
            raise KeyboardInterrupt
        written.append(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    with monkeypatch.context() as patched:
        patched.setattr(request, "write_bytes", killed)
        with pytest.raises(KeyboardInterrupt):
            annotator.ask(queries(IDS), predict_masks=Model())
    assert not (first / "request.csv").exists()
    annotator.ask(queries(IDS), predict_masks=Model())
    assert set(read_requested_images(first / "request.csv").values()) == set(IDS)
    names = sorted(row["image"].removeprefix("images/") for row in _rows(first / "request.csv"))
    for part in ("images", "drafts"):
        assert sorted(path.name for path in (first / part).iterdir()) == names


def test_a_large_request_is_written_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = open_prepared(write_prepared(tmp_path / "data", samples=60)).site("alder")
    sizes: list[int] = []
    images = PreparedSite.images
    monkeypatch.setattr(PreparedSite, "images", lambda self, ids: sizes.append(len(ids)) or images(self, ids))
    model = Model()
    monkeypatch.setattr(Model, "mask", staticmethod(lambda sample: np.zeros((32, 32), dtype=np.uint8)))
    FolderAnnotator(site, folder=tmp_path / "site").ask(queries(site.ids().tolist()), predict_masks=model)
    assert sum(sizes) == sum(map(len, model.asked)) == 60
    assert max(*sizes, *map(len, model.asked)) <= 16


def test_nothing_asked_writes_nothing(lesions: PreparedSite, tmp_path: Path) -> None:
    FolderAnnotator(lesions, folder=tmp_path / "site").ask([], predict_masks=None)
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize("place", ["round-001", "round-001/images"])
def test_a_link_does_not_lead_the_request_elsewhere(lesions: PreparedSite, tmp_path: Path, place: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "site" / "annotation" / place
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FealError, match="link out of the annotation folder"):
        FolderAnnotator(lesions, folder=tmp_path / "site").ask(queries(IDS), predict_masks=None)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_place_that_cannot_be_written_is_said(lesions: PreparedSite, tmp_path: Path, first: Path) -> None:
    first.mkdir(parents=True)
    (first / "images").write_text("a file")
    with pytest.raises(FealError, match="could not be written"):
        FolderAnnotator(lesions, folder=tmp_path / "site").ask(queries(IDS), predict_masks=None)


def test_the_truth_is_never_opened(
    lesions: PreparedSite, tmp_path: Path, first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object) -> None:
        raise AssertionError("the truth was opened")

    for name, module in list(sys.modules.items()):
        if name.startswith("feal.") and hasattr(module, "open_labels"):
            monkeypatch.setattr(module, "open_labels", forbidden)
    (lesions.folder / "truth.npy").unlink()
    annotator = FolderAnnotator(lesions, folder=tmp_path / "site")
    annotator.check(allow_single_class=False)
    annotator.ask(queries(IDS), predict_masks=None)
    (first / "answers.csv").write_text("sample,label\ns5,vascular\n")
    (answer,) = annotator.poll(pending=IDS, answered=[]).answers
    assert (answer.sample, answer.label) == ("s5", 2)


@given(st.lists(st.text(), min_size=1, max_size=20))
def test_file_names_are_safe_and_unique_in_any_case(samples: list[str]) -> None:
    names = [name_image(rank, sample) for rank, sample in enumerate(samples, start=1)]
    assert len({name.lower() for name in names}) == len(names)
    for name in names:
        assert name.isascii()
        assert not set(name) & set('/\\:*?"<>| \n\0')
        assert name.removesuffix(".png").rstrip(". ") == name.removesuffix(".png")
        assert len(name) < 100
        assert not name.startswith(".")
