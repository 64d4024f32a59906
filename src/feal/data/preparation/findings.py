"""What is wrong with a download, all of it at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from feal.data.manifest import is_name
from feal.data.preparation.contract import Draft, Finding
from feal.data.samples import SPLITS
from feal.errors import FealError


class FindingsError(FealError):
    """Files that cannot be used as they are; the command line shows `findings` as a table."""

    def __init__(self, sentence: str, findings: Sequence[Finding]) -> None:
        super().__init__(sentence)
        self.findings = list(findings)


def refused(folder: Path, findings: Sequence[Finding], *, kept: Path | None = None) -> FindingsError:
    """The error for a download with findings; `kept` is where the decoded rest waits for a second try."""
    first = findings[0]
    things = "1 problem was" if len(findings) == 1 else f"{len(findings)} problems were"
    return FindingsError(
        f"{things} found in {folder} (the first: {first.file} {first.problem}): mend the files, "
        f"or go on without them by --skip-bad{f' (what is decoded is kept in {kept})' if kept else ''}.",
        findings,
    )


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Findings by file, each once."""
    return sorted(set(findings), key=lambda finding: (finding.file, finding.problem))


def named(path: Path | str, folder: Path) -> str:
    """A file as findings call it: below the download's folder where it lies there."""
    path = Path(path)
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)


def checked_drafts(
    drafts: Sequence[Draft], folder: Path, *, known: Sequence[Finding] = ()
) -> tuple[list[Draft], list[Finding]]:
    """Drafts that can be told apart, and findings about the others; files with a `known` finding are left out."""
    bad = {finding.file for finding in known}
    drafts = [
        draft
        for draft in drafts
        if not bad.intersection(named(path, folder) for path in (draft.image, draft.mask) if path is not None)
    ]
    counts = Counter((draft.site, draft.id) for draft in drafts)
    shipped = {draft.site for draft in drafts if draft.split is not None}
    good, findings = [], _impossible_sites(drafts, folder)
    for draft in drafts:
        if not is_name(draft.site):
            continue
        problem = None
        if counts[draft.site, draft.id] > 1:
            problem = f"has the id '{draft.id}' that another file of site {draft.site} has, too"
        elif not is_possible(draft.id) or not is_possible(draft.group or "-"):
            problem = "has an id or a patient that is not 1 to 400 printable characters"
        elif draft.split not in (None, *SPLITS):
            problem = f"is on the side '{draft.split}' of the split: there are {' and '.join(SPLITS)}"
        elif draft.split is None and draft.site in shipped:
            problem = "is on no side of the split that its site comes with"
        if problem is None:
            good.append(draft)
        else:
            findings.append(Finding(file=named(draft.image, folder), problem=problem))
    return good, findings


def _impossible_sites(drafts: Sequence[Draft], folder: Path) -> list[Finding]:
    """One for each site that cannot have a folder of its name, however many files it has."""
    counts = Counter(draft.site for draft in drafts if not is_name(draft.site))
    first = {draft.site: named(draft.image, folder) for draft in reversed(drafts)}
    problem = "is of site '{}', as {} of the files are: use up to 64 letters, digits, '-' and '_' for a site"
    return [Finding(file=first[site], problem=problem.format(site, count)) for site, count in counts.items()]


def is_possible(text: str) -> bool:
    """Whether this can be the id of a sample or a patient."""
    return text.isprintable() and 0 < len(text) <= 400
