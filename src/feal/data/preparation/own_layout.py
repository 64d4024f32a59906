"""Pictures of one's own, and what the folders that they lie in say of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from feal.data.preparation.contract import Finding, Split
from feal.data.preparation.decoding import PICTURES, VOLUMES
from feal.data.preparation.findings import named
from feal.data.samples import SPLITS
from feal.errors import FealError
from feal.settings import Task

UNLABELLED = "unlabelled"
"""Folder of pictures that nobody has labelled."""

_IMAGES, _MASKS = ("image", "images"), ("mask", "masks")


@dataclass(frozen=True, kw_only=True)
class Own:
    """A picture, and what is said of it."""

    site: str
    id: str
    image: Path
    label: str | None = None
    mask: Path | None = None
    patient: str | None = None
    split: Split | None = None


@dataclass(frozen=True)
class Layout:
    """All pictures, what is wrong with their arrangement, and what a user should know."""

    pictures: Sequence[Own]
    findings: Sequence[Finding]
    remarks: Sequence[str] = ()


def from_folders(folder: Path, task: Task) -> Layout:
    """Pictures by where they lie: `site/class/` or `site/{image,mask}/`, with `train` and `test` above or below.

    `site/unlabelled/` holds those without label or mask.
    """
    files, passed_over = _files(folder)
    findings: list[Finding] = []
    parts: dict[tuple[str, Split | None], dict[str, list[Path]]] = defaultdict(lambda: defaultdict(list))
    for path in files:
        place = _place(path.relative_to(folder).parts[:-1])
        if place is None:
            wanted = "site/class/" if task == "classification" else "site/image/ or site/mask/"
            findings.append(Finding(file=named(path, folder), problem=f"does not lie in {wanted}"))
        else:
            site, split, kind = place
            parts[site, split][kind].append(path)
    pictures = []
    for (site, split), kinds in parts.items():
        if task == "classification":
            pictures += _labelled(site, split, kinds)
            continue
        found, wrong = _pairs(site, split, kinds, folder)
        pictures += found
        findings += wrong
    findings += _empty_sites(folder, {site for site, _ in parts})
    remarks = [f"{passed_over} files that are no pictures were passed over."] if passed_over else []
    return Layout(pictures, findings, remarks)


def stem(path: Path) -> str:
    """A file's name without its ending.

    >>> stem(Path("a/case.07.nii.gz")), stem(Path("b.jpeg"))
    ('case.07', 'b')
    """
    return path.name.removesuffix(".gz").removesuffix(".nii") if _is(path, VOLUMES) else path.stem


def _files(folder: Path) -> tuple[list[Path], int]:
    """Pictures and volumes below a folder, and the number of other files; hidden ones are passed over."""
    seen = sorted(_below(folder, frozenset()))
    pictures = [path for path in seen if _is(path, PICTURES + VOLUMES)]
    return pictures, len(seen) - len(pictures)


def _below(folder: Path, above: frozenset[Path]) -> Iterator[Path]:
    """The visible files below a folder, also through links, but never into one of the folders `above` again."""
    real = folder.resolve()
    if real in above:
        return
    try:
        entries = list(folder.iterdir())
    except OSError as error:
        raise FealError(
            f"The folder {folder} cannot be read ({error.strerror}): check its permissions."
        ) from error
    for path in entries:
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _below(path, above | {real})
        elif path.is_file() or path.is_symlink():
            yield path  # a link to nothing is a picture that is missing


def _is(path: Path, endings: tuple[str, ...]) -> bool:
    return path.name.lower().endswith(endings)


def _place(folders: Sequence[str]) -> tuple[str, Split | None, str] | None:
    """Site, split and last folder, by the folders that a picture lies in; a split is neither site nor class.

    >>> _place(("alder", "nevus")), _place(("test", "alder", "nevus")), _place(("alder", "test", "image"))
    (('alder', None, 'nevus'), ('alder', 'test', 'nevus'), ('alder', 'test', 'image'))
    """
    if folders and folders[-1] in SPLITS:
        return None
    for place in (0, 1):
        if len(folders) == 3 and folders[place] in SPLITS:
            site, kind = (name for number, name in enumerate(folders) if number != place)
            return site, "train" if folders[place] == "train" else "test", kind
    return (folders[0], None, folders[1]) if len(folders) == 2 and folders[0] not in SPLITS else None


def _labelled(site: str, split: Split | None, kinds: Mapping[str, Sequence[Path]]) -> list[Own]:
    return [
        Own(
            site=site,
            id="/".join(part for part in (split, kind, stem(path)) if part),
            image=path,
            label=None if kind == UNLABELLED else kind,
            split=split,
        )
        for kind, paths in kinds.items()
        for path in paths
    ]


def _pairs(
    site: str, split: Split | None, kinds: Mapping[str, Sequence[Path]], folder: Path
) -> tuple[list[Own], list[Finding]]:
    pictures: list[Own] = []
    findings: list[Finding] = []
    drawn = [path for kind in _MASKS for path in kinds.get(kind, ())]
    masks = {stem(path): path for path in drawn}
    counts = Counter(map(stem, drawn))
    twice = "is one of several masks of that name, and only one of them can be meant"
    findings += [Finding(file=named(path, folder), problem=twice) for path in drawn if counts[stem(path)] > 1]
    images = [(path, True) for kind in _IMAGES for path in kinds.get(kind, ())]
    for path, masked in [*images, *((path, False) for path in kinds.get(UNLABELLED, ()))]:
        if masked and stem(path) not in masks:
            findings.append(Finding(file=named(path, folder), problem="has no mask"))
            continue
        name = "/".join(part for part in (split, None if masked else UNLABELLED, stem(path)) if part)
        pictures.append(
            Own(site=site, id=name, image=path, mask=masks[stem(path)] if masked else None, split=split)
        )
    alone = set(masks) - {stem(path) for path, _ in images}
    findings += [Finding(file=named(masks[name], folder), problem="is a mask without an image") for name in alone]
    for kind in set(kinds) - {*_IMAGES, *_MASKS, UNLABELLED}:
        problem = "lies neither in image nor in mask"
        findings += [Finding(file=named(path, folder), problem=problem) for path in kinds[kind]]
    return pictures, findings


def _empty_sites(folder: Path, filled: set[str]) -> list[Finding]:
    above = [path for path in folder.iterdir() if path.is_dir() and path.name in SPLITS]
    places = [path for root in (folder, *above) for path in root.iterdir() if path.is_dir() and path not in above]
    empty = {path.name for path in places if not path.name.startswith(".")} - filled
    return [Finding(file=name, problem="is a site without any picture") for name in empty]
