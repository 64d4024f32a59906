"""Which pictures are the same, or nearly so: by hash first, then by their pixels."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.fft import dctn
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from feal.data.prepared import scaled

Pairs = NDArray[np.int64]
"""Pairs of samples [m, 2] by number, the smaller one first."""

THUMB = 16
DISTANCE = 8
"""Bits by which the hashes of near-identical pictures may differ."""
TOLERANCE = 0.2
"""Root mean square difference of their thumbnails, as a share of the thumbnails' own spread.

With 0.2 groups of endoscopic frames stay within their sequence; from 0.25 on sequences of different people chain.
"""

_BANDS = np.array_split(np.arange(64, dtype=np.uint64), DISTANCE + 3)
_GRID = 32
_REACH = 32
"""How many like-keyed neighbours a hash is compared with: a million equal ones stay a million steps."""
_PILE = 2**21
"""How many pairs are piled up before repeated ones are thrown away: alike frames are found under most keys."""
_LOW = sorted(((u, v) for u in range(12) for v in range(12)), key=lambda place: (sum(place), place))[1:65]
"""The 64 lowest frequencies but the mean."""


@dataclass(frozen=True)
class Looks:
    """What pictures look like: hashes uint64 [n] and thumbnails uint8 [n, 16, 16]."""

    hashes: NDArray[np.uint64]
    thumbs: NDArray[np.uint8]


def looks(image: NDArray[Any]) -> tuple[int, NDArray[np.uint8]]:
    """A picture's 64-bit DCT hash and grey thumbnail [16, 16], from an image [C, H, W] of a prepared type.

    A bit of the hash says whether one of the 64 lowest frequencies is above their median.
    """
    grey = scaled(image).mean(axis=0)
    if image.dtype.kind == "f":
        low, high = float(grey.min()), float(grey.max())
        grey = (grey - low) / max(high - low, 1e-6)
    small = np.asarray(Image.fromarray(grey).resize((_GRID, _GRID), Image.Resampling.BOX))
    waves = dctn(small, norm="ortho")
    values = np.array([waves[place] for place in _LOW])
    bits = np.packbits(values > np.median(values)).tobytes()
    thumb = small.reshape(THUMB, 2, THUMB, 2).mean(axis=(1, 3)).clip(0, 1) * 255
    return int.from_bytes(bits, "big"), thumb.round().astype(np.uint8)


def near_pairs(pictures: Looks) -> Pairs:
    """Pairs whose hashes differ in at most `DISTANCE` bits and whose thumbnails confirm it.

    Hashes that differ in 8 of 64 bits agree in at least 3 of 11 bands, so it is enough to look among those with
    three equal bands: 165 sorts instead of n^2 comparisons.
    """
    order = np.argsort(pictures.hashes, kind="stable")
    hashes = pictures.hashes[order]
    # Of many with one hash the first stands for them all: blank pictures would pair without end.
    firsts = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]])[: len(hashes)])
    found = chain(
        [order[_near_by(hashes, hashes)]],
        (order[firsts[_near_by(hashes[firsts] & mask, hashes[firsts])]] for mask in _masks()),
    )
    pairs = _distinct(found, len(hashes))
    return pairs[_confirmed(pictures.thumbs, pairs)]


def same_pairs(digests: Sequence[Hashable]) -> Pairs:
    """Each later sample whose digest equals an earlier one's, with the first of these.

    >>> same_pairs(["a", "b", "a", "a"]).tolist()
    [[0, 2], [0, 3]]
    """
    first: dict[Hashable, int] = {}
    pairs = [(first.setdefault(digest, number), number) for number, digest in enumerate(digests)]
    return as_pairs([pair for pair in pairs if pair[0] != pair[1]])


def as_pairs(pairs: Sequence[tuple[int, int]]) -> Pairs:
    """Pairs as an array, also where there are none."""
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def joined(count: int, pairs: Pairs) -> NDArray[np.int64]:
    """For each of `count` samples the number of its group, where pairs hang together.

    >>> joined(4, as_pairs([(0, 2), (2, 3)])).tolist()
    [0, 1, 0, 0]
    """
    links = coo_matrix((np.ones(len(pairs), dtype=np.bool_), (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    _, groups = connected_components(links, directed=False)
    return np.asarray(groups, dtype=np.int64)


def _distinct(found: Iterable[Pairs], count: int) -> Pairs:
    """All these pairs of `count` samples, each once and in order; a pair is one whole number meanwhile."""
    kept = np.empty(0, dtype=np.int64)
    pile: list[NDArray[np.int64]] = []
    for pairs in found:
        one, other = pairs.T
        pile.append(np.minimum(one, other) * count + np.maximum(one, other))
        if sum(map(len, pile)) > max(_PILE, len(kept)):
            kept, pile = _each_once(np.concatenate([kept, *pile])), []
    return np.stack(np.divmod(_each_once(np.concatenate([kept, *pile])), max(count, 1)), axis=1)


def _each_once(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sorted, without repeats: numpy's own form by hashes takes several times as long where there are many."""
    numbers.sort()
    first = np.ones(len(numbers), dtype=np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=first[1:])
    return numbers[first]


def _masks() -> Iterator[np.uint64]:
    """The bits of every three bands."""
    for chosen in combinations(_BANDS, len(_BANDS) - DISTANCE):
        yield np.bitwise_or.reduce(np.uint64(1) << np.concatenate(chosen))


def _near_by(keys: NDArray[np.uint64], hashes: NDArray[np.uint64]) -> Pairs:
    """Pairs of equal keys and near hashes, which are sorted; among many equal keys, those near in order."""
    order = np.argsort(keys, kind="stable")
    keys, hashes = keys[order], hashes[order]
    found = [np.empty((0, 2), dtype=np.int64)]
    for step in range(1, min(_REACH, len(keys) - 1) + 1):
        places = np.flatnonzero(keys[step:] == keys[:-step])
        if not len(places):
            break
        places = places[np.bitwise_count(hashes[places] ^ hashes[places + step]) <= DISTANCE]
        found.append(np.stack([order[places], order[places + step]], axis=1))
    return np.concatenate(found)


def _confirmed(thumbs: NDArray[np.uint8], pairs: Pairs) -> NDArray[np.bool_]:
    confirmed = np.zeros(len(pairs), dtype=np.bool_)
    for start in range(0, len(pairs), 65536):
        part = pairs[start : start + 65536]
        one, other = (thumbs[part[:, side]].reshape(len(part), -1).astype(np.float32) for side in (0, 1))
        spread = (one.std(axis=1) + other.std(axis=1)) / 2
        difference = np.sqrt(np.square(one - other).mean(axis=1))
        confirmed[start : start + 65536] = difference <= TOLERANCE * spread
    return confirmed
