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
from feal.data.prepare.base import DecodedSample, FindingsError, ScanResult, SourceRecord
from feal.data.prepare.pipeline import PreparationResult, prepare_dataset
from feal.errors import FealError
from tests.data.prepare.conftest import Blobs, Given, picture, prepared


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _saved(pixels: np.ndarray) -> Callable[[Path], None]:
    return lambda path: Image.fromarray(pixels).save(path)


BAD = {
    "alder/00.png": (lambda path: path.write_bytes(b"no picture"), "cannot be read"),
    "alder/01.png": (_cut, "cannot be read .*truncated"),
    "alder/02.png": (_saved(np.full((40, 40, 4), 128, np.uint8)), "transparent"),
    "alder/masks/03.png": (_saved(np.zeros((20, 40), np.uint8)), "size 40 x 20 and its image has 40 x 40"),
    "alder/masks/04.png": (_saved(np.full((40, 40), 7, np.uint8)), r"outside the mapping \(7; known are 0, 200\)"),
    "alder/masks/05.png": (_saved(picture(1)), "mask in colours"),
    "birch/masks/90.png": (_saved(np.zeros((40, 40), np.uint8)), "has no image"),
    "birch/91.png": (_saved(picture(2)), "has no mask"),
}


def test_all_that_is_wrong_is_found_at_once(dataset: Path) -> None:
    for file, (spoil, _) in BAD.items():
        spoil(dataset / file)
    with pytest.raises(FindingsError, match="8 problems were found in .*alder/00.png") as refused:
        prepared(dataset)
    found = {finding.file: finding.problem for finding in refused.value.findings}
    assert sorted(found) == sorted(BAD)
    for file, (_, problem) in BAD.items():
        assert re.search(problem, found[file]), found[file]
    assert not (dataset.parent / "to").exists()
    assert not list(dataset.parent.glob(".to.*.partial"))
    work = dataset.parent / ".to.work"
    assert f"decoded samples are kept in {work})" in str(refused.value)
    assert list(work.glob("*.json"))


def test_bad_files_are_left_out_and_listed(dataset: Path) -> None:
    for file, (spoil, _) in BAD.items():
        spoil(dataset / file)
    outcome = prepared(dataset, skip_bad=True)
    data = open_prepared(outcome.root)
    assert len(data.site("alder")) == 4
    assert len(data.site("birch")) == 10
    assert sorted(finding["file"] for finding in data.manifest.source["left_out"]) == sorted(BAD)
    assert not prepared(dataset, skip_bad=True).fresh
    with pytest.raises(FindingsError, match="8 problems"):
        prepared(dataset)


def test_mended_files_are_read_again(dataset: Path) -> None:
    good = (dataset / "alder" / "00.png").read_bytes()
    _cut(dataset / "alder" / "00.png")
    with pytest.raises(FindingsError, match="1 problem was"):
        prepared(dataset)
    (dataset / "alder" / "00.png").write_bytes(good)
    assert len(open_prepared(prepared(dataset).root).site("alder")) == 10


def test_a_site_that_loses_everything(dataset: Path) -> None:
    for path in (dataset / "alder").glob("*.png"):
        _cut(path)
    with pytest.raises(FindingsError) as refused:
        prepared(dataset)
    assert ("alder", "is a site without any usable training sample") in [
        (finding.file, finding.problem) for finding in refused.value.findings
    ]
    assert open_prepared(prepared(dataset, skip_bad=True).root).sites == ["birch"]


def _given(dataset: Path, **changes: dict[str, object]) -> PreparationResult:
    return prepare_dataset(Given(**changes), dataset, dataset.parent / "to", threads=1)


def test_duplicate_and_impossible_ids(dataset: Path) -> None:
    with pytest.raises(FindingsError) as refused:
        _given(dataset, alder={"01": {"id": "00"}, "05": {"id": "a\nb"}})
    assert [finding.file for finding in refused.value.findings] == [
        f"alder/{name}.png" for name in ("00", "01", "05")
    ]


def test_a_shipped_split_is_kept_and_a_patient_on_both_sides_is_told(dataset: Path) -> None:
    sides = {f"{number:02}": {"split": "test" if number % 2 else "train"} for number in range(10)}
    sides["00"]["group"] = sides["01"]["group"] = sides["02"]["group"] = "ann"
    outcome = _given(dataset, alder=sides)
    site = open_prepared(outcome.root).site("alder")
    assert site.ids("test").tolist() == ["01", "03", "05", "07", "09"]
    assert site.patients()[:3].tolist() == ["ann"] * 3
    assert outcome.source["split"]["alder"] == "shipped"
    assert outcome.source["remarks"] == [
        "The split that site alder comes with has 1 patient on both sides (ann); it is kept."
    ]


def test_half_a_split_is_found(dataset: Path) -> None:
    with pytest.raises(FindingsError, match="9 problems were found"):
        _given(dataset, alder={"00": {"split": "train"}})


def test_leaks_across_sides_and_sites_are_listed(dataset: Path) -> None:
    sides = {f"{number:02}": {"split": "test" if number > 6 else "train"} for number in range(10)}
    shutil.copy(dataset / "alder" / "00.png", dataset / "alder" / "09.png")
    shutil.copy(dataset / "alder" / "01.png", dataset / "birch" / "05.png")
    nearly = np.asarray(Image.open(dataset / "alder" / "02.png")).astype(int) + 3
    Image.fromarray(nearly.clip(0, 255).astype(np.uint8)).save(dataset / "alder" / "08.png")
    outcome = _given(dataset, alder=sides)
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


def test_a_reader_that_breaks_its_word_is_found(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = np.zeros((3, 32, 32), np.uint8)
    wrong = {
        "(3, 32, 31)": DecodedSample(id="a", image=plain[..., 1:], label=None),
        "float16": DecodedSample(id="a", image=plain.astype(np.float16), label=None),
        "class 2": DecodedSample(id="a", image=plain, label=np.full((32, 32), 2, np.uint8)),
        "shape (3, 3)": DecodedSample(id="a", image=plain, label=np.zeros((3, 3), np.uint8)),
        "float32, not of whole numbers": DecodedSample(
            id="a", image=plain, label=np.full((32, 32), 0.5, np.float32)
        ),
        "the id ''": DecodedSample(id="", image=plain, label=np.zeros((32, 32), np.uint8)),
        "the id 7": DecodedSample(id=7, image=plain, label=np.zeros((32, 32), np.uint8)),
        "the id 'a\\n'": DecodedSample(id="a\n", image=plain, label=np.zeros((32, 32), np.uint8)),
    }
    samples = list(wrong.values())
    monkeypatch.setattr(Blobs, "read", lambda self, record, *, size: [samples[int(record.id) % len(samples)]])
    with pytest.raises(FindingsError) as refused:
        prepared(dataset)
    problems = [
        finding.problem for finding in refused.value.findings if re.fullmatch(r"alder/0\d\.png", finding.file)
    ]
    assert len(problems) == 10
    for part, problem in zip([*wrong, *list(wrong)[:2]], problems, strict=True):
        assert part in problem


def test_a_reader_that_stumbles_over_a_file_has_found_it(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, gone = Blobs.read, dataset / "alder" / "03.png"

    def opening(self: Blobs, record: SourceRecord, *, size: int) -> list[DecodedSample]:
        if record.image == gone:
            gone.unlink(missing_ok=True)
        record.image.open("rb").close()
        return list(read(self, record, size=size))

    monkeypatch.setattr(Blobs, "read", opening)
    with pytest.raises(FindingsError) as refused:
        prepared(dataset)
    assert [(one.file, one.problem) for one in refused.value.findings] == [
        ("alder/03.png", "cannot be read (No such file or directory)")
    ]


def test_a_folder_that_cannot_be_read_is_not_blamed_on_the_class(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scan(self: Blobs, folder: Path) -> ScanResult:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder / "alder"))

    monkeypatch.setattr(Blobs, "scan", scan)
    with pytest.raises(
        FealError, match=r"/alder cannot be used \(Permission denied\): fix that and repeat the command\.$"
    ):
        prepared(dataset)


def test_a_label_of_numpys_kind(dataset: Path) -> None:
    labels = {f"{number:02}": {"label": np.int64(number % 2)} for number in range(10)}
    assert _given(dataset, alder=labels).fresh
