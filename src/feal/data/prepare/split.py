"""Gather the decoded samples of all chunks, find duplicates, and split each site into train and test."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from feal.data.prepare.base import DatasetSource, Finding, SourceRecord, Split, relative_name
from feal.data.prepare.chunks import Chunk, ChunkEntry
from feal.data.prepare.duplicates import (
    THUMBNAIL,
    ImageFingerprints,
    Pairs,
    find_near_pairs,
    find_same_pairs,
    label_groups,
    to_pairs,
)
from feal.rng import Address

TEST_SHARE = 0.2
"""The share of a site's labelled samples in the test split."""


@dataclass(frozen=True)
class StoredSample:
    """A decoded sample and the position of its pixels."""

    record: SourceRecord
    entry: ChunkEntry
    chunk: int
    row: int

    @property
    def key(self) -> tuple[str, str]:
        """Site and id, which no other sample may have."""
        return self.record.site, self.entry.id


@dataclass(frozen=True)
class Duplicates:
    """Pairs of samples, by number, whose pixels are identical, and pairs that look nearly the same."""

    same: Pairs
    near: Pairs


@dataclass(frozen=True)
class SplitAssignment:
    """The patient and the split of each sample, and the origin of each site's split."""

    patients: Sequence[str]
    splits: Sequence[Split]
    origins: dict[str, str]
    remarks: Sequence[str]


def gather_samples(chunks: Sequence[Chunk], folder: Path) -> tuple[list[StoredSample], list[Finding]]:
    """Return the usable samples of decoded chunks, and all findings about the others."""
    samples: list[StoredSample] = []
    findings: list[Finding] = []
    for number, chunk in enumerate(chunks):
        entries, found = chunk.read()
        findings += found
        samples += [
            StoredSample(chunk.records[entry.record], entry, number, row) for row, entry in enumerate(entries)
        ]
    counts = Counter(sample.key for sample in samples)
    good = []
    for sample in samples:
        problem = None
        if counts[sample.key] > 1:
            problem = f"gives the id '{sample.entry.id}', which another sample of its site has too"
        elif sample.record.split == "test" and not sample.entry.labelled:
            problem = "is in the test split and has no label or mask"
        if problem is None:
            good.append(sample)
        else:
            findings.append(Finding(file=relative_name(sample.record.image, folder), problem=problem))
    trained = {sample.record.site for sample in good if sample.record.split != "test"}
    for site in sorted({record.site for chunk in chunks for record in chunk.records} - trained):
        findings.append(Finding(file=site, problem="is a site without any usable training sample"))
    return [sample for sample in good if sample.record.site in trained], findings


def find_duplicates(
    samples: Sequence[StoredSample], chunks: Sequence[Chunk], dataset: DatasetSource, *, size: int
) -> Duplicates:
    """Find identical and nearly identical samples over all sites; the first of identical ones represents them."""
    same = find_same_pairs([sample.entry.digest for sample in samples])
    repeated = set(same[:, 1].tolist())
    firsts = [number for number in range(len(samples)) if number not in repeated]
    hashes = np.array([samples[number].entry.hash for number in firsts], dtype=np.uint64)
    thumbnails = _read_thumbnails([samples[number] for number in firsts], chunks, dataset, size)
    near = find_near_pairs(ImageFingerprints(hashes, thumbnails))
    return Duplicates(same, np.asarray(firsts, dtype=np.int64)[near])


def assign_splits(samples: Sequence[StoredSample], duplicates: Duplicates) -> SplitAssignment:
    """Assign each site's split: the one that it is shipped with, or 8:2 by patient or by similarity."""
    patients = [""] * len(samples)
    splits: list[Split] = ["train"] * len(samples)
    origins: dict[str, str] = {}
    remarks: list[str] = []
    # Over all sites: two images of a site may be linked by a copy at another site.
    likes = label_groups(len(samples), np.concatenate([duplicates.same, duplicates.near]))
    sites = np.array([sample.record.site for sample in samples])
    for site in sorted(set(sites.tolist())):
        numbers = np.flatnonzero(sites == site)
        members = [samples[number] for number in numbers.tolist()]
        ids = [member.entry.id for member in members]
        groups = [member.record.group for member in members]
        alike = find_same_pairs(list(zip(likes[numbers].tolist(), groups, strict=True)))
        names, units = group_samples(ids, groups, alike)
        chosen = [member.record.split for member in members if member.record.split is not None]
        if chosen:
            origins[site] = "shipped"
            remarks += _remark_straddling(site, [group or "" for group in groups], chosen)
        else:
            origins[site] = "8:2 by likeness" if None in groups else "8:2 by patient"
            chosen = split_train_test(units, ids, [member.entry.labelled for member in members], site=site)
        if "test" not in chosen:
            remarks.append(f"Site {site} has no test sample: nothing is measured there.")
        for number, name, split in zip(numbers.tolist(), names, chosen, strict=True):
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
    units: Sequence[int] | NDArray[np.int64], ids: Sequence[str], labelled: Sequence[bool], *, site: str
) -> list[Split]:
    """Split off a fifth of a site's labelled samples for testing, in whole units; unlabelled units train.

    The draw depends on the site's address only, not on the order of the samples.
    """
    members: dict[int, list[int]] = defaultdict(list)
    for number, unit in enumerate(np.asarray(units).tolist()):
        members[unit].append(number)
    whole = sorted(members.values(), key=lambda unit: min(ids[number] for number in unit))
    fit = [unit for unit in whole if all(labelled[number] for number in unit)]
    test = _draw_units(fit, target=round(TEST_SHARE * sum(map(len, fit))), keep=len(fit) == len(whole), site=site)
    return ["test" if number in test else "train" for number in range(len(ids))]


def find_straddling(patients: Sequence[str], splits: Sequence[str]) -> list[str]:
    """Return the patients with samples in both splits, sorted."""
    found: Mapping[str, set[str]] = defaultdict(set)
    for patient, split in zip(patients, splits, strict=True):
        found[patient].add(split)
    return sorted(patient for patient, both in found.items() if len(both) > 1)


def _draw_units(units: Sequence[Sequence[int]], *, target: int, keep: bool, site: str) -> set[int]:
    """Take units in random order as long as they fit; at least one unit if another one stays (`keep`)."""
    order = torch.randperm(len(units), generator=Address(seed=0, purpose="split", site=site).generator()).tolist()
    taken: set[int] = set()
    for number in order:
        if len(taken) + len(units[number]) <= target:
            taken |= set(units[number])
    if not taken and len(units) > int(keep):
        taken = set(units[min(order, key=lambda number: len(units[number]))])
    return taken


def _remark_straddling(site: str, groups: Sequence[str], splits: Sequence[str]) -> list[str]:
    both = [group for group in find_straddling(groups, splits) if group]
    if not both:
        return []
    listed = ", ".join(both[:5]) + (", ..." if len(both) > 5 else "")
    patients = "1 patient" if len(both) == 1 else f"{len(both)} patients, cases or lesions"
    return [f"The split that site {site} comes with has {patients} on both sides ({listed}); it is kept."]


def _read_thumbnails(
    samples: Sequence[StoredSample], chunks: Sequence[Chunk], dataset: DatasetSource, size: int
) -> NDArray[np.uint8]:
    rows: dict[int, list[int]] = {}
    for sample in samples:
        rows.setdefault(sample.chunk, []).append(sample.row)
    parts = [chunks[number].array("thumbnails", dataset, size=size)[chosen] for number, chosen in rows.items()]
    return np.concatenate(parts) if parts else np.empty((0, THUMBNAIL, THUMBNAIL), dtype=np.uint8)
