"""From a download to a prepared set: whole, once, the same however it came about, and nothing else."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from feal.data import open_prepared, open_truth
from feal.data.preparation import chunks, decoding, workers
from feal.data.preparation.contract import Draft, Piece
from feal.data.preparation.findings import FindingsError
from feal.data.preparation.preparing import Outcome, prepare
from feal.data.prepared import verify
from feal.errors import FealError
from tests.data.preparation.conftest import Blobs, Given, picture
from tests.paths import PROJECT


def _prepared(download: Path, **options: object) -> Outcome:
    return prepare(Blobs(), download, download.parent / "to", processes=1, **options)


def _bytes(root: Path) -> dict[str, bytes]:
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    files.pop("prepared-from.json")  # holds the times of the files
    return files


def test_a_download_becomes_a_set(download: Path) -> None:
    told: list[tuple[str, int, int]] = []
    outcome = _prepared(download, progress=lambda *step: told.append(step))
    assert outcome.fresh
    data = open_prepared(outcome.root)
    verify(outcome.root)
    assert (data.name, data.task, data.height, data.regions) == ("blobs", "segmentation", 32, {"blob": (1,)})
    for place, name in enumerate(("alder", "birch")):
        site = data.site(name)
        assert (len(site.ids("train")), len(site.ids("test"))) == (8, 2)
        assert site.sources().tolist() == [f"{name}/{number:02}.png" for number in range(10)]
        assert site.patients().tolist() == site.ids().tolist()
        assert not site.given().any()
        original = decoding.letterboxed(picture(100 * place + 3), 32, nearest=False)
        assert (site.images(["03"])[0].numpy() * 255).round() == pytest.approx(original.transpose(2, 0, 1))
        mask = np.where(picture(100 * place + 3)[..., 0] > 127, 1, 0).astype(np.uint8)
        assert (open_truth(site).of(["03"])[0].numpy() == decoding.letterboxed(mask, 32, nearest=True)).all()
    source = data.manifest.source
    assert source["absent"] == ["elm"]
    assert source["remarks"] == ["Drawn by hand."]
    assert source["split"] == {"alder": "8:2 by likeness", "birch": "8:2 by likeness"}
    assert source["leaks_found"] == 0
    assert told[0] == ("decoding", 0, 20)
    assert ("decoding", 20, 20) in told
    assert told[-1][0] == "writing"
    assert sorted(path.name for path in download.parent.iterdir()) == ["download", "to"]


def test_a_second_time_nothing_is_done(download: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _prepared(download)
    monkeypatch.setattr(Blobs, "read", lambda *_, **__: pytest.fail("decoded again"))
    after = _prepared(download)
    assert (before.fresh, after.fresh) == (True, False)
    assert after.source == json.loads((after.root / "manifest.json").read_text())["source"]


def test_touched_files_that_hold_the_same_give_the_same_set(download: Path) -> None:
    before = _bytes(_prepared(download).root)
    os.utime(download / "alder" / "00.png")
    again = _prepared(download)
    assert again.fresh
    assert _bytes(again.root) == before
    assert not _prepared(download).fresh


def test_another_download_or_size_does_not_replace_a_set(download: Path) -> None:
    root = _prepared(download).root
    before = _bytes(root)
    with pytest.raises(FealError, match="another prepared data set already"):
        _prepared(download, size=48)
    (download / "alder" / "00.png").unlink()
    (download / "alder" / "masks" / "00.png").unlink()
    with pytest.raises(FealError, match="another prepared data set already"):
        _prepared(download)
    assert _bytes(root) == before


@pytest.mark.parametrize("skip_bad", [False, True])
def test_a_new_finding_is_seen_in_a_folder_that_was_prepared(download: Path, skip_bad: bool) -> None:
    _prepared(download)
    shutil.copy(download / "alder" / "masks" / "00.png", download / "alder" / "masks" / "90.png")
    with pytest.raises(FealError, match="another prepared data set already: remove it"):
        _prepared(download, skip_bad=skip_bad)


def test_a_mended_folder_is_not_refused_for_what_it_held(download: Path) -> None:
    orphan = download / "alder" / "masks" / "90.png"
    shutil.copy(download / "alder" / "masks" / "00.png", orphan)
    root = _prepared(download, skip_bad=True).root
    orphan.unlink()
    with pytest.raises(FealError, match="another prepared data set already: remove it"):
        _prepared(download)
    shutil.rmtree(root)
    assert _prepared(download).source["left_out"] == []


def test_a_site_that_came_or_went_is_another_set(download: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _prepared(download)
    scan = Blobs.scan
    monkeypatch.setattr(Blobs, "scan", lambda self, folder: replace(scan(self, folder), absent=["elm", "oak"]))
    with pytest.raises(FealError, match="another prepared data set already"):
        _prepared(download)


def test_a_damaged_set_is_named_before_anything_is_decoded(
    download: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _prepared(download).root
    good = _bytes(root)
    images = root / "alder" / "images.npy"
    images.write_bytes(images.read_bytes()[:-1] + bytes([images.read_bytes()[-1] ^ 1]))
    with monkeypatch.context() as patch:
        patch.setattr(Blobs, "read", lambda *_, **__: pytest.fail("decoded"))
        for _ in range(2):
            with pytest.raises(FealError, match=r"alder/images.npy is not .*remove the set's folder and prepare"):
                _prepared(download)
            (root / "prepared-from.json").unlink(missing_ok=True)
    shutil.rmtree(root)
    assert _bytes(_prepared(download).root) == good


def test_a_file_that_changes_while_others_are_decoded(download: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, late = Blobs.read, download / "alder" / "00.png"

    def changing(self: Blobs, draft: Draft, *, size: int) -> list[Piece]:
        pieces = list(read(self, draft, size=size))
        if draft.image == late:
            _saved(picture(77))(late)
        return pieces

    with monkeypatch.context() as patch:
        patch.setattr(Blobs, "read", changing)
        assert _prepared(download).fresh
    with pytest.raises(FealError, match="another prepared data set already"):
        _prepared(download)


def test_only_half_written_sets_of_this_very_place_are_swept(download: Path) -> None:
    own = ".t[o]." + "0a" * 16 + ".partial"
    others = [".t[o].v2.0123.partial", f".t[o].v2.{'0a' * 16}.partial", f".to.{'0a' * 16}.partial"]
    for name in (own, *others):
        (download.parent / name).mkdir()
    prepare(Blobs(), download, download.parent / "t[o]", processes=1)
    assert sorted(path.name for path in download.parent.iterdir()) == sorted([*others, "download", "t[o]"])


def test_a_workplace_without_a_chunk_does_not_stay(download: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Blobs, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _prepared(download)
    assert sorted(path.name for path in download.parent.iterdir()) == ["download"]


def test_what_was_decoded_for_a_place_of_another_set_does_not_stay(download: Path) -> None:
    root = _prepared(download).root
    file = download / "alder" / "00.png"
    bitmap = Image.fromarray(picture(78))
    for path in (file, download / "other.png"):
        bitmap.save(path, format="BMP")
        bitmap = Image.fromarray(picture(79))
    shutil.rmtree(root)
    _prepared(download)
    (download / "other.png").replace(file)  # of the same name and size
    with pytest.raises(FealError, match="another prepared data set already"):
        _prepared(download)
    assert sorted(path.name for path in download.parent.iterdir()) == ["download", "to"]


def test_a_full_disk_while_decoding_names_the_place(download: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(chunks.ArrayWriter, "append", full)
    with pytest.raises(FealError, match=r"no space left to write .*/\.to\.work/000000-"):
        _prepared(download)


@pytest.mark.slow
def test_the_number_of_processes_changes_no_byte(download: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_DRAFTS", 3)
    monkeypatch.setattr(workers, "_WORTH", 0.0)
    one = prepare(Blobs(), download, download.parent / "one", processes=1)
    two = prepare(Blobs(), download, download.parent / "two", processes=2)
    assert _bytes(one.root) == _bytes(two.root)


def test_a_second_try_decodes_only_what_is_missing(download: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_DRAFTS", 4)
    whole = _bytes(prepare(Blobs(), download, download.parent / "whole", processes=1).root)
    read, seen = Blobs.read, []

    def interrupted(self: Blobs, draft: Draft, *, size: int) -> list[Piece]:
        seen.append(draft.id)
        if len(seen) == 10:
            raise KeyboardInterrupt
        return read(self, draft, size=size)

    monkeypatch.setattr(Blobs, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _prepared(download)
    assert not (download.parent / "to").exists()
    assert _bytes(_prepared(download).root) == whole
    assert len(seen) == 10 + 12
    assert not list(download.parent.glob(".to*"))


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from feal.data.preparation import chunks, preparing
    from tests.data.preparation.conftest import Blobs

    chunks._DRAFTS = 4
    if sys.argv[3] == "decoding":
        read = Blobs.read
        def dying(self, draft, *, size):
            if draft.site == "birch":
                os.kill(os.getpid(), signal.SIGKILL)
            return read(self, draft, size=size)
        Blobs.read = dying
    else:
        def dying(self):
            os.kill(os.getpid(), signal.SIGKILL)
        preparing.PreparedWriter._finish = dying
    preparing.prepare(Blobs(), Path(sys.argv[1]), Path(sys.argv[2]), processes=1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["decoding", "writing"])
def test_killed_and_resumed_gives_the_same_bytes(
    download: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "_DRAFTS", 4)
    to = download.parent / "to"
    words = [sys.executable, "-c", textwrap.dedent(KILLED), download, to, moment]
    assert subprocess.run(words, cwd=PROJECT, check=False).returncode == -signal.SIGKILL
    assert not to.exists()
    assert list(download.parent.glob(".to.work/*.json"))
    resumed = _bytes(_prepared(download).root)
    assert not list(download.parent.glob(".to*"))
    assert resumed == _bytes(prepare(Blobs(), download, download.parent / "whole", processes=1).root)


class Dying(Blobs):
    """Takes its process with it at one picture."""

    def read(self, draft: Draft, *, size: int) -> list[Piece]:
        if (draft.site, draft.id) == ("alder", "07"):
            os._exit(9)
        return list(super().read(draft, size=size))


class Waiting(Blobs):
    """Says that it works, and works for ever."""

    def read(self, draft: Draft, *, size: int) -> list[Piece]:
        if (draft.site, int(draft.id)) < ("alder", 4):
            return list(super().read(draft, size=size))
        draft.image.with_suffix(f".{os.getpid()}").touch()
        time.sleep(600)
        return []


@pytest.mark.slow
def test_a_process_that_dies_is_a_sentence(download: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_DRAFTS", 4)
    monkeypatch.setattr(workers, "_WORTH", 0.0)
    with pytest.raises(FealError, match="A process that decodes pictures died, .*fewer --processes"):
        prepare(Dying(), download, download.parent / "to", processes=2)
    assert not (download.parent / "to").exists()


@pytest.mark.slow
def test_processes_end_with_the_one_that_started_them(download: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        from feal.data.preparation import chunks, preparing, workers
        from tests.data.preparation.test_preparing import Waiting
        chunks._DRAFTS = 4
        workers._WORTH = 0.0
        preparing.prepare(Waiting(), Path(sys.argv[1]), Path(sys.argv[1]).parent / "to", processes=2)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), download], cwd=PROJECT) as parent:
        try:
            children = _until(lambda: [int(path.suffix[1:]) for path in download.rglob("*.[0-9]*")], count=2)
        finally:
            parent.kill()
    _until(lambda: [child for child in children if not _lives(child)], count=2)


def _until(found: Callable[[], list[int]], *, count: int) -> list[int]:
    end = time.monotonic() + 60
    while len(found()) < count:
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)
    return found()


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_two_at_once_are_refused(download: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Blobs.read

    def nested(self: Blobs, draft: Draft, *, size: int) -> list[Piece]:
        monkeypatch.setattr(Blobs, "read", read)
        with pytest.raises(FealError, match="is working on .*work: wait for it"):
            _prepared(download)
        return list(read(self, draft, size=size))

    monkeypatch.setattr(Blobs, "read", nested)
    assert _prepared(download).fresh


def test_a_taken_place_and_no_folder(download: Path) -> None:
    (download.parent / "to").mkdir()
    (download.parent / "to" / "mine.txt").touch()
    with pytest.raises(FealError, match="is no prepared data set: choose another folder"):
        _prepared(download)
    with pytest.raises(FealError, match="There is no folder"):
        _prepared(download.parent / "nowhere")
    with pytest.raises(FealError, match="lies in the download .*: choose a folder outside"):
        prepare(Blobs(), download, download / "to")


def test_an_impossible_set_is_refused_before_anything_is_decoded(
    download: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Blobs, "read", lambda *_, **__: pytest.fail("decoded"))
    monkeypatch.setattr(Blobs, "classes", ("blob", "blob"))
    with pytest.raises(FealError, match="names a class twice"):
        _prepared(download)
    (download / "alder").rename(download / "al der")
    with pytest.raises(FealError, match="The site name 'al der' is not possible"):
        _prepared(download)


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
        _prepared(download)
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
    outcome = _prepared(download, skip_bad=True)
    data = open_prepared(outcome.root)
    assert len(data.site("alder")) == 4
    assert len(data.site("birch")) == 10
    assert sorted(finding["file"] for finding in data.manifest.source["left_out"]) == sorted(BAD)
    assert not _prepared(download, skip_bad=True).fresh
    with pytest.raises(FindingsError, match="8 problems"):
        _prepared(download)


def test_mended_files_are_read_again(download: Path) -> None:
    good = (download / "alder" / "00.png").read_bytes()
    _cut(download / "alder" / "00.png")
    with pytest.raises(FindingsError, match="1 problem was"):
        _prepared(download)
    (download / "alder" / "00.png").write_bytes(good)
    assert len(open_prepared(_prepared(download).root).site("alder")) == 10


def test_a_site_that_loses_everything(download: Path) -> None:
    for path in (download / "alder").glob("*.png"):
        _cut(path)
    with pytest.raises(FindingsError) as refused:
        _prepared(download)
    assert ("alder", "is a site without any usable training sample") in [
        (finding.file, finding.problem) for finding in refused.value.findings
    ]
    assert open_prepared(_prepared(download, skip_bad=True).root).sites == ["birch"]


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
        _prepared(download)
    problems = [
        finding.problem for finding in refused.value.findings if re.fullmatch(r"alder/0\d\.png", finding.file)
    ]
    assert len(problems) == 10
    for part, problem in zip([*wrong, *list(wrong)[:2]], problems, strict=True):
        assert part in problem
