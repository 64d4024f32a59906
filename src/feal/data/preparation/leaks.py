"""Pictures that are on both sides of a split, or at two sites."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from feal.data.preparation.likeness import Pairs, joined

LISTED = 100
"""How many leaks the manifest names."""
NAMED = 20
"""How many pictures of a leak it names."""


@dataclass(frozen=True, kw_only=True)
class Leak:
    """Pictures that are the same, or nearly so, and of which some train and some test, or not at one site."""

    kind: Literal["same", "near"]
    samples: Sequence[str]
    sites: Sequence[str]
    splits: Sequence[str]

    def entry(self) -> dict[str, Any]:
        """As the manifest holds it: how many pictures, and the first of them."""
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
    """Leaks by kind, those across train and test first; pairs are of samples by number."""
    part: dict[tuple[str, str], int] = {}
    parts = [part.setdefault(place, len(part)) for place in zip(sites, splits, strict=True)]
    where = np.array(parts, dtype=np.int64)
    found = []
    for members in _groups(len(ids), same):
        if len(set(where[members].tolist())) > 1:
            found.append(_leak("same", members, ids, sites, splits))
    across = near[where[near[:, 0]] != where[near[:, 1]]]
    found += [_leak("near", members, ids, sites, splits) for members in _groups(len(ids), across)]
    return sorted(found, key=lambda leak: (leak.kind != "same", len(set(leak.splits)) == 1, leak.samples))


def repeats(sites: Sequence[str], same: Pairs) -> Mapping[str, int]:
    """By site, how many pictures repeat an earlier one of the same site pixel by pixel."""
    counts: dict[str, int] = defaultdict(int)
    for members in _groups(len(sites), same):
        found = [sites[number] for number in members]
        for site in set(found):
            counts[site] += found.count(site) - 1
    return {site: count for site, count in sorted(counts.items()) if count}


def _groups(count: int, pairs: Pairs) -> list[list[int]]:
    groups: NDArray[np.int64] = joined(count, pairs)
    members: dict[int, list[int]] = defaultdict(list)
    for number in np.unique(pairs).tolist():
        members[int(groups[number])].append(number)
    return list(members.values())


def _leak(
    kind: Literal["same", "near"],
    members: Sequence[int],
    ids: Sequence[str],
    sites: Sequence[str],
    splits: Sequence[str],
) -> Leak:
    # The first of every part come first, so that a few of many show between which parts the leak is.
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
