"""Find identical and nearly identical images, and those that leak between splits or sites."""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from feal.data.prepare.base import SourceRecord, Split
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
NAMED = 20
"""How many images of a leak are listed."""

_BANDS = np.array_split(np.arange(64, dtype=np.uint64), DISTANCE + 3)
_GRID = 32
_STRIP = 64
"""How many rows of an image are converted to grey at a time, so that they stay in the processor's cache."""
_REACH = 32
"""How many neighbours with the same key a hash is compared with, which keeps the cost linear."""
_PILE = 2**21
"""How many pairs accumulate before repeated ones are removed: similar frames are found under most keys."""
_LOW: NDArray[np.int64] = np.array(sorted(np.ndindex(12, 12), key=lambda place: (sum(place), place))[1:65]).T
"""The 64 lowest frequencies [2, 64] except the mean."""


@dataclass(frozen=True, kw_only=True)
class StoredSample:
    """A decoded sample: what its pixels look like, and the row of its site's arrays that holds them."""

    record: SourceRecord
    id: str
    labelled: bool
    hash: int
    thumbnail: NDArray[np.uint8]
    row: int
    patient: str = ""
    split: Split = "train"


def fingerprint_image(image: NDArray[Any]) -> tuple[int, NDArray[np.uint8]]:
    """Compute the 64-bit DCT hash and the grey thumbnail [16, 16] of an image [C, H, W] of a prepared type.

    Each bit of the hash tells whether one of the 64 lowest frequencies is above their median.
    """
    from scipy.fft import dctn  # 0.3 s, which a run on prepared data need not pay

    grey = np.empty(image.shape[1:], dtype=np.float32)
    for start in range(0, len(grey), _STRIP):
        part = grey[start : start + _STRIP]
        np.add.reduce(scale_pixels(image[:, start : start + _STRIP]), axis=0, out=part)
        part /= len(image)
    if image.dtype.kind == "f":
        low, high = float(grey.min()), float(grey.max())
        grey = (grey - low) / max(high - low, 1e-6)
    small = np.asarray(Image.fromarray(grey).resize((_GRID, _GRID), Image.Resampling.BOX))
    waves = dctn(small, norm="ortho")
    values = waves[_LOW[0], _LOW[1]]
    middle = np.sort(values)[31:33].mean()  # the median, several times as fast as numpy's
    bits = np.packbits(values > middle).tobytes()
    thumb = small.reshape(THUMBNAIL, 2, THUMBNAIL, 2).mean(axis=(1, 3)) * 255
    return int.from_bytes(bits, "big"), thumb.round().astype(np.uint8)


def find_duplicates(samples: Sequence[StoredSample], digest: Callable[[StoredSample], str]) -> tuple[Pairs, Pairs]:
    """Find identical and nearly identical samples over all sites; the first of identical ones represents them.

    `digest` reads the pixels of a sample, which is needed only where hash and thumbnail occur more than once.
    """
    looks = [(sample.hash, sample.thumbnail.tobytes()) for sample in samples]
    counts = Counter(looks)
    same = find_same_pairs(
        [digest(sample) if counts[look] > 1 else look for sample, look in zip(samples, looks, strict=True)]
    )
    firsts = np.setdiff1d(np.arange(len(samples)), same[:, 1])
    hashes = np.array([samples[number].hash for number in firsts], dtype=np.uint64)
    thumbnails = np.array([samples[number].thumbnail for number in firsts], dtype=np.uint8)
    return same, firsts[find_near_pairs(hashes, thumbnails)]


def find_near_pairs(image_hashes: NDArray[np.uint64], thumbnails: NDArray[np.uint8]) -> Pairs:
    """Find pairs whose hashes [n] differ in at most `DISTANCE` bits and whose thumbnails [n, 16, 16] confirm it.

    Hashes that differ in 8 of 64 bits agree in at least 3 of 11 bands, so it suffices to compare those with three
    equal bands: 165 sorts instead of n^2 comparisons.
    """
    order = np.argsort(image_hashes, kind="stable")
    hashes = image_hashes[order]
    # The first of many equal hashes represents them: otherwise blank images would pair without end.
    firsts = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]])[: len(hashes)])
    found = chain(
        [order[_compare_by_key(hashes, hashes)]],
        (order[firsts[_compare_by_key(hashes[firsts] & mask, hashes[firsts])]] for mask in _band_masks()),
    )
    pairs = _unique_pairs(found, len(hashes))
    return pairs[_is_confirmed(thumbnails, pairs)]


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
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    links = coo_matrix((np.ones(len(pairs), dtype=np.bool_), (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    _, groups = connected_components(links, directed=False)
    return np.asarray(groups, dtype=np.int64)


def _unique_pairs(found: Iterable[Pairs], count: int) -> Pairs:
    """Return these pairs of `count` samples, each once and sorted; a pair is encoded as one number meanwhile."""
    kept = np.empty(0, dtype=np.int64)
    pile: list[NDArray[np.int64]] = []
    for pairs in found:
        pile.append(pairs.min(axis=1) * count + pairs.max(axis=1))
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


def find_leaks(samples: Sequence[StoredSample], *, same: Pairs, near: Pairs) -> list[dict[str, Any]]:
    """Find identical or nearly identical images in both splits or at several sites; pairs are sample numbers.

    Leaks of identical images come first, and those between train and test first. Each is an entry of the manifest:
    its kind, the number of images, and the first `NAMED` of them.
    """
    parts = [(sample.record.site, sample.split) for sample in samples]
    across = to_pairs([(one, other) for one, other in near.tolist() if parts[one] != parts[other]])
    leaks = []
    for kind, pairs in (("same", same), ("near", across)):
        for numbers in _list_groups(samples, pairs):
            ranked: dict[tuple[str, str], list[int]] = defaultdict(list)
            ranks = {}
            for number in numbers:
                ranks[number] = len(ranked[parts[number]])
                ranked[parts[number]].append(number)
            if len(ranked) > 1:
                # One image of every site and split comes first, so that a truncated list still shows the leak.
                members = [samples[number] for number in sorted(numbers, key=ranks.__getitem__)]
                columns: dict[str, list[str]] = {
                    "samples": [member.id for member in members],
                    "sites": [member.record.site for member in members],
                    "splits": [member.split for member in members],
                }
                order = (kind != "same", len(set(columns["splits"])) == 1, columns["samples"])
                shown = {name: column[:NAMED] for name, column in columns.items()}
                leaks.append((order, {"kind": kind, "pictures": len(members), **shown}))
    return [leak for _, leak in sorted(leaks, key=lambda leak: leak[0])]


def count_repeats(samples: Sequence[StoredSample], *, same: Pairs) -> dict[str, int]:
    """Count by site the images whose pixels repeat an earlier image of the same site."""
    repeats: Counter[str] = Counter()
    for numbers in _list_groups(samples, same):
        for site, count in Counter(samples[number].record.site for number in numbers).items():
            repeats[site] += count - 1
    return {site: count for site, count in sorted(repeats.items()) if count}


def _list_groups(samples: Sequence[StoredSample], pairs: Pairs) -> list[list[int]]:
    """List the numbers of each group of connected pairs, sorted by site and id."""
    labels = label_groups(len(samples), pairs)
    groups: dict[int, list[int]] = defaultdict(list)
    for number in np.unique(pairs).tolist():
        groups[int(labels[number])].append(number)
    key = lambda number: (samples[number].record.site, samples[number].id)  # noqa: E731
    return [sorted(groups[label], key=key) for label in sorted(groups)]
