"""Find identical and nearly identical images, split each site so that they stay together, and list leaks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.fft import dctn
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from feal.data.prepare.base import SourceRecord, Split, list_first
from feal.data.prepared import scale_pixels
from feal.rng import Address

Pairs = NDArray[np.int64]
"""Pairs of sample numbers [m, 2], the smaller one first."""

THUMBNAIL = 16
DISTANCE = 8
"""The number of bits by which the hashes of near-identical images may differ."""
TOLERANCE = 0.2
"""The largest RMS difference of their thumbnails, relative to the thumbnails' standard deviation.

At 0.2 groups of endoscopic frames stay within their sequence; from 0.25 on sequences of different patients merge.
"""
TEST_SHARE = 0.2
"""The share of a site's labelled samples in the test split."""
NAMED = 20
"""How many images of a leak are listed."""

_BANDS = np.array_split(np.arange(64, dtype=np.uint64), DISTANCE + 3)
_GRID = 32
_REACH = 32
"""How many neighbours with the same key a hash is compared with, which keeps the cost linear."""
_PILE = 2**21
"""How many pairs accumulate before repeated ones are removed: similar frames are found under most keys."""
_LOW = sorted(((u, v) for u in range(12) for v in range(12)), key=lambda place: (sum(place), place))[1:65]
"""The 64 lowest frequencies except the mean."""


@dataclass(frozen=True, kw_only=True)
class StoredSample:
    """A decoded sample: what identifies its pixels, and where they are stored."""

    record: SourceRecord
    id: str
    labelled: bool
    digest: str
    """The digest of its pixels."""
    hash: int
    thumbnail: NDArray[np.uint8]
    chunk: int
    row: int


@dataclass(frozen=True)
class SplitAssignment:
    """The patient and the split of each sample, and the origin of each site's split."""

    patients: Sequence[str]
    splits: Sequence[Split]
    origins: Mapping[str, str]
    remarks: Sequence[str]


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


def find_duplicates(samples: Sequence[StoredSample]) -> tuple[Pairs, Pairs]:
    """Find identical and nearly identical samples over all sites; the first of identical ones represents them."""
    same = find_same_pairs([sample.digest for sample in samples])
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


def assign_splits(samples: Sequence[StoredSample], *, same: Pairs, near: Pairs) -> SplitAssignment:
    """Assign each site's split: the one that it is shipped with, or 8:2 by patient or by similarity."""
    patients = [""] * len(samples)
    splits: list[Split] = ["train"] * len(samples)
    origins: dict[str, str] = {}
    remarks: list[str] = []
    # Over all sites: two images of a site may be linked by a copy at another site.
    likes = label_groups(len(samples), np.concatenate([same, near]))
    sites = np.array([sample.record.site for sample in samples])
    for site in np.unique(sites).tolist():
        numbers = np.flatnonzero(sites == site)
        members = [samples[number] for number in numbers.tolist()]
        ids = [member.id for member in members]
        groups = [member.record.group for member in members]
        alike = find_same_pairs(list(zip(likes[numbers].tolist(), groups, strict=True)))
        names, units = group_samples(ids, groups, alike)
        chosen = [member.record.split for member in members if member.record.split is not None]
        if chosen:
            origins[site] = "shipped"
            remarks += _remark_straddling(site, [group or "" for group in groups], chosen)
        else:
            origins[site] = "8:2 by likeness" if None in groups else "8:2 by patient"
            chosen = split_train_test(units, ids, [member.labelled for member in members], site=site)
        if "test" not in chosen:
            remarks.append(f"Site {site} has no test sample: nothing is measured there.")
        for number, name, split in zip(numbers, names, chosen, strict=True):
            patients[number], splits[number] = name, split
    return SplitAssignment(patients, splits, origins, remarks)


def group_samples(
    ids: Sequence[str], groups: Sequence[str | None], alike: Pairs
) -> tuple[list[str], NDArray[np.int64]]:
    """Return the patient of each sample of a site, and the number of the unit that a split keeps together.

    A patient, case or lesion named by the source is kept. Samples without one are grouped with those that look
    alike, and take the first id of the group as their patient.
    """
    unnamed = np.array([group is None for group in groups], dtype=np.bool_)
    first: dict[str, int] = {}
    links = [(first.setdefault(group, n), n) for n, group in enumerate(groups) if group is not None]
    units = label_groups(len(ids), np.concatenate([to_pairs(links), alike[unnamed[alike].all(axis=1)]]))
    names: dict[int, str] = {}
    for sample, unit in sorted(zip(ids, units.tolist(), strict=True)):
        names.setdefault(unit, sample)
    return [group or names[unit] for unit, group in zip(units.tolist(), groups, strict=True)], units


def split_train_test(
    units: NDArray[np.int64], ids: Sequence[str], labelled: Sequence[bool], *, site: str
) -> list[Split]:
    """Split off a fifth of a site's labelled samples for testing, in whole units; unlabelled units train.

    Units are taken in random order as long as they fit; at least one unit tests if another one is left to train.
    The draw depends on the site's address only, not on the order of the samples.
    """
    members: dict[int, list[int]] = defaultdict(list)
    for number, unit in enumerate(units.tolist()):
        members[unit].append(number)
    whole = sorted(members.values(), key=lambda unit: min(ids[number] for number in unit))
    fit = [unit for unit in whole if all(labelled[number] for number in unit)]
    target = round(TEST_SHARE * sum(map(len, fit)))
    order = torch.randperm(len(fit), generator=Address(seed=0, purpose="split", site=site).generator()).tolist()
    test: set[int] = set()
    for number in order:
        if len(test) + len(fit[number]) <= target:
            test |= set(fit[number])
    if not test and fit and len(whole) > 1:
        test = set(fit[min(order, key=lambda number: len(fit[number]))])
    return ["test" if number in test else "train" for number in range(len(ids))]


def find_straddling(patients: Sequence[Any], parts: Sequence[str]) -> list[Any]:
    """Return the patients with samples in several parts (splits or sites), sorted.

    >>> find_straddling(["ann", "bob", "ann"], ["train", "test", "test"])
    ['ann']
    """
    counts = Counter(patient for patient, _ in set(zip(patients, parts, strict=True)))
    return sorted(patient for patient, count in counts.items() if count > 1)


def _remark_straddling(site: str, groups: Sequence[str], splits: Sequence[str]) -> list[str]:
    both = [group for group in find_straddling(groups, splits) if group]
    patients = "1 patient" if len(both) == 1 else f"{len(both)} patients, cases or lesions"
    text = f"The split that site {site} comes with has {patients} on both sides ({list_first(both)}); it is kept."
    return [text] if both else []


def find_leaks(
    *, ids: Sequence[str], sites: Sequence[str], splits: Sequence[str], same: Pairs, near: Pairs
) -> list[dict[str, Any]]:
    """Find identical or nearly identical images in both splits or at several sites; pairs are sample numbers.

    Leaks of identical images come first, and those between train and test first. Each is an entry of the manifest:
    its kind, the number of images, and the first `NAMED` of them.
    """
    places = list(zip(sites, splits, strict=True))
    numbers: dict[tuple[str, str], int] = {}
    where = np.array([numbers.setdefault(place, len(numbers)) for place in places], dtype=np.int64)
    found = [("same", members) for members in _groups(len(ids), same) if len(set(where[members])) > 1]
    across = near[where[near[:, 0]] != where[near[:, 1]]]
    found += [("near", members) for members in _groups(len(ids), across)]
    leaks = []
    for kind, members in found:
        # One image of every site and split comes first, so that a truncated list still shows where the leak is.
        seen: Counter[tuple[str, str]] = Counter()
        ranks = {}
        for number in sorted(members, key=lambda number: (sites[number], ids[number])):
            ranks[number] = seen[places[number]]
            seen[places[number]] += 1
        ordered = sorted(ranks, key=ranks.__getitem__)
        is_one_split = len({split for _, split in seen}) == 1
        leaks.append(((kind != "same", is_one_split, [ids[number] for number in ordered]), kind, ordered))
    return [
        {
            "kind": kind,
            "pictures": len(ordered),
            "samples": [ids[number] for number in ordered[:NAMED]],
            "sites": [sites[number] for number in ordered[:NAMED]],
            "splits": [splits[number] for number in ordered[:NAMED]],
        }
        for _, kind, ordered in sorted(leaks, key=lambda leak: leak[0])
    ]


def count_repeats(sites: Sequence[str], same: Pairs) -> dict[str, int]:
    """Count by site the images whose pixels repeat an earlier image of the same site."""
    counts: Counter[str] = Counter()
    for members in _groups(len(sites), same):
        for site, count in Counter(sites[number] for number in members).items():
            counts[site] += count - 1
    return {site: count for site, count in sorted(counts.items()) if count}


def _groups(count: int, pairs: Pairs) -> list[list[int]]:
    groups = label_groups(count, pairs)
    members: dict[int, list[int]] = defaultdict(list)
    for number in np.unique(pairs).tolist():
        members[int(groups[number])].append(number)
    return list(members.values())
