"""All that is wrong with a download is found at once, and nothing of it gets in unseen."""

import errno
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from feal.data import open_prepared
from feal.data.preparation.contract import Draft, Piece, Scan
from feal.data.preparation.findings import FindingsError
from feal.data.preparation.preparing import Outcome, prepare
from feal.errors import FealError
from tests.data.preparation.conftest import Blobs, Given, picture, prepared


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _saved(pixels: np.ndarray) -> Callable[[Path], None]:
    return lambda path: Image.fromarray(pixels).save(path)


BAD = {
    "alder/00.png": (lambda path: path.write_bytes(b"no picture"), "cannot be read"),
    "alder/01.png": (_cut, "cannot be read .*truncated"),
    "alder/02.png": (_saved(np.full((40, 40, 4), 128, np.uint8)), "see-through"),
    "alder/masks/03.png": (_saved(np.zeros((20, 40), np.uint8)), "size 40 x 20 and its image has 40 x 40"),
    "alder/masks/04.png": (_saved(np.full((40, 40), 7, np.uint8)), r"outside the mapping \(7; known are 0, 200\)"),
    "alder/masks/05.png": (_saved(picture(1)), "mask in colours"),
    "birch/masks/90.png": (_saved(np.zeros((40, 40), np.uint8)), "has no image"),
    "birch/91.png": (_saved(picture(2)), "has no mask"),
}


def test_all_that_is_wrong_is_found_at_once(download: Path) -> None:
    for file, (spoil, _) in BAD.items():
        spoil(download / file)
    with pytest.raises(FindingsError, match="8 problems were found in .*alder/00.png") as refused:
        prepared(download)
    found = {finding.file: finding.problem for finding in refused.value.findings}
    assert sorted(found) == sorted(BAD)
    for file, (_, problem) in BAD.items():
        assert re.search(problem, found[file]), found[file]
    assert not (download.parent / "to").exists()
    assert not list(download.parent.glob(".to.*.partial"))
    work = download.parent / ".to.work"
    assert f"what is decoded is kept in {work})" in str(refused.value)
    assert list(work.glob("*.json"))


def test_bad_files_are_left_out_and_listed(download: Path) -> None:
    for file, (spoil, _) in BAD.items():
        spoil(download / file)
    outcome = prepared(download, skip_bad=True)
    data = open_prepared(outcome.root)
    assert len(data.site("alder")) == 4
    assert len(data.site("birch")) == 10
    assert sorted(finding["file"] for finding in data.manifest.source["left_out"]) == sorted(BAD)
    assert not prepared(download, skip_bad=True).fresh
    with pytest.raises(FindingsError, match="8 problems"):
        prepared(download)


def test_mended_files_are_read_again(download: Path) -> None:
    good = (download / "alder" / "00.png").read_bytes()
    _cut(download / "alder" / "00.png")
    with pytest.raises(FindingsError, match="1 problem was"):
        prepared(download)
    (download / "alder" / "00.png").write_bytes(good)
    assert len(open_prepared(prepared(download).root).site("alder")) == 10


def test_a_site_that_loses_everything(download: Path) -> None:
    for path in (download / "alder").glob("*.png"):
        _cut(path)
    with pytest.raises(FindingsError) as refused:
        prepared(download)
    assert ("alder", "is a site without any usable training sample") in [
        (finding.file, finding.problem) for finding in refused.value.findings
    ]
    assert open_prepared(prepared(download, skip_bad=True).root).sites == ["birch"]


def _given(download: Path, **changes: dict[str, object]) -> Outcome:
    return prepare(Given(**changes), download, download.parent / "to", processes=1)


def test_duplicate_and_impossible_ids(download: Path) -> None:
    with pytest.raises(FindingsError) as refused:
        _given(download, alder={"01": {"id": "00"}, "05": {"id": "a\nb"}})
    assert [finding.file for finding in refused.value.findings] == [
        f"alder/{name}.png" for name in ("00", "01", "05")
    ]


def test_a_shipped_split_is_kept_and_a_patient_on_both_sides_is_told(download: Path) -> None:
    sides = {f"{number:02}": {"split": "test" if number % 2 else "train"} for number in range(10)}
    sides["00"]["group"] = sides["01"]["group"] = sides["02"]["group"] = "ann"
    outcome = _given(download, alder=sides)
    site = open_prepared(outcome.root).site("alder")
    assert site.ids("test").tolist() == ["01", "03", "05", "07", "09"]
    assert site.patients()[:3].tolist() == ["ann"] * 3
    assert outcome.source["split"]["alder"] == "shipped"
    assert outcome.source["remarks"] == [
        "The split that site alder comes with has 1 patient on both sides (ann); it is kept."
    ]


def test_half_a_split_is_found(download: Path) -> None:
    with pytest.raises(FindingsError, match="9 problems were found"):
        _given(download, alder={"00": {"split": "train"}})


def test_leaks_across_sides_and_sites_are_listed(download: Path) -> None:
    sides = {f"{number:02}": {"split": "test" if number > 6 else "train"} for number in range(10)}
    shutil.copy(download / "alder" / "00.png", download / "alder" / "09.png")
    shutil.copy(download / "alder" / "01.png", download / "birch" / "05.png")
    nearly = np.asarray(Image.open(download / "alder" / "02.png")).astype(int) + 3
    Image.fromarray(nearly.clip(0, 255).astype(np.uint8)).save(download / "alder" / "08.png")
    outcome = _given(download, alder=sides)
    leaks = outcome.source["leaks"]
    assert outcome.source["leaks_found"] == 3
    assert [leak["kind"] for leak in leaks] == ["same", "same", "near"]
    assert leaks[0] == {
        "kind": "same",
        "pictures": 2,
        "samples": ["00", "09"],
        "sites": ["alder"] * 2,
        "splits": ["train", "test"],
    }
    assert (leaks[1]["samples"], leaks[1]["sites"]) == (["01", "05"], ["alder", "birch"])
    assert (leaks[2]["samples"], leaks[2]["splits"]) == (["02", "08"], ["train", "test"])
    assert outcome.source["repeats"] == {"alder": 1}


def test_a_reader_that_breaks_its_word_is_found(download: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = np.zeros((3, 32, 32), np.uint8)
    wrong = {
        "(3, 32, 31)": Piece(id="a", image=plain[..., 1:], truth=None),
        "float16": Piece(id="a", image=plain.astype(np.float16), truth=None),
        "class 2": Piece(id="a", image=plain, truth=np.full((32, 32), 2, np.uint8)),
        "shape (3, 3)": Piece(id="a", image=plain, truth=np.zeros((3, 3), np.uint8)),
        "float32, not of whole numbers": Piece(id="a", image=plain, truth=np.full((32, 32), 0.5, np.float32)),
        "the id ''": Piece(id="", image=plain, truth=np.zeros((32, 32), np.uint8)),
        "the id 7": Piece(id=7, image=plain, truth=np.zeros((32, 32), np.uint8)),
        "the id 'a\\n'": Piece(id="a\n", image=plain, truth=np.zeros((32, 32), np.uint8)),
    }
    pieces = list(wrong.values())
    monkeypatch.setattr(Blobs, "read", lambda self, draft, *, size: [pieces[int(draft.id) % len(pieces)]])
    with pytest.raises(FindingsError) as refused:
        prepared(download)
    problems = [
        finding.problem for finding in refused.value.findings if re.fullmatch(r"alder/0\d\.png", finding.file)
    ]
    assert len(problems) == 10
    for part, problem in zip([*wrong, *list(wrong)[:2]], problems, strict=True):
        assert part in problem


def test_a_reader_that_stumbles_over_a_file_has_found_it(download: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, gone = Blobs.read, download / "alder" / "03.png"

    def opening(self: Blobs, draft: Draft, *, size: int) -> list[Piece]:
        if draft.image == gone:
            gone.unlink(missing_ok=True)
        draft.image.open("rb").close()
        return list(read(self, draft, size=size))

    monkeypatch.setattr(Blobs, "read", opening)
    with pytest.raises(FindingsError) as refused:
        prepared(download)
    assert [(one.file, one.problem) for one in refused.value.findings] == [
        ("alder/03.png", "cannot be read (No such file or directory)")
    ]


def test_a_folder_that_cannot_be_read_is_not_blamed_on_the_class(
    download: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scan(self: Blobs, folder: Path) -> Scan:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder / "alder"))

    monkeypatch.setattr(Blobs, "scan", scan)
    with pytest.raises(FealError, match=r"/alder cannot be used \(Permission denied\): mend that and repeat\.$"):
        prepared(download)


def test_a_label_of_numpys_kind(download: Path) -> None:
    labels = {f"{number:02}": {"label": np.int64(number % 2)} for number in range(10)}
    assert _given(download, alder=labels).fresh
