"""Which samples belong together, and on which side of a split they fall."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from feal.data.preparation.contract import Split
from feal.data.preparation.likeness import Pairs, as_pairs, joined
from feal.randomness import Address

SHARE = 0.2
"""Of a site's samples in the test part."""


def grouped(ids: Sequence[str], groups: Sequence[str | None], alike: Pairs) -> tuple[list[str], NDArray[np.int64]]:
    """The patient of each of a site's samples, and the number of the unit that a split keeps together.

    A patient, case or lesion that the download names is kept. Samples without one join those that look alike, and
    are called by the first id among these.
    """
    unnamed = np.array([group is None for group in groups], dtype=np.bool_)
    first: dict[str, int] = {}
    links = [(first.setdefault(group, n), n) for n, group in enumerate(groups) if group is not None]
    units = joined(len(ids), np.concatenate([as_pairs(links), alike[unnamed[alike].all(axis=1)]]))
    names: dict[int, str] = {}
    for sample, unit in sorted(zip(ids, units.tolist(), strict=True)):
        names.setdefault(unit, sample)
    return [group or names[unit] for unit, group in zip(units.tolist(), groups, strict=True)], units


def split(
    units: Sequence[int] | NDArray[np.int64], ids: Sequence[str], labelled: Sequence[bool], *, site: str
) -> list[Split]:
    """A fifth of a site's labelled samples as the test part, whole units at a time; unlabelled units train.

    Drawn by the site's address: the same whatever the order of the samples.
    """
    members: dict[int, list[int]] = defaultdict(list)
    for number, unit in enumerate(np.asarray(units).tolist()):
        members[unit].append(number)
    whole = sorted(members.values(), key=lambda unit: min(ids[number] for number in unit))
    fit = [unit for unit in whole if all(labelled[number] for number in unit)]
    test = _drawn(fit, target=round(SHARE * sum(map(len, fit))), keep=len(fit) == len(whole), site=site)
    return ["test" if number in test else "train" for number in range(len(ids))]


def both_sides(patients: Sequence[str], splits: Sequence[str]) -> list[str]:
    """Patients with samples on both sides, sorted."""
    sides: Mapping[str, set[str]] = defaultdict(set)
    for patient, side in zip(patients, splits, strict=True):
        sides[patient].add(side)
    return sorted(patient for patient, found in sides.items() if len(found) > 1)


def _drawn(units: Sequence[Sequence[int]], *, target: int, keep: bool, site: str) -> set[int]:
    """Samples of units taken in drawn order as long as they fit; at least one unit if another one stays."""
    order = torch.randperm(len(units), generator=Address(seed=0, purpose="split", site=site).generator()).tolist()
    taken: set[int] = set()
    for number in order:
        if len(taken) + len(units[number]) <= target:
            taken |= set(units[number])
    if not taken and len(units) > int(keep):
        taken = set(units[min(order, key=lambda number: len(units[number]))])
    return taken
