"""From a download to a prepared set: whole, once, the same however it came about, and nothing else."""

import errno
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from feal.data import open_labels, open_prepared
from feal.data.prepare import store
from feal.data.prepare.base import DecodedSample, FindingsError, SourceRecord
from feal.data.prepare.pipeline import prepare_dataset
from feal.data.verify import verify
from feal.errors import FealError
from tests.data.prepare.conftest import LETTERBOX, Blobs, content, picture, prepared


def test_a_download_becomes_a_set(dataset: Path) -> None:
    told: list[tuple[str, int, int]] = []
    outcome = prepared(dataset, progress=lambda *step: told.append(step))
    assert outcome.fresh
    data = open_prepared(outcome.root)
    verify(outcome.root)
    assert (data.name, data.task, data.height, data.regions) == ("blobs", "segmentation", 32, {"blob": (1,)})
    for place, name in enumerate(("alder", "birch")):
        site = data.site(name)
        assert (len(site.ids("train")), len(site.ids("test"))) == (8, 2)
        assert site.sources().tolist() == [f"{name}/{number:02}.png" for number in range(10)]
        assert site.patients().tolist() == site.ids().tolist()
        assert not site.is_initial().any()
        original = LETTERBOX.fit_image(picture(100 * place + 3), 32, 32)
        assert (site.images(["03"])[0].numpy() * 255).round() == pytest.approx(original.transpose(2, 0, 1))
        mask = np.where(picture(100 * place + 3)[..., 0] > 127, 1, 0).astype(np.uint8)
        assert (open_labels(site).of(["03"])[0].numpy() == LETTERBOX.fit_mask(mask, 32, 32)).all()
    source = data.manifest.source
    assert source["absent"] == ["elm"]
    assert source["remarks"] == ["Drawn by hand."]
    assert source["split"] == {"alder": "8:2 by likeness", "birch": "8:2 by likeness"}
    assert source["leaks_found"] == 0
    assert told[0] == ("decoding", 0, 20)
    assert ("decoding", 20, 20) in told
    assert told[-1][0] == "writing"
    assert sorted(path.name for path in dataset.parent.iterdir()) == ["download", "to"]


def test_a_second_time_nothing_is_done(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = prepared(dataset)
    monkeypatch.setattr(Blobs, "read", lambda *_, **__: pytest.fail("decoded again"))
    after = prepared(dataset)
    assert (before.fresh, after.fresh) == (True, False)
    assert after.source == json.loads((after.root / "manifest.json").read_text())["source"]


def test_touched_files_that_hold_the_same_give_the_same_set(dataset: Path) -> None:
    before = content(prepared(dataset).root)
    os.utime(dataset / "alder" / "00.png")
    again = prepared(dataset)
    assert again.fresh
    assert content(again.root) == before
    assert not prepared(dataset).fresh


def test_another_download_or_size_does_not_replace_a_set(dataset: Path) -> None:
    root = prepared(dataset).root
    before = content(root)
    with pytest.raises(FealError, match="already holds another prepared data set"):
        prepared(dataset, size=48)
    (dataset / "alder" / "00.png").unlink()
    (dataset / "alder" / "masks" / "00.png").unlink()
    with pytest.raises(FealError, match="already holds another prepared data set"):
        prepared(dataset)
    assert content(root) == before


@pytest.mark.parametrize("skip_bad", [False, True])
def test_a_new_finding_is_seen_in_a_folder_that_was_prepared(dataset: Path, skip_bad: bool) -> None:
    prepared(dataset)
    shutil.copy(dataset / "alder" / "masks" / "00.png", dataset / "alder" / "masks" / "90.png")
    with pytest.raises(FealError, match="already holds another prepared data set: remove it"):
        prepared(dataset, skip_bad=skip_bad)


def test_a_mended_folder_is_not_refused_for_what_it_held(dataset: Path) -> None:
    orphan = dataset / "alder" / "masks" / "90.png"
    shutil.copy(dataset / "alder" / "masks" / "00.png", orphan)
    root = prepared(dataset, skip_bad=True).root
    orphan.unlink()
    with pytest.raises(FealError, match="already holds another prepared data set: remove it"):
        prepared(dataset)
    shutil.rmtree(root)
    assert prepared(dataset).source["left_out"] == []


def test_a_site_that_came_or_went_is_another_set(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared(dataset)
    scan = Blobs.scan
    monkeypatch.setattr(Blobs, "scan", lambda self, folder: replace(scan(self, folder), absent=["elm", "oak"]))
    with pytest.raises(FealError, match="already holds another prepared data set"):
        prepared(dataset)


def test_a_damaged_set_is_named_before_anything_is_decoded(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = prepared(dataset).root
    good = content(root)
    images = root / "alder" / "images.npy"
    images.write_bytes(images.read_bytes()[:-1] + bytes([images.read_bytes()[-1] ^ 1]))
    with monkeypatch.context() as patch:
        patch.setattr(Blobs, "read", lambda *_, **__: pytest.fail("decoded"))
        for _ in range(2):
            with pytest.raises(FealError, match=r"alder/images.npy is not .*remove the set's folder and prepare"):
                prepared(dataset)
            (root / "prepared-from.json").unlink(missing_ok=True)
    shutil.rmtree(root)
    assert content(prepared(dataset).root) == good


def test_a_file_that_changes_while_others_are_decoded(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, late = Blobs.read, dataset / "alder" / "00.png"

    def changing(self: Blobs, record: SourceRecord, *, size: int) -> list[DecodedSample]:
        samples = list(read(self, record, size=size))
        if record.image == late:
            Image.fromarray(picture(77)).save(late)
        return samples

    with monkeypatch.context() as patch:
        patch.setattr(Blobs, "read", changing)
        assert prepared(dataset).fresh
    with pytest.raises(FealError, match="already holds another prepared data set"):
        prepared(dataset)


def test_only_half_written_sets_of_this_very_place_are_swept(dataset: Path) -> None:
    own = ".t[o]." + "0a" * 16 + ".partial"
    others = [".t[o].v2.0123.partial", f".t[o].v2.{'0a' * 16}.partial", f".to.{'0a' * 16}.partial"]
    for name in (own, *others):
        (dataset.parent / name).mkdir()
    prepare_dataset(Blobs(), dataset, dataset.parent / "t[o]", threads=1)
    assert sorted(path.name for path in dataset.parent.iterdir()) == sorted([*others, "download", "t[o]"])


def test_a_workplace_without_a_chunk_does_not_stay(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Blobs, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepared(dataset)
    assert sorted(path.name for path in dataset.parent.iterdir()) == ["download"]


def test_what_was_decoded_for_a_place_of_another_set_does_not_stay(dataset: Path) -> None:
    root = prepared(dataset).root
    file = dataset / "alder" / "00.png"
    bitmap = Image.fromarray(picture(78))
    for path in (file, dataset / "other.png"):
        bitmap.save(path, format="BMP")
        bitmap = Image.fromarray(picture(79))
    shutil.rmtree(root)
    prepared(dataset)
    (dataset / "other.png").replace(file)  # of the same name and size
    with pytest.raises(FealError, match="already holds another prepared data set"):
        prepared(dataset)
    assert sorted(path.name for path in dataset.parent.iterdir()) == ["download", "to"]


def test_a_full_disk_while_decoding_names_the_place(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store.ArrayWriter, "append", full)
    with pytest.raises(FealError, match=r"No space left to write .*/\.to\.work/alder"):
        prepared(dataset)


def test_two_at_once_are_refused(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Blobs.read

    def nested(self: Blobs, record: SourceRecord, *, size: int) -> list[DecodedSample]:
        monkeypatch.setattr(Blobs, "read", read)
        with pytest.raises(FealError, match="is working on .*work: wait for it"):
            prepared(dataset)
        return list(read(self, record, size=size))

    monkeypatch.setattr(Blobs, "read", nested)
    assert prepared(dataset).fresh


def test_a_taken_place_and_no_folder(dataset: Path) -> None:
    (dataset.parent / "to").mkdir()
    (dataset.parent / "to" / "mine.txt").touch()
    with pytest.raises(FealError, match="is not a prepared data set: choose another folder"):
        prepared(dataset)
    with pytest.raises(FealError, match="There is no folder"):
        prepared(dataset.parent / "nowhere")
    with pytest.raises(FealError, match="is inside the download .*: choose a folder outside"):
        prepare_dataset(Blobs(), dataset, dataset / "to")


def test_an_impossible_set_is_refused_before_anything_is_decoded(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Blobs, "read", lambda *_, **__: pytest.fail("decoded"))
    monkeypatch.setattr(Blobs, "classes", ("blob", "blob"))
    with pytest.raises(FealError, match="names a class twice"):
        prepared(dataset)


def test_an_impossible_name_of_a_site_is_one_finding_among_others(dataset: Path) -> None:
    (dataset / "alder").rename(dataset / "al der")
    with pytest.raises(FindingsError) as error:
        prepared(dataset)
    (found,) = [finding for finding in error.value.findings if "al der" in finding.problem]
    assert found.file.startswith("al der/")
    assert re.search(r"is of site 'al der' \(as are \d+ files\): use up to 64 letters", found.problem)
    assert "al der" not in open_prepared(prepared(dataset, skip_bad=True).root).sites
