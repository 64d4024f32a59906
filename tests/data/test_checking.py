"""Everything that is wrong with a prepared set, and its counts against numpy's."""

import json
from pathlib import Path

import numpy as np
import pytest

from feal.data.checking import class_counts, problems
from feal.data.prepared import PreparedSet, open_prepared, verify
from feal.data.truth import open_truth
from feal.errors import FealError
from tests.prepared import write_prepared


def test_a_whole_set_has_no_problem(plain: Path) -> None:
    assert list(problems(open_prepared(plain))) == []


def test_all_problems_are_named(tmp_path: Path) -> None:
    root = write_prepared(tmp_path / "set")
    truth = np.load(root / "birch" / "truth.npy", mmap_mode="r+")
    truth[3] = 9
    truth.flush()
    (root / "alder" / "images.npy").unlink()
    (root / "alder" / "samples" / "given.npy").write_bytes(b"x")
    found = [(path.relative_to(root).as_posix(), problem) for path, problem in problems(open_prepared(root))]
    assert [file for file, _ in found] == [
        "alder/images.npy",
        "alder/samples/given.npy",
        "alder",
        "birch/truth.npy",
        "birch",
    ]
    assert found[0][1] == "is missing"
    assert "differs from its checksum" in found[1][1]
    assert "Sample 'birch-0003' of site 'birch' has the class value 9" in found[4][1]


def test_a_file_without_a_checksum_is_named(plain: Path) -> None:
    manifest = plain / "manifest.json"
    content = json.loads(manifest.read_text())
    listed = content["sites"]["alder"]["checksums"]
    content["sites"]["alder"]["checksums"] = {}
    manifest.write_text(json.dumps(content))
    found = [path.relative_to(plain / "alder").as_posix() for path, _ in problems(open_prepared(plain))]
    assert found == sorted(listed)
    with pytest.raises(FealError, match="is not the one that was prepared"):
        verify(plain)


@pytest.mark.parametrize("kind", ["lesions", "polyps"])
def test_counts(kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("feal.data.truth._CHUNK", 5000)
    data: PreparedSet = request.getfixturevalue(kind)
    site = data.site("alder")
    counts = class_counts(site)
    for split in ("train", "test"):
        truths = open_truth(site).of(site.ids(split)).numpy().reshape(len(site.ids(split)), -1)
        expected = [int((truths == number).any(axis=1).sum()) for number in range(len(data.classes))]
        assert counts[split].tolist() == [*expected, 0]
    assert np.concatenate(list(counts.values())).dtype == np.int64
