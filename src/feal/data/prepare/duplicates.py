"""Find identical and nearly identical images, split each site so that they stay together, and list leaks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    import pandas as pd

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
"""The share of a site's labelled samples in the test split, rounded down as in the paper's counts."""
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
    patient: str = ""
    split: Split = "train"


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


def assign_splits(
    samples: Sequence[StoredSample], *, same: Pairs, near: Pairs
) -> tuple[list[StoredSample], dict[str, str], list[str]]:
    """Assign patient and split: the one that a site is shipped with, or 8:2 by patient or by similarity.

    Returns the samples, the origin of each site's split, and remarks.
    """
    assigned = list(samples)
    origins: dict[str, str] = {}
    remarks: list[str] = []
    # Over all sites: two images of a site may be linked by a copy at another site.
    likes = label_groups(len(samples), np.concatenate([same, near]))
    sites = np.array([sample.record.site for sample in samples])
    for site in np.unique(sites).tolist():
        numbers = np.flatnonzero(sites == site).tolist()
        members = [samples[number] for number in numbers]
        ids = [member.id for member in members]
        groups = [member.record.group for member in members]
        alike = find_same_pairs(list(zip(likes[numbers].tolist(), groups, strict=True)))
        patients, units = group_samples(ids, groups, alike)
        splits = [member.record.split for member in members if member.record.split is not None]
        if splits:
            origins[site] = "shipped"
            both = [group for group in find_straddling([group or "" for group in groups], splits) if group]
            if both:
                count = "1 patient" if len(both) == 1 else f"{len(both)} patients, cases or lesions"
                listed = f"{count} on both sides ({list_first(both)})"
                remarks.append(f"The split that site {site} comes with has {listed}; it is kept.")
        else:
            origins[site] = "8:2 by likeness" if None in groups else "8:2 by patient"
            splits = split_train_test(units, ids, [member.labelled for member in members], site=site)
        if "test" not in splits:
            remarks.append(f"Site {site} has no test sample: nothing is measured there.")
        for number, patient, split in zip(numbers, patients, splits, strict=True):
            assigned[number] = replace(samples[number], patient=patient, split=split)
    return assigned, origins, remarks


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
    target = int(TEST_SHARE * sum(map(len, fit)))
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


def find_leaks(samples: Sequence[StoredSample], *, same: Pairs, near: Pairs) -> list[dict[str, Any]]:
    """Find identical or nearly identical images in both splits or at several sites; pairs are sample numbers.

    Leaks of identical images come first, and those between train and test first. Each is an entry of the manifest:
    its kind, the number of images, and the first `NAMED` of them.
    """
    table = _tabulate(samples)
    part = table.groupby(["sites", "splits"]).ngroup().to_numpy()
    across = near[part[near[:, 0]] != part[near[:, 1]]]
    leaks = []
    for kind, pairs in (("same", same), ("near", across)):
        members = table.assign(part=part, group=label_groups(len(table), pairs)).loc[np.unique(pairs)]
        # One image of every site and split comes first, so that a truncated list still shows where the leak is.
        members = members.sort_values(["sites", "samples"])
        members["rank"] = members.groupby(["group", "part"]).cumcount()
        for _, leak in members.sort_values("rank", kind="stable").groupby("group"):
            if leak["part"].nunique() > 1:
                leaks.append((kind != "same", leak["splits"].nunique() == 1, leak["samples"].tolist(), kind, leak))
    leaks.sort(key=lambda leak: leak[:3])
    return [
        {"kind": kind, "pictures": len(leak)}
        | {name: leak[name].tolist()[:NAMED] for name in ("samples", "sites", "splits")}
        for *_, kind, leak in leaks
    ]


def count_repeats(samples: Sequence[StoredSample], *, same: Pairs) -> dict[str, int]:
    """Count by site the images whose pixels repeat an earlier image of the same site."""
    members = _tabulate(samples).assign(group=label_groups(len(samples), same)).loc[np.unique(same)]
    groups = members.groupby("sites")["group"]
    return {str(site): int(count) for site, count in (groups.size() - groups.nunique()).items() if count}


def _tabulate(samples: Sequence[StoredSample]) -> pd.DataFrame:
    import pandas as pd

    rows = [(sample.id, sample.record.site, sample.split) for sample in samples]
    return pd.DataFrame(rows, columns=["samples", "sites", "splits"])
