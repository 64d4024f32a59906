"""The samples that were decoded, as columns, and what only shows when all of them are seen together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from feal.data.preparation.chunks import Chunk, Entry
from feal.data.preparation.contract import Download, Draft, Finding, Split
from feal.data.preparation.findings import named
from feal.data.preparation.likeness import Looks, Pairs, joined, near_pairs, same_pairs
from feal.data.preparation.splitting import both_sides, grouped, split


@dataclass(frozen=True)
class Sample:
    """A decoded sample and where its pixels are."""

    draft: Draft
    entry: Entry
    chunk: int
    row: int

    @property
    def key(self) -> tuple[str, str]:
        """What no other sample may have."""
        return self.draft.site, self.entry.id


@dataclass(frozen=True)
class Likeness:
    """Which samples, by number, are the same pixel by pixel, and which nearly so."""

    same: Pairs
    near: Pairs


@dataclass(frozen=True)
class Sides:
    """Patient and split of each sample, and how each site came to its split."""

    patients: Sequence[str]
    splits: Sequence[Split]
    origins: dict[str, str]
    remarks: Sequence[str]


def gather(chunks: Sequence[Chunk], folder: Path) -> tuple[list[Sample], list[Finding]]:
    """The usable samples of decoded chunks, and all findings about the others."""
    samples: list[Sample] = []
    findings: list[Finding] = []
    for number, chunk in enumerate(chunks):
        entries, found = chunk.read()
        findings += found
        samples += [Sample(chunk.drafts[entry.draft], entry, number, row) for row, entry in enumerate(entries)]
    counts = Counter(sample.key for sample in samples)
    good = []
    for sample in samples:
        problem = None
        if counts[sample.key] > 1:
            problem = f"gives the id '{sample.entry.id}' that another sample of its site has, too"
        elif sample.draft.split == "test" and not sample.entry.labelled:
            problem = "is in the test part and has no label or mask"
        if problem is None:
            good.append(sample)
        else:
            findings.append(Finding(file=named(sample.draft.image, folder), problem=problem))
    trained = {sample.draft.site for sample in good if sample.draft.split != "test"}
    for site in sorted({draft.site for chunk in chunks for draft in chunk.drafts} - trained):
        findings.append(Finding(file=site, problem="is a site without any usable training sample"))
    return [sample for sample in good if sample.draft.site in trained], findings


def compare(samples: Sequence[Sample], chunks: Sequence[Chunk], download: Download, *, size: int) -> Likeness:
    """Which samples look alike, over all sites; of equal ones the first stands for all."""
    same = same_pairs([sample.entry.digest for sample in samples])
    repeated = set(same[:, 1].tolist())
    firsts = [number for number in range(len(samples)) if number not in repeated]
    hashes = np.array([samples[number].entry.hash for number in firsts], dtype=np.uint64)
    pairs = near_pairs(Looks(hashes, _thumbs([samples[number] for number in firsts], chunks, download, size)))
    return Likeness(same, np.asarray(firsts, dtype=np.int64)[pairs])


def sides(samples: Sequence[Sample], alike: Likeness) -> Sides:
    """Each site's split: the one that it comes with, or 8:2 by patient or likeness."""
    patients = [""] * len(samples)
    splits: list[Split] = ["train"] * len(samples)
    origins: dict[str, str] = {}
    remarks: list[str] = []
    # Over all sites: two pictures of a site may be linked by a copy that lies at another one.
    likes = joined(len(samples), np.concatenate([alike.same, alike.near]))
    sites = np.array([sample.draft.site for sample in samples])
    for site in sorted(set(sites.tolist())):
        numbers = np.flatnonzero(sites == site)
        members = [samples[number] for number in numbers.tolist()]
        ids = [member.entry.id for member in members]
        groups = [member.draft.group for member in members]
        here = same_pairs(list(zip(likes[numbers].tolist(), groups, strict=True)))
        names, units = grouped(ids, groups, here)
        chosen = [member.draft.split for member in members if member.draft.split is not None]
        if chosen:
            origins[site] = "shipped"
            remarks += _on_both_sides(site, [group or "" for group in groups], chosen)
        else:
            origins[site] = "8:2 by likeness" if None in groups else "8:2 by patient"
            chosen = split(units, ids, [member.entry.labelled for member in members], site=site)
        if "test" not in chosen:
            remarks.append(f"Site {site} has no test sample: nothing is measured there.")
        for number, name, side in zip(numbers.tolist(), names, chosen, strict=True):
            patients[number], splits[number] = name, side
    return Sides(patients, splits, origins, remarks)


def _on_both_sides(site: str, groups: Sequence[str], splits: Sequence[str]) -> list[str]:
    both = [group for group in both_sides(groups, splits) if group]
    if not both:
        return []
    named_ones = ", ".join(both[:5]) + (", ..." if len(both) > 5 else "")
    patients = "1 patient" if len(both) == 1 else f"{len(both)} patients, cases or lesions"
    return [f"The split that site {site} comes with has {patients} on both sides ({named_ones}); it is kept."]


def _thumbs(
    samples: Sequence[Sample], chunks: Sequence[Chunk], download: Download, size: int
) -> NDArray[np.uint8]:
    rows: dict[int, list[int]] = {}
    for sample in samples:
        rows.setdefault(sample.chunk, []).append(sample.row)
    parts = [chunks[number].array("thumbs", download, size=size)[chosen] for number, chosen in rows.items()]
    return np.concatenate(parts) if parts else np.empty((0, 16, 16), dtype=np.uint8)
