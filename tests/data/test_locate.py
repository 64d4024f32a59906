"""Data sets by name: drawn once, found again, distinguished by their parameters."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from feal.config import load
from feal.data.locate import SYNTHETIC_DATASETS, is_dataset_name, locate
from feal.data.prepare.base import DATASET_SOURCES
from feal.data.prepare.datasets.isic import FedIsic
from feal.data.prepared import open_prepared
from feal.data.writer import PreparedWriter
from feal.errors import FealError
from tests.data.prepare.datasets import fakes

SMALL = {"sites": 1, "train": 4, "test": 2}


def test_names_and_summaries() -> None:
    assert SYNTHETIC_DATASETS.names() == ["synthetic-lesions", "synthetic-polyps"]
    assert "classification" in SYNTHETIC_DATASETS.summary("synthetic-lesions")
    assert "segmentation" in SYNTHETIC_DATASETS.summary("synthetic-polyps")


def test_a_set_is_drawn_once(tmp_path: Path) -> None:
    root = locate("synthetic-lesions", data=tmp_path, params=SMALL)
    stamp = root.stat().st_ino
    assert root.parent == tmp_path
    assert len(root.name) == len("synthetic-lesions-") + 12
    assert locate("synthetic-lesions", data=tmp_path, params=SMALL) == root
    assert root.stat().st_ino == stamp


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"train": 5}, {"size": 33}, {"classes": 5}, {"labelled_fraction": 0.5}]
)
def test_every_parameter_tells_sets_apart(tmp_path: Path, change: dict[str, float]) -> None:
    first = locate("synthetic-lesions", data=tmp_path, params=SMALL)
    assert locate("synthetic-lesions", data=tmp_path, params=SMALL | change) != first


def test_another_version_of_the_drawing_code_draws_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = locate("synthetic-polyps", data=tmp_path, params=SMALL)
    monkeypatch.setattr("feal.data.synthetic.polyps.SyntheticPolyps.version", 1000)
    assert locate("synthetic-polyps", data=tmp_path, params=SMALL) != first


def test_where_sets_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEAL_DATA", str(tmp_path / "data"))
    assert locate("synthetic-lesions", params=SMALL).parent == tmp_path / "data"
    monkeypatch.delenv("FEAL_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert locate("synthetic-lesions", params=SMALL).parent == tmp_path / "cache" / "feal"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert locate("synthetic-lesions", params=SMALL).parent == tmp_path / "home" / ".cache" / "feal"


def test_a_prepared_folder_stands_for_itself(plain: Path) -> None:
    assert open_prepared(locate(str(plain))).name == "plain"


def test_an_unknown_name_and_an_impossible_value(tmp_path: Path) -> None:
    with pytest.raises(FealError, match="did you mean 'synthetic-lesions'"):
        locate("synthetic-lesion", data=tmp_path)
    with pytest.raises(FealError, match="dataset.sites=13 is not valid"):
        locate("synthetic-lesions", data=tmp_path, params={"sites": 13})
    with pytest.raises(FealError, match="dataset.train=many is not valid"):
        locate("synthetic-lesions", data=tmp_path, params={"train": "many"})
    assert not any(tmp_path.iterdir())


def test_what_a_killed_drawing_left_is_swept(tmp_path: Path) -> None:
    root = locate("synthetic-lesions", data=tmp_path, params=SMALL)
    left = tmp_path / f".{root.name}.0123abcd.partial"
    left.mkdir()
    root.rename(tmp_path / "aside")
    assert locate("synthetic-lesions", data=tmp_path, params=SMALL) == root
    assert not left.exists()


class Plain(FedIsic):
    name = "plain"


class FedX(FedIsic):
    name = "fed-x"


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> str:
    """A data set that is known by name, prepared or not."""
    monkeypatch.setattr(DATASET_SOURCES, "_entries", {"plain": Plain, **DATASET_SOURCES._entries})
    return "plain"


def test_a_download_is_looked_for_by_name(
    plain: Path, known: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEAL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(FealError) as nowhere:
        locate(known)
    for part in (
        tmp_path / "data" / "plain",
        tmp_path / "cache" / "feal" / "plain",
        "feal data prepare plain --from DOWNLOAD`",
    ):
        assert str(part) in str(nowhere.value)
    assert locate(known, data=plain) == plain
    assert locate(known, data=plain.parent) == plain
    monkeypatch.setenv("FEAL_DATA", str(plain.parent))
    assert locate(known) == plain
    with pytest.raises(FealError, match=f"not prepared in {tmp_path / 'other'} and"):
        locate(known, data=tmp_path / "other")


def test_another_set_in_that_folder_is_not_taken(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DATASET_SOURCES, "_entries", {"fed-x": FedX})
    with pytest.raises(FealError, match="The data set fed-x is not prepared in"):
        locate("fed-x", data=plain)


def test_a_set_of_the_user_is_found_by_the_name_it_was_given(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEAL_DATA", str(plain.parent))
    assert is_dataset_name("plain")
    assert locate("plain") == plain
    assert not is_dataset_name("elsewhere")
    assert not is_dataset_name(str(plain))


def _square(root: Path, *, name: str, side: int) -> Path:
    with PreparedWriter(
        root, name=name, task="classification", classes=("a", "b"), channels=1, height=side, width=side
    ) as writer:
        images = np.zeros((2, 1, side, side), np.uint8)
        writer.site("alder").append(ids=["s", "t"], images=images, labels=np.array([0, 1]), splits=["train"] * 2)
    return root


def test_a_size_is_found_by_its_folder(tmp_path: Path, known: str) -> None:
    usual = _square(tmp_path / "plain", name="plain", side=32)
    small = _square(tmp_path / "plain-16", name="plain", side=16)
    _square(tmp_path / "plain-8", name="plain-8", side=8)
    assert locate(known, data=tmp_path) == usual
    assert locate(known, data=tmp_path, params={"size": 32}) == usual
    assert locate(known, data=tmp_path, params={"size": 16}) == small
    assert locate(known, data=small, params={"size": 16}) == small
    with pytest.raises(FealError, match=r"not prepared at 8 pixels in .*plain-8 and .*--from DOWNLOAD --size 8`"):
        locate(known, data=tmp_path, params={"size": 8})


def test_only_another_size_is_there(tmp_path: Path, known: str) -> None:
    small = _square(tmp_path / "plain-16", name="plain", side=16)
    with pytest.raises(FealError) as other:
        locate(known, data=tmp_path)
    assert "`feal data prepare plain --from DOWNLOAD`" in str(other.value)
    assert f"or use an existing one (dataset.size=16 in {small})" in str(other.value)
    (small / "manifest.json").write_text("{")
    with pytest.raises(FealError, match="or name its folder by data=FOLDER"):
        locate(known, data=tmp_path)


def test_a_set_of_the_user_needs_no_size_as_long_as_there_is_one(tmp_path: Path) -> None:
    small = _square(tmp_path / "mine-16", name="mine", side=16)
    assert is_dataset_name("mine", data=tmp_path)
    assert locate("mine", data=tmp_path) == small
    _square(tmp_path / "mine-24", name="mine", side=24)
    with pytest.raises(FealError, match=r"use an existing one \(dataset.size=16 in .*, dataset.size=24 in "):
        locate("mine", data=tmp_path)


def test_a_folder_of_another_size_is_not_taken_for_the_one_asked_for(plain: Path) -> None:
    with pytest.raises(FealError, match=r"of 3 x 2 pixels, not of dataset.size=9: leave dataset.size out"):
        locate(str(plain), params={"size": 9})


@pytest.fixture
def download(tmp_path: Path) -> Path:
    return fakes.isic_flamby(tmp_path / "download", images=4, centres=(1, 2))


def test_a_set_is_prepared_from_its_source_on_first_use(tmp_path: Path, download: Path) -> None:
    params, data = {"source": str(download), "size": 16}, tmp_path / "data"
    root = locate("fed-isic", params=params, data=data)
    assert root == data / "fed-isic-16"
    prepared = open_prepared(root)
    assert (prepared.name, prepared.height, prepared.width) == ("fed-isic", 20, 20)
    assert prepared.manifest.square == (16, 16)
    assert sum(len(prepared.site(name)) for name in prepared.sites) == 8
    stamp = (root / "manifest.json").stat().st_mtime_ns
    shutil.rmtree(download)
    assert (
        locate("fed-isic", params=params, data=data) == locate("fed-isic", params={"size": 16}, data=data) == root
    )
    assert (root / "manifest.json").stat().st_mtime_ns == stamp


def test_a_source_that_is_missing_or_has_no_class_is_one_sentence(tmp_path: Path, plain: Path) -> None:
    with pytest.raises(FealError, match=r"There is no folder .*nowhere: name the one that holds the download"):
        locate("fed-isic", params={"source": str(tmp_path / "nowhere")}, data=tmp_path / "data")
    with pytest.raises(
        FealError, match=r"dataset.source is for data sets with a class: use `feal data prepare folder`"
    ):
        locate("mine", params={"source": str(plain)}, data=tmp_path / "data")
    with pytest.raises(FealError, match="Dataset synthetic-lesions has no parameter 'source'"):
        locate("synthetic-lesions", params={"source": str(plain)}, data=tmp_path / "data")


def test_the_source_is_a_setting_with_an_absolute_path(
    tmp_path: Path, download: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    overrides = {"dataset": "fed-isic", "dataset.source": "download", "dataset.size": 16, "data": "data"}
    settings = load("demo", overrides)
    assert settings.dataset.params == {"size": 16, "split": None, "source": str(download)}
    monkeypatch.chdir("/")
    assert open_prepared(locate(settings.dataset, data=tmp_path / "data")).sites
