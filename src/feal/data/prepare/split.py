"""Split each site into train and test so that patients and images that look alike stay together."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feal.data.prepare.base import Split, list_first
from feal.data.prepare.duplicates import Pairs, StoredSample, find_same_pairs, label_groups, to_pairs
from feal.rng import Address

TEST_SHARE = 0.2
"""The share of a site's labelled samples in the test split, rounded down as in the paper's counts."""


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
    order = _permute(len(fit), seed=Address(seed=0, purpose="split", site=site).derive_seed())
    test: set[int] = set()
    for number in order:
        if len(test) + len(fit[number]) <= target:
            test |= set(fit[number])
    if not test and fit and len(whole) > 1:
        test = set(fit[min(order, key=lambda number: len(fit[number]))])
    return ["test" if number in test else "train" for number in range(len(ids))]


def _permute(count: int, *, seed: int) -> list[int]:
    """Return the numbers below `count` in the order of `torch.randperm`, without the seconds of importing torch.

    It is the shuffle of Fisher and Yates on a Mersenne Twister, which takes the lower 32 bits of the seed.
    """
    draws = np.random.RandomState(seed % 2**32).randint(2**32, size=max(count - 1, 0), dtype=np.uint32)
    order = list(range(count))
    for place, draw in enumerate(draws.tolist()):
        other = place + draw % (count - place)
        order[place], order[other] = order[other], order[place]
    return order


def find_straddling(patients: Sequence[Any], parts: Sequence[str]) -> list[Any]:
    """Return the patients with samples in several parts (splits or sites), sorted.

    >>> find_straddling(["ann", "bob", "ann"], ["train", "test", "test"])
    ['ann']
    """
    counts = Counter(patient for patient, _ in set(zip(patients, parts, strict=True)))
    return sorted(patient for patient, count in counts.items() if count > 1)
