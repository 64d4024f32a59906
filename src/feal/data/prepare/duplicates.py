"""Find images that are identical or nearly so, by perceptual hash and thumbnail, and leaks between splits."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.fft import dctn
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from feal.data.prepared import scale_pixels

Pairs = NDArray[np.int64]
"""Pairs of sample numbers [m, 2], the smaller one first."""

THUMBNAIL = 16
DISTANCE = 8
"""The number of bits by which the hashes of near-identical images may differ."""
TOLERANCE = 0.2
"""The largest RMS difference of their thumbnails, relative to the thumbnails' standard deviation.

At 0.2 groups of endoscopic frames stay within their sequence; from 0.25 on sequences of different patients merge.
"""

_BANDS = np.array_split(np.arange(64, dtype=np.uint64), DISTANCE + 3)
_GRID = 32
_REACH = 32
"""How many neighbours with the same key a hash is compared with, which keeps the cost linear."""
_PILE = 2**21
"""How many pairs accumulate before repeated ones are removed: similar frames are found under most keys."""
_LOW = sorted(((u, v) for u in range(12) for v in range(12)), key=lambda place: (sum(place), place))[1:65]
"""The 64 lowest frequencies except the mean."""


@dataclass(frozen=True)
class ImageFingerprints:
    """Hashes uint64 [n] and grey thumbnails uint8 [n, 16, 16] of n images."""

    hashes: NDArray[np.uint64]
    thumbnails: NDArray[np.uint8]


def fingerprint_image(image: NDArray[Any]) -> tuple[int, NDArray[np.uint8]]:
    """Compute the 64-bit DCT hash and the grey thumbnail [16, 16] of an image [C, H, W] of a prepared type.

    Each bit of the hash tells whether one of the 64 lowest frequencies is above their median.
    """
    grey = scale_pixels(image).mean(axis=0)
    if image.dtype.kind == "f":
        low, high = float(grey.min()), float(grey.max())
        grey = (grey - low) / max(high - low, 1e-6)
    small = np.asarray(Image.fromarray(grey).resize((_GRID, _GRID), Image.Resampling.BOX))
    waves = dctn(small, norm="ortho")
    values = np.array([waves[place] for place in _LOW])
    bits = np.packbits(values > np.median(values)).tobytes()
    thumb = small.reshape(THUMBNAIL, 2, THUMBNAIL, 2).mean(axis=(1, 3)).clip(0, 1) * 255
    return int.from_bytes(bits, "big"), thumb.round().astype(np.uint8)


def find_near_pairs(images: ImageFingerprints) -> Pairs:
    """Find pairs whose hashes differ in at most `DISTANCE` bits and whose thumbnails confirm it.

    Hashes that differ in 8 of 64 bits agree in at least 3 of 11 bands, so it suffices to compare those with three
    equal bands: 165 sorts instead of n^2 comparisons.
    """
    order = np.argsort(images.hashes, kind="stable")
    hashes = images.hashes[order]
    # The first of many equal hashes represents them: otherwise blank images would pair without end.
    firsts = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]])[: len(hashes)])
    found = chain(
        [order[_compare_by_key(hashes, hashes)]],
        (order[firsts[_compare_by_key(hashes[firsts] & mask, hashes[firsts])]] for mask in _band_masks()),
    )
    pairs = _unique_pairs(found, len(hashes))
    return pairs[_is_confirmed(images.thumbnails, pairs)]


def find_same_pairs(digests: Sequence[Hashable]) -> Pairs:
    """Pair each sample whose digest occurred before with the first sample of that digest.

    >>> find_same_pairs(["a", "b", "a", "a"]).tolist()
    [[0, 2], [0, 3]]
    """
    first: dict[Hashable, int] = {}
    pairs = [(first.setdefault(digest, number), number) for number, digest in enumerate(digests)]
    return to_pairs([pair for pair in pairs if pair[0] != pair[1]])


def to_pairs(pairs: Sequence[tuple[int, int]]) -> Pairs:
    """Convert pairs to an array [m, 2], also if there are none."""
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def label_groups(count: int, pairs: Pairs) -> NDArray[np.int64]:
    """Return for each of `count` samples the number of its group of connected pairs.

    >>> label_groups(4, to_pairs([(0, 2), (2, 3)])).tolist()
    [0, 1, 0, 0]
    """
    links = coo_matrix((np.ones(len(pairs), dtype=np.bool_), (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    _, groups = connected_components(links, directed=False)
    return np.asarray(groups, dtype=np.int64)


def _unique_pairs(found: Iterable[Pairs], count: int) -> Pairs:
    """Return these pairs of `count` samples, each once and sorted; a pair is encoded as one number meanwhile."""
    kept = np.empty(0, dtype=np.int64)
    pile: list[NDArray[np.int64]] = []
    for pairs in found:
        one, other = pairs.T
        pile.append(np.minimum(one, other) * count + np.maximum(one, other))
        if sum(map(len, pile)) > max(_PILE, len(kept)):
            kept, pile = _unique_numbers(np.concatenate([kept, *pile])), []
    return np.stack(np.divmod(_unique_numbers(np.concatenate([kept, *pile])), max(count, 1)), axis=1)


def _unique_numbers(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sort in place and drop repeats; `np.unique` is several times as slow with many numbers."""
    numbers.sort()
    first = np.ones(len(numbers), dtype=np.bool_)
    np.not_equal(numbers[1:], numbers[:-1], out=first[1:])
    return numbers[first]


def _band_masks() -> Iterator[np.uint64]:
    """Yield the bits of every combination of three bands."""
    for chosen in combinations(_BANDS, len(_BANDS) - DISTANCE):
        yield np.bitwise_or.reduce(np.uint64(1) << np.concatenate(chosen))


def _compare_by_key(keys: NDArray[np.uint64], hashes: NDArray[np.uint64]) -> Pairs:
    """Find pairs with equal keys and near hashes (sorted); among many equal keys only neighbours are compared."""
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


def _is_confirmed(thumbnails: NDArray[np.uint8], pairs: Pairs) -> NDArray[np.bool_]:
    confirmed = np.zeros(len(pairs), dtype=np.bool_)
    for start in range(0, len(pairs), 65536):
        part = pairs[start : start + 65536]
        one, other = (thumbnails[part[:, side]].reshape(len(part), -1).astype(np.float32) for side in (0, 1))
        spread = (one.std(axis=1) + other.std(axis=1)) / 2
        difference = np.sqrt(np.square(one - other).mean(axis=1))
        confirmed[start : start + 65536] = difference <= TOLERANCE * spread
    return confirmed


LISTED = 100
"""How many leaks the manifest lists."""
NAMED = 20
"""How many images of a leak it lists."""


@dataclass(frozen=True, kw_only=True)
class Leak:
    """Identical or nearly identical images in both splits, or at more than one site."""

    kind: Literal["same", "near"]
    samples: Sequence[str]
    sites: Sequence[str]
    splits: Sequence[str]

    def entry(self) -> dict[str, Any]:
        """Return the manifest's entry: how many images, and the first of them."""
        return {
            "kind": self.kind,
            "pictures": len(self.samples),
            "samples": list(self.samples[:NAMED]),
            "sites": list(self.sites[:NAMED]),
            "splits": list(self.splits[:NAMED]),
        }


def find_leaks(
    *, ids: Sequence[str], sites: Sequence[str], splits: Sequence[str], same: Pairs, near: Pairs
) -> list[Leak]:
    """Find leaks, identical images first and those between train and test first; pairs are sample numbers."""
    part: dict[tuple[str, str], int] = {}
    parts = [part.setdefault(place, len(part)) for place in zip(sites, splits, strict=True)]
    where = np.array(parts, dtype=np.int64)
    found = []
    for members in _groups(len(ids), same):
        if len(set(where[members].tolist())) > 1:
            found.append(_make_leak("same", members, ids, sites, splits))
    across = near[where[near[:, 0]] != where[near[:, 1]]]
    found += [_make_leak("near", members, ids, sites, splits) for members in _groups(len(ids), across)]
    return sorted(found, key=lambda leak: (leak.kind != "same", len(set(leak.splits)) == 1, leak.samples))


def count_repeats(sites: Sequence[str], same: Pairs) -> Mapping[str, int]:
    """Count by site the images whose pixels repeat an earlier image of the same site."""
    counts: dict[str, int] = defaultdict(int)
    for members in _groups(len(sites), same):
        found = [sites[number] for number in members]
        for site in set(found):
            counts[site] += found.count(site) - 1
    return {site: count for site, count in sorted(counts.items()) if count}


def _groups(count: int, pairs: Pairs) -> list[list[int]]:
    groups: NDArray[np.int64] = label_groups(count, pairs)
    members: dict[int, list[int]] = defaultdict(list)
    for number in np.unique(pairs).tolist():
        members[int(groups[number])].append(number)
    return list(members.values())


def _make_leak(
    kind: Literal["same", "near"],
    members: Sequence[int],
    ids: Sequence[str],
    sites: Sequence[str],
    splits: Sequence[str],
) -> Leak:
    # One image of every site and split comes first, so that a truncated list still shows where the leak is.
    seen: Counter[tuple[str, str]] = Counter()
    ranked = []
    for number in sorted(members, key=lambda number: (sites[number], ids[number])):
        ranked.append((seen[sites[number], splits[number]], number))
        seen[sites[number], splits[number]] += 1
    ordered = [number for _, number in sorted(ranked, key=lambda pair: pair[0])]
    return Leak(
        kind=kind,
        samples=[ids[number] for number in ordered],
        sites=[sites[number] for number in ordered],
        splits=[splits[number] for number in ordered],
    )
