"""Samples that a table lists, and their files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from feal.data.preparation.contract import Draft, Finding, Scan, Split


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A line of a table: a sample and where its image should be."""

    site: str
    id: str
    file: str
    """The image as a finding names it."""
    label: int
    group: str | None
    split: Split | None


def located(
    entries: Iterable[Listed | Finding], files: Mapping[str, Path], *, sites: Sequence[str], table: str
) -> Scan:
    """Drafts of the samples whose image is among `files` (by id); what `entries` finds wrong is kept.

    A site without any of its images is absent; elsewhere a missing image is a finding. So is an id in two lines,
    and neither of these is a draft: nobody knows which is right.
    """
    listed: dict[str, Listed] = {}
    findings: list[Finding] = []
    repeated: set[str] = set()
    for entry in entries:
        if isinstance(entry, Finding):
            findings.append(entry)
        elif listed.setdefault(entry.id, entry) is not entry:
            repeated.add(entry.id)
            findings.append(Finding(file=entry.file, problem=f"has two lines in {table}"))
    present = {entry.site for entry in listed.values() if entry.id in files}
    findings += [
        Finding(file=entry.file, problem=f"is missing, but {table} lists it")
        for entry in listed.values()
        if entry.site in present and entry.id not in files
    ]
    drafts = [
        Draft(
            site=entry.site,
            id=entry.id,
            image=files[entry.id],
            label=entry.label,
            group=entry.group,
            split=entry.split,
        )
        for entry in listed.values()
        if entry.id in files and entry.id not in repeated
    ]
    return Scan(drafts=drafts, findings=findings, absent=[site for site in sites if site not in present])
