"""Data sets by name: drawn once, found again, told apart by their parameters."""

from pathlib import Path

import pytest

from feal.data.datasets import DATASETS, is_named, locate
from feal.data.preparation.registry import DOWNLOADS
from feal.data.prepared import open_prepared
from feal.errors import FealError

SMALL = {"sites": 1, "train": 4, "test": 2}


def test_names_and_summaries() -> None:
    assert DATASETS.names() == ["synthetic-lesions", "synthetic-polyps"]
    assert "classification" in DATASETS.summary("synthetic-lesions")
    assert "segmentation" in DATASETS.summary("synthetic-polyps")


def test_a_set_is_drawn_once(tmp_path: Path) -> None:
    root = locate("synthetic-lesions", data=tmp_path, synthetic=SMALL)
    stamp = root.stat().st_ino
    assert root.parent == tmp_path
    assert len(root.name) == len("synthetic-lesions-") + 12
    assert locate("synthetic-lesions", data=tmp_path, synthetic=SMALL) == root
    assert root.stat().st_ino == stamp


@pytest.mark.parametrize("change", [{"seed": 1}, {"train": 5}, {"size": 33}, {"classes": 5}, {"given": 0.5}])
def test_every_parameter_tells_sets_apart(tmp_path: Path, change: dict[str, float]) -> None:
    first = locate("synthetic-lesions", data=tmp_path, synthetic=SMALL)
    assert locate("synthetic-lesions", data=tmp_path, synthetic=SMALL | change) != first


def test_another_version_of_the_drawing_code_draws_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = locate("synthetic-polyps", data=tmp_path, synthetic=SMALL)
    monkeypatch.setattr("feal.data.synthetic.polyps.SyntheticPolyps.version", 1000)
    assert locate("synthetic-polyps", data=tmp_path, synthetic=SMALL) != first


def test_where_sets_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEAL_DATA", str(tmp_path / "data"))
    assert locate("synthetic-lesions", synthetic=SMALL).parent == tmp_path / "data"
    monkeypatch.delenv("FEAL_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert locate("synthetic-lesions", synthetic=SMALL).parent == tmp_path / "cache" / "feal"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert locate("synthetic-lesions", synthetic=SMALL).parent == tmp_path / "home" / ".cache" / "feal"


def test_a_prepared_folder_stands_for_itself(plain: Path) -> None:
    assert open_prepared(locate(str(plain))).name == "plain"


def test_an_unknown_name_and_an_impossible_value(tmp_path: Path) -> None:
    with pytest.raises(FealError, match="did you mean 'synthetic-lesions'"):
        locate("synthetic-lesion", data=tmp_path)
    with pytest.raises(FealError, match="sites=13 of data set 'synthetic-lesions' is not possible"):
        locate("synthetic-lesions", data=tmp_path, synthetic={"sites": 13})
    with pytest.raises(FealError, match="train='many'"):
        locate("synthetic-lesions", data=tmp_path, synthetic={"train": "many"})
    assert not any(tmp_path.iterdir())


def test_what_a_killed_drawing_left_is_swept(tmp_path: Path) -> None:
    root = locate("synthetic-lesions", data=tmp_path, synthetic=SMALL)
    left = tmp_path / f".{root.name}.0123abcd.partial"
    left.mkdir()
    root.rename(tmp_path / "aside")
    assert locate("synthetic-lesions", data=tmp_path, synthetic=SMALL) == root
    assert not left.exists()


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> str:
    """A data set that is known by name, prepared or not."""
    monkeypatch.setattr(DOWNLOADS, "_entries", {"plain": object, **DOWNLOADS._entries})
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
        "feal data prepare plain --from",
        "with the --size that its preset names",
    ):
        assert str(part) in str(nowhere.value)
    assert locate(known, data=plain) == plain
    assert locate(known, data=plain.parent) == plain
    monkeypatch.setenv("FEAL_DATA", str(plain.parent))
    assert locate(known) == plain
    with pytest.raises(FealError, match=f"not prepared in {tmp_path / 'other'} and"):
        locate(known, data=tmp_path / "other")


def test_another_set_in_that_folder_is_not_taken(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DOWNLOADS, "_entries", {"fed-x": object})
    with pytest.raises(FealError, match="The data set fed-x is not prepared in"):
        locate("fed-x", data=plain)


def test_a_set_of_ones_own_is_found_by_the_name_it_was_given(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEAL_DATA", str(plain.parent))
    assert is_named("plain")
    assert locate("plain") == plain
    assert not is_named("elsewhere")
    assert not is_named(str(plain))
