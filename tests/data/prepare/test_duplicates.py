"""Which images count as alike, against comparing every pair and on real repeats."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from feal.data import open_prepared
from feal.data.prepare import DecodedSample, ScanResult, SourceRecord
from feal.data.prepare import decode as decoding
from feal.data.prepare import duplicates as likeness
from feal.data.prepare.duplicates import (
    DISTANCE,
    NAMED,
    StoredSample,
    find_leaks,
    find_near_pairs,
    fingerprint_image,
    label_groups,
    to_pairs,
)
from feal.data.prepare.pipeline import prepare_dataset
from feal.data.resize import resize
from tests.data.prepare.conftest import LETTERBOX, Blobs, Given, picture

REAL = Path(os.environ.get("FEAL_TEST_DATA", "/nowhere")) / "fed_polyp"


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 100), st.sets(st.integers(0, 63), max_size=10)), max_size=12),
)
def test_all_near_hashes_are_found(first: list[int], changed: list[tuple[int, set[int]]]) -> None:
    hashes = list(first)
    for number, bits in changed:
        hashes.append(hashes[number % len(hashes)] ^ sum(1 << bit for bit in bits))
    hashes = sorted(set(hashes))
    alike = np.tile(np.arange(256, dtype=np.uint8).reshape(16, 16), (len(hashes), 1, 1))
    found = find_near_pairs(np.array(hashes, dtype=np.uint64), alike).tolist()
    every = [(i, j) for j in range(len(hashes)) for i in range(j)]
    assert [tuple(pair) for pair in found] == sorted(
        (i, j) for i, j in every if (hashes[i] ^ hashes[j]).bit_count() <= DISTANCE
    )


def test_thumbnails_have_the_last_word() -> None:
    draw = np.random.default_rng(0)
    thumbs = np.stack([draw.integers(0, 256, (16, 16)), draw.integers(0, 256, (16, 16))]).astype(np.uint8)
    hashes = np.zeros(2, dtype=np.uint64)
    assert len(find_near_pairs(hashes, thumbs)) == 0
    assert find_near_pairs(hashes, thumbs[[0, 0]]).tolist() == [[0, 1]]


def test_many_equal_hashes_stay_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    confirm = likeness._is_confirmed
    monkeypatch.setattr(
        likeness, "_is_confirmed", lambda thumbs, pairs: compared.append(len(pairs)) or confirm(thumbs, pairs)
    )
    thumbs = np.random.default_rng(0).integers(0, 256, (600, 16, 16)).astype(np.uint8)
    find_near_pairs(np.full(600, 7, dtype=np.uint64), thumbs)
    assert compared[0] <= 32 * 600


def test_pairs_that_many_keys_find_are_not_piled_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likeness, "_PILE", 1000)
    sizes: list[int] = []
    once = likeness._unique_numbers
    monkeypatch.setattr(likeness, "_unique_numbers", lambda values: sizes.append(values.size) or once(values))
    draw = np.random.default_rng(0)
    bits = np.uint64(1) << draw.integers(0, 64, (10, 20), dtype=np.uint64)
    hashes = (draw.integers(0, 2**63, (10, 1), dtype=np.uint64) ^ bits).ravel()
    found = find_near_pairs(hashes, np.tile(np.arange(256, dtype=np.uint8).reshape(16, 16), (200, 1, 1)))
    near = np.bitwise_count(hashes[:, None] ^ hashes) <= DISTANCE
    expected = label_groups(200, np.argwhere(np.triu(near, 1)))
    assert label_groups(200, found).tolist() == expected.tolist()
    assert max(sizes) <= 2 * len(found) + 3000


def test_changed_light_noise_and_size_stay_alike_and_others_do_not() -> None:
    draw = np.random.default_rng(0)
    variants = [picture(number, height=96, width=96) for number in range(40)]
    original = picture(0, height=96, width=96).astype(float)
    variants.append((original * 0.97 + 4).clip(0, 255).astype(np.uint8))
    variants.append((original + draw.normal(0, 6, original.shape)).clip(0, 255).astype(np.uint8))
    variants.append(resize(resize(variants[0], 60, 60, nearest=False), 96, 96, nearest=False))
    seen = [fingerprint_image(np.ascontiguousarray(image.transpose(2, 0, 1))) for image in variants]
    pairs = find_near_pairs(np.array([s[0] for s in seen], dtype=np.uint64), np.stack([s[1] for s in seen]))
    groups = label_groups(len(seen), pairs)
    assert np.flatnonzero(groups == groups[0]).tolist() == [0, 40, 41, 42]
    assert len(set(groups.tolist())) == 40


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float16"])
def test_every_stored_type_has_looks(dtype: str) -> None:
    image = picture(3).transpose(2, 0, 1).astype(np.float32) / 255
    scale = {"uint8": 255, "uint16": 65535, "float16": 1}[dtype]
    hashed, thumb = fingerprint_image((image * scale).astype(dtype))
    reference, other = fingerprint_image((image * 255).astype(np.uint8))
    assert (hashed ^ reference).bit_count() <= 2
    assert thumb.std() > 10
    assert other.shape == (16, 16)


def test_nothing_is_alike_among_nothing() -> None:
    assert find_near_pairs(np.empty(0, np.uint64), np.empty((0, 16, 16), np.uint8)).shape == (
        0,
        2,
    )
    assert label_groups(2, to_pairs([])).tolist() == [0, 1]


class Frames(Blobs):
    """Frames of two real centres, whose masks do not matter here."""

    name = "frames"
    size = 64

    def scan(self, folder: Path) -> ScanResult:
        return ScanResult(
            records=[
                SourceRecord(site=site, id=path.stem, image=path)
                for site in ("CVC-ColonDB", "ETIS")
                for path in (folder / site / "image").iterdir()
            ]
        )

    def read(self, record: SourceRecord, *, size: int) -> list[DecodedSample]:
        image = LETTERBOX.fit_image(decoding.to_rgb(decoding.decode_image(record.image)), size, size)
        return [
            DecodedSample(id=record.id, image=image.transpose(2, 0, 1), label=np.zeros((size, size), np.uint8))
        ]


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason="needs the real images of FEAL_TEST_DATA")
def test_real_repeats_are_found_and_kept_on_one_side(tmp_path: Path) -> None:
    source = prepare_dataset(Frames(), REAL, tmp_path / "to", threads=1).source
    assert source["repeats"] == {"CVC-ColonDB": 34, "ETIS": 3}
    assert source["leaks_found"] == 0


def test_a_leak_of_many_pictures_shows_every_part_first_and_counts_the_rest() -> None:
    count = 1000
    places = [("alder", "train")] * 500 + [("alder", "test")] * 100 + [("birch", "train")] * 400
    samples = [
        StoredSample(
            record=SourceRecord(site=site, id="", image=Path("1.png")),
            id=f"{number:04}",
            labelled=True,
            hash=0,
            thumbnail=np.zeros((16, 16), np.uint8),
            row=number,
            split=split,
        )
        for number, (site, split) in enumerate(places)
    ]
    same = to_pairs([(0, number) for number in range(1, count)])
    (entry,) = find_leaks(samples, same=same, near=to_pairs([]))
    assert entry["pictures"] == count
    assert [len(entry[key]) for key in ("samples", "sites", "splits")] == [NAMED] * 3
    assert entry["samples"][:4] == ["0000", "0500", "0600", "0001"]
    assert list(zip(entry["sites"], entry["splits"], strict=True))[:3] == [places[0], places[500], places[600]]


def _copied(path: Path, to: Path, *, brighter: int = 0) -> None:
    """The picture again, perhaps with another light, so that it is alike and not the same."""
    pixels = np.asarray(Image.open(path)).astype(int) + brighter
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(to)


@pytest.mark.parametrize("brighter", [0, 3])
def test_copies_at_another_site_do_not_tear_a_group(dataset: Path, brighter: int) -> None:
    for number in range(4):
        original = dataset / "alder" / f"{number:02}.png"
        shutil.copy(original, dataset / "birch" / f"{number:02}.png")
        _copied(original, dataset / "birch" / f"{number + 4:02}.png", brighter=brighter)
        if brighter:
            shutil.copy(dataset / "birch" / f"{number + 4:02}.png", dataset / "alder" / f"{number + 4:02}.png")
    site = open_prepared(prepare_dataset(Blobs(), dataset, dataset.parent / "to", threads=1).root).site("birch")
    patients = dict(zip(site.ids().tolist(), site.patients().tolist(), strict=True))
    tested = set(site.ids("test").tolist())
    assert tested
    for number in range(4):
        one, other = f"{number:02}", f"{number + 4:02}"
        assert patients[one] == patients[other] == one
        assert (one in tested) == (other in tested)


def test_named_patients_between_do_not_tear_a_group(dataset: Path) -> None:
    for name in ("01", "02"):
        shutil.copy(dataset / "alder" / "00.png", dataset / "alder" / f"{name}.png")
    root = prepare_dataset(Given(alder={"00": {"group": "ann"}}), dataset, dataset.parent / "to", threads=1).root
    assert open_prepared(root).site("alder").patients()[:3].tolist() == ["ann", "01", "01"]
