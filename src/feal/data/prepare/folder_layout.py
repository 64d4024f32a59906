"""List the images of a user's folder, with site, split and label from the folder names."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from feal.data.prepare.base import Finding, Split, relative_name
from feal.data.prepare.decode import IMAGE_SUFFIXES, VOLUME_SUFFIXES
from feal.data.samples import SPLITS
from feal.errors import FealError
from feal.settings import Task

UNLABELLED = "unlabelled"
"""The folder of unlabelled images."""

_IMAGES, _MASKS = ("image", "images"), ("mask", "masks")


@dataclass(frozen=True, kw_only=True)
class ImageRecord:
    """An image of a user, and what the folders or a table say about it."""

    site: str
    id: str
    image: Path
    label: str | None = None
    mask: Path | None = None
    patient: str | None = None
    split: Split | None = None


@dataclass(frozen=True)
class ImageListing:
    """All images of a user, problems with their arrangement, and remarks."""

    images: Sequence[ImageRecord]
    findings: Sequence[Finding]
    remarks: Sequence[str] = ()


def list_folders(folder: Path, task: Task) -> ImageListing:
    """List images by folder: `site/class/` or `site/{image,mask}/`, `train` and `test` above or below the site.

    `site/unlabelled/` holds images without label or mask.
    """
    files, skipped = _list_files(folder)
    findings: list[Finding] = []
    parts: dict[tuple[str, Split | None], dict[str, list[Path]]] = defaultdict(lambda: defaultdict(list))
    for path in files:
        place = _parse_place(path.relative_to(folder).parts[:-1])
        if place is None:
            wanted = "site/class/" if task == "classification" else "site/image/ or site/mask/"
            findings.append(Finding(file=relative_name(path, folder), problem=f"is not in {wanted}"))
        else:
            site, split, kind = place
            parts[site, split][kind].append(path)
    images = []
    for (site, split), kinds in parts.items():
        if task == "classification":
            images += _list_labelled(site, split, kinds)
            continue
        found, wrong = _list_pairs(site, split, kinds, folder)
        images += found
        findings += wrong
    findings += _find_empty_sites(folder, {site for site, _ in parts})
    remarks = [f"{skipped} files that are not images were skipped."] if skipped else []
    return ImageListing(images, findings, remarks)


def strip_suffix(path: Path) -> str:
    """Return a file's name without its suffix.

    >>> strip_suffix(Path("a/case.07.nii.gz")), strip_suffix(Path("b.jpeg"))
    ('case.07', 'b')
    """
    return path.name.removesuffix(".gz").removesuffix(".nii") if _is(path, VOLUME_SUFFIXES) else path.stem


def _list_files(folder: Path) -> tuple[list[Path], int]:
    """Return the images and volumes below a folder, and the number of other files; hidden files do not count."""
    found = sorted(_walk(folder, frozenset()))
    images = [path for path in found if _is(path, IMAGE_SUFFIXES + VOLUME_SUFFIXES)]
    return images, len(found) - len(images)


def _walk(folder: Path, parents: frozenset[Path]) -> Iterator[Path]:
    """Yield the visible files below a folder; links are followed, but never back into one of the `parents`."""
    real = folder.resolve()
    if real in parents:
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
            yield from _walk(path, parents | {real})
        elif path.is_file() or path.is_symlink():
            yield path  # a broken link is reported as a missing image


def _is(path: Path, endings: tuple[str, ...]) -> bool:
    return path.name.lower().endswith(endings)


def _parse_place(folders: Sequence[str]) -> tuple[str, Split | None, str] | None:
    """Return site, split and last folder of an image's folders, or None; a split is neither site nor class.

    >>> _parse_place(("alder", "nevus")), _parse_place(("test", "alder", "nevus"))
    (('alder', None, 'nevus'), ('alder', 'test', 'nevus'))
    """
    if folders and folders[-1] in SPLITS:
        return None
    for place in (0, 1):
        if len(folders) == 3 and folders[place] in SPLITS:
            site, kind = (name for number, name in enumerate(folders) if number != place)
            return site, "train" if folders[place] == "train" else "test", kind
    return (folders[0], None, folders[1]) if len(folders) == 2 and folders[0] not in SPLITS else None


def _list_labelled(site: str, split: Split | None, kinds: Mapping[str, Sequence[Path]]) -> list[ImageRecord]:
    return [
        ImageRecord(
            site=site,
            id="/".join(part for part in (split, kind, strip_suffix(path)) if part),
            image=path,
            label=None if kind == UNLABELLED else kind,
            split=split,
        )
        for kind, paths in kinds.items()
        for path in paths
    ]


def _list_pairs(
    site: str, split: Split | None, kinds: Mapping[str, Sequence[Path]], folder: Path
) -> tuple[list[ImageRecord], list[Finding]]:
    records: list[ImageRecord] = []
    findings: list[Finding] = []
    drawn = [path for kind in _MASKS for path in kinds.get(kind, ())]
    masks = {strip_suffix(path): path for path in drawn}
    counts = Counter(map(strip_suffix, drawn))
    twice = "is one of several masks with this name: keep one of them"
    findings += [
        Finding(file=relative_name(path, folder), problem=twice)
        for path in drawn
        if counts[strip_suffix(path)] > 1
    ]
    images = [(path, True) for kind in _IMAGES for path in kinds.get(kind, ())]
    for path, masked in [*images, *((path, False) for path in kinds.get(UNLABELLED, ()))]:
        if masked and strip_suffix(path) not in masks:
            findings.append(Finding(file=relative_name(path, folder), problem="has no mask"))
            continue
        name = "/".join(part for part in (split, None if masked else UNLABELLED, strip_suffix(path)) if part)
        records.append(
            ImageRecord(
                site=site, id=name, image=path, mask=masks[strip_suffix(path)] if masked else None, split=split
            )
        )
    alone = set(masks) - {strip_suffix(path) for path, _ in images}
    findings += [
        Finding(file=relative_name(masks[name], folder), problem="is a mask without an image") for name in alone
    ]
    for kind in set(kinds) - {*_IMAGES, *_MASKS, UNLABELLED}:
        problem = "is neither in image nor in mask"
        findings += [Finding(file=relative_name(path, folder), problem=problem) for path in kinds[kind]]
    return records, findings


def _find_empty_sites(folder: Path, filled: set[str]) -> list[Finding]:
    above = [path for path in folder.iterdir() if path.is_dir() and path.name in SPLITS]
    places = [path for root in (folder, *above) for path in root.iterdir() if path.is_dir() and path not in above]
    empty = {path.name for path in places if not path.name.startswith(".")} - filled
    return [Finding(file=name, problem="is a site without any image") for name in empty]
