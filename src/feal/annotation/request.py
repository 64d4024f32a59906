"""The request for labels, as files: pictures, drafts, a sheet to fill in, and a page that says how."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from feal.annotation.contract import Draw, Query
from feal.annotation.instructions import instructions
from feal.annotation.reach import within
from feal.annotation.sheet import read_sheet
from feal.data import PreparedSite
from feal.data.pictures import as_picture, mask_picture, png_bytes
from feal.errors import FealError
from feal.files import write_bytes, write_text

REQUEST, ANSWERS, README = "request.csv", "answers.csv", "README.txt"
PICTURES, DRAFTS, MASKS = "pictures", "drafts", "masks"

_BATCH = 16
_LONGEST = 80


def file_name(rank: int, sample: str) -> str:
    """The file name of a sample's picture: possible on every file system, unique within a request by its rank.

    >>> file_name(3, "Alder/scan 7"), file_name(4, "..")
    ('003-Alder-scan-7.png', '004.png')
    """
    slug = re.sub(r"[^A-Za-z0-9_.-]+", "-", sample)[:_LONGEST].strip("-.")
    return f"{rank:03}-{slug}.png" if slug else f"{rank:03}.png"


def write_request(site: PreparedSite, folder: Path, queries: Sequence[Query], *, draw: Draw | None) -> None:
    """Write a round's request into `folder`; a `request.csv` there means that it is complete.

    The same queries give the same files. Answers are never touched.

    Raises:
        FealError: the disk refuses, or a link leads the files elsewhere.
    """
    names = {query.sample: file_name(query.rank, query.sample) for query in queries}
    sheet = _sheet(queries, names, drafts=draw is not None)
    _check_place(folder)
    if _content(folder / REQUEST) != sheet.encode():
        (folder / REQUEST).unlink(missing_ok=True)
    for samples in _batches(list(names)):
        for sample, image in zip(samples, site.images(samples).numpy(), strict=True):
            write_bytes(folder / PICTURES / names[sample], png_bytes(as_picture(image)))
    if draw is not None:
        _write_drafts(site, folder / DRAFTS, names, draw)
    _sweep(folder / PICTURES, keep=names.values())
    _sweep(folder / DRAFTS, keep=names.values() if draw is not None else ())
    write_text(folder / README, instructions(site, asked=len(names), folder=folder.name, drafts=draw is not None))
    write_text(folder / REQUEST, sheet)


def pictures_of(path: Path) -> dict[str, str]:
    """The sample behind each picture of a `request.csv`, by the picture's file name in lower case.

    Raises:
        FealError: the file cannot be read any more, in words for the annotator.
    """
    lines = read_sheet(path, needed=("sample", "picture"))
    return {line.cells["picture"].strip().rpartition("/")[2].lower(): line.cells["sample"] for line in lines}


def _sheet(queries: Sequence[Query], names: dict[str, str], *, drafts: bool) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["sample", "rank", "score", "picture", *(["draft"] if drafts else []), "label"])
    for query in queries:
        name = names[query.sample]
        draft = [f"{DRAFTS}/{name}"] if drafts else []
        writer.writerow([query.sample, query.rank, f"{query.score:.6g}", f"{PICTURES}/{name}", *draft, ""])
    return text.getvalue()


def _write_drafts(site: PreparedSite, folder: Path, names: dict[str, str], draw: Draw) -> None:
    for samples in _batches(list(names)):
        for sample, mask in zip(samples, draw(samples), strict=True):
            write_bytes(folder / names[sample], png_bytes(mask_picture(mask, classes=len(site.classes))))


def _batches(samples: Sequence[str]) -> Iterator[Sequence[str]]:
    """A few at a time, so that a large request needs no memory."""
    for start in range(0, len(samples), _BATCH):
        yield samples[start : start + _BATCH]


def _check_place(folder: Path) -> None:
    for path in (folder, folder / PICTURES, folder / DRAFTS):
        if path.is_symlink() and not within(path, folder.parent):
            raise FealError(f"{path} is a link out of the annotation folder: remove it and repeat the command.")


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _sweep(folder: Path, *, keep: Iterable[str]) -> None:
    """Remove pictures of another request in the same place."""
    kept = set(keep)
    for path in folder.glob("*.png"):
        if path.name not in kept and not path.is_dir():
            path.unlink(missing_ok=True)
