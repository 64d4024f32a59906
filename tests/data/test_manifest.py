"""Manifests that cannot be read say why."""

import json
from pathlib import Path

import pytest

from feal.data.manifest import read_manifest
from feal.data.resize import Fitting
from feal.errors import FealError


def _edit(root: Path, **changes: object) -> None:
    path = root / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_reading_gives_back_what_was_written(plain: Path) -> None:
    manifest, digest = read_manifest(plain)
    assert manifest.encode() == (plain / "manifest.json").read_bytes()
    assert len(digest) == 64


def test_how_pictures_were_fitted_is_kept_and_old_manifests_do_not_tell(plain: Path) -> None:
    manifest, _ = read_manifest(plain)
    assert manifest.fitting is None
    assert b"fitting" not in manifest.encode()
    fitting = Fitting(shape="canvas", canvas=400)
    (plain / "manifest.json").write_bytes(manifest.model_copy(update={"fitting": fitting}).encode())
    assert json.loads((plain / "manifest.json").read_text())["fitting"] == {"shape": "canvas", "canvas": 400}
    assert read_manifest(plain)[0].fitting == fitting


def test_regions_are_the_classes_but_the_first_unless_named(plain: Path) -> None:
    manifest, _ = read_manifest(plain)
    classes = ("background", "rim", "cup")
    fundus = manifest.model_copy(update={"task": "segmentation", "classes": classes})
    assert fundus.metric_regions == {"rim": (1,), "cup": (2,)}
    assert fundus.model_copy(update={"regions": {"disc": (1, 2)}}).metric_regions == {"disc": (1, 2)}
    assert manifest.metric_regions == {}


def test_the_digest_follows_the_content(plain: Path) -> None:
    before = read_manifest(plain)[1]
    _edit(plain, source={"other": 1})
    assert read_manifest(plain)[1] != before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "format 2"),
        (
            {"format": 0},
            r"but this version reads format 1: remove .* and prepare the data set again",
        ),
        ({"classes": [f"c{n}" for n in range(256)], "task": "segmentation"}, "must hold at most 255 classes"),
        ({"task": "regression"}, "'task' should be 'classification' or 'segmentation'"),
        ({"classes": ["a"]}, "at least two classes"),
        ({"classes": ["a", "a"]}, "names a class twice"),
        ({"classes": ["a", 3]}, "'classes.1' should be a valid string"),
        ({"classes": ["a", " "]}, "'classes' must hold names"),
        ({"classes": None}, "'classes' should be a valid tuple"),
        ({"dtype": "object"}, "'dtype' should be 'uint8', 'uint16' or 'float16'"),
        ({"height": 0}, "'height' should be greater than or equal to 1"),
        ({"width": True}, "'width' should be a valid integer"),
        ({"channels": 1.5}, "'channels' should be a valid integer"),
        ({"sites": {}}, "'sites' should name at least one"),
        ({"sites": {"../up": {"samples": 4, "checksums": {}}}}, "site name '../up' is invalid"),
        (
            {"sites": {"alder": {"samples": 0, "checksums": {}}}},
            "'sites.alder.samples' should be greater than or equal to 1",
        ),
        ({"sites": {"alder": {"samples": 4, "checksums": {"/etc/passwd": "x"}}}}, "invalid entry"),
        ({"sites": {"alder": {"samples": 4, "checksums": {"../x": "x"}}}}, "invalid entry"),
        ({"sites": {"alder": {"samples": 4}}}, "'sites.alder.checksums' is missing"),
        ({"sites": {"alder": {"samples": 4, "checksums": {"x": 1}}}}, "'sites.alder.checksums.x' should be"),
        ({"regions": {"all": []}}, "'regions' (are for segmentation|must name classes)"),
        ({"regions": {"all": [1, 1]}, "task": "segmentation"}, "must name classes for 'all', each once"),
        ({"regions": {"all": [7]}, "task": "segmentation"}, "must name classes for 'all'"),
        ({"regions": 3}, "'regions' should be a valid dictionary"),
        ({"fitting": {"shape": "round"}}, "'fitting.shape' should be 'resize'"),
        ({"fitting": {"shape": "canvas"}}, "'fitting' `canvas` is required"),
        ({"fitting": {"clip": 0.99}}, "'fitting' clips images to uint16, but pixels are uint8"),
        ({"name": "a/b"}, "data set name 'a/b' is invalid"),
    ],
)
def test_an_impossible_field_is_named(plain: Path, changes: dict[str, object], message: str) -> None:
    _edit(plain, **changes)
    with pytest.raises(FealError, match=message):
        read_manifest(plain)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "\udcff"])
def test_something_else_than_a_manifest(plain: Path, content: str) -> None:
    (plain / "manifest.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(FealError, match="damaged"):
        read_manifest(plain)


def test_a_folder_without_manifest(tmp_path: Path) -> None:
    with pytest.raises(FealError, match=r"not a prepared data set.*feal list datasets"):
        read_manifest(tmp_path)
