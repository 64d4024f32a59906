"""Which pictures count as alike: against comparing every pair, and on real repeats."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feal.data.preparation import Draft, Piece, Scan, decoding, likeness
from feal.data.preparation.likeness import DISTANCE, Looks, as_pairs, joined, looks, near_pairs
from feal.data.preparation.preparing import prepare
from tests.data.preparation.conftest import Blobs, picture

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
    found = near_pairs(Looks(np.array(hashes, dtype=np.uint64), alike)).tolist()
    every = [(i, j) for j in range(len(hashes)) for i in range(j)]
    assert [tuple(pair) for pair in found] == sorted(
        (i, j) for i, j in every if (hashes[i] ^ hashes[j]).bit_count() <= DISTANCE
    )


def test_thumbnails_have_the_last_word() -> None:
    draw = np.random.default_rng(0)
    thumbs = np.stack([draw.integers(0, 256, (16, 16)), draw.integers(0, 256, (16, 16))]).astype(np.uint8)
    hashes = np.zeros(2, dtype=np.uint64)
    assert len(near_pairs(Looks(hashes, thumbs))) == 0
    assert near_pairs(Looks(hashes, thumbs[[0, 0]])).tolist() == [[0, 1]]


def test_many_equal_hashes_stay_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    confirm = likeness._confirmed
    monkeypatch.setattr(
        likeness, "_confirmed", lambda thumbs, pairs: compared.append(len(pairs)) or confirm(thumbs, pairs)
    )
    thumbs = np.random.default_rng(0).integers(0, 256, (600, 16, 16)).astype(np.uint8)
    near_pairs(Looks(np.full(600, 7, dtype=np.uint64), thumbs))
    assert compared[0] <= 32 * 600


def test_pairs_that_many_keys_find_are_not_piled_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likeness, "_PILE", 1000)
    sizes: list[int] = []
    once = likeness._each_once
    monkeypatch.setattr(likeness, "_each_once", lambda values: sizes.append(values.size) or once(values))
    draw = np.random.default_rng(0)
    bits = np.uint64(1) << draw.integers(0, 64, (10, 20), dtype=np.uint64)
    hashes = (draw.integers(0, 2**63, (10, 1), dtype=np.uint64) ^ bits).ravel()
    found = near_pairs(Looks(hashes, np.tile(np.arange(256, dtype=np.uint8).reshape(16, 16), (200, 1, 1))))
    near = np.bitwise_count(hashes[:, None] ^ hashes) <= DISTANCE
    expected = joined(200, np.argwhere(np.triu(near, 1)))
    assert joined(200, found).tolist() == expected.tolist()
    assert max(sizes) <= 2 * len(found) + 3000


def test_changed_light_noise_and_size_stay_alike_and_others_do_not() -> None:
    draw = np.random.default_rng(0)
    variants = [picture(number, height=96, width=96) for number in range(40)]
    original = picture(0, height=96, width=96).astype(float)
    variants.append((original * 0.97 + 4).clip(0, 255).astype(np.uint8))
    variants.append((original + draw.normal(0, 6, original.shape)).clip(0, 255).astype(np.uint8))
    variants.append(decoding.resized(decoding.resized(variants[0], 60, 60, nearest=False), 96, 96, nearest=False))
    seen = [looks(np.ascontiguousarray(image.transpose(2, 0, 1))) for image in variants]
    pairs = near_pairs(Looks(np.array([s[0] for s in seen], dtype=np.uint64), np.stack([s[1] for s in seen])))
    groups = joined(len(seen), pairs)
    assert np.flatnonzero(groups == groups[0]).tolist() == [0, 40, 41, 42]
    assert len(set(groups.tolist())) == 40


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float16"])
def test_every_stored_type_has_looks(dtype: str) -> None:
    image = picture(3).transpose(2, 0, 1).astype(np.float32) / 255
    scale = {"uint8": 255, "uint16": 65535, "float16": 1}[dtype]
    hashed, thumb = looks((image * scale).astype(dtype))
    reference, other = looks((image * 255).astype(np.uint8))
    assert (hashed ^ reference).bit_count() <= 2
    assert thumb.std() > 10
    assert other.shape == (16, 16)


def test_nothing_is_alike_among_nothing() -> None:
    assert near_pairs(Looks(np.empty(0, np.uint64), np.empty((0, 16, 16), np.uint8))).shape == (0, 2)
    assert joined(2, as_pairs([])).tolist() == [0, 1]


class Frames(Blobs):
    """Frames of two real centres, whose masks do not matter here."""

    name = "frames"
    size = 64

    def scan(self, folder: Path) -> Scan:
        return Scan(
            drafts=[
                Draft(site=site, id=path.stem, image=path)
                for site in ("CVC-ColonDB", "ETIS")
                for path in (folder / site / "image").iterdir()
            ]
        )

    def read(self, draft: Draft, *, size: int) -> list[Piece]:
        image = decoding.letterboxed(decoding.colour(decoding.picture(draft.image)), size, nearest=False)
        return [Piece(id=draft.id, image=image.transpose(2, 0, 1), truth=np.zeros((size, size), np.uint8))]


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason="needs the real images of FEAL_TEST_DATA")
def test_real_repeats_are_found_and_kept_on_one_side(tmp_path: Path) -> None:
    source = prepare(Frames(), REAL, tmp_path / "to", processes=1).source
    assert source["repeats"] == {"CVC-ColonDB": 34, "ETIS": 3}
    assert source["leaks_found"] == 0
