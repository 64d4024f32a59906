"""Write a round's request for people: images, drafts of masks, a table to fill in, and instructions."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from feal.annotation.base import PredictMasks, Query
from feal.annotation.files import is_inside, read_sheet
from feal.data import PreparedSite
from feal.data.images import class_colours, encode_png, mask_to_pil, to_pil
from feal.errors import FealError
from feal.fileio import write_bytes, write_text

_LABELS = """\
What to do
  1. Look at the images in the folder "images".
  2. Copy request.csv to answers.csv, here in this folder, and fill in its column "label":
     a class by its name or by its number.

The classes
{classes}

An image that cannot be labelled: write  cannot  as its label.
Not sure yet: leave the label empty. You can save as often as you like; every label in the file counts.
To correct a label: change it in answers.csv at any time, even in a later round. The old one is kept on record.
"""

_MASKS = """\
What to do
  1. For each image in the folder "images", draw a mask of the same size ({width} x {height} pixels).
  2. Save it as PNG in a folder "masks", here in this folder, under the file name of the image.
{drafts}
The classes
{classes}
Every pixel belongs to one class: use exactly these numbers (as grey values or palette entries) or exactly these
colours, without soft edges or transparency.

An image that cannot be labelled: copy request.csv to answers.csv, write  cannot  as its label, and save no
mask for it. Leave the other labels empty.
To correct a mask: save it again at any time, even in a later round. The old one is kept on record.
"""

_DRAFTED = """\
     The folder "drafts" holds the masks that the model predicts: copy a draft to "masks" and correct it there.
     A correct draft can be copied unchanged; only masks in "masks" count.
"""

_END = """
Who answered: add a column "by" with your name to answers.csv; it is stored with each label.
Answers that could not be used are listed in rejected.csv, one folder up, with the reason.
"""


def write_instructions(site: PreparedSite, *, asked: int, folder: str, drafts: bool) -> str:
    """Return the text of a request's README."""
    number = int(folder.rpartition("-")[2])
    title = f"Site {site.name}, round {number}: {asked} image{'s' if asked != 1 else ''} to label\n\n"
    if site.task == "classification":
        return title + _LABELS.format(classes=_list_numbers(site)) + _END
    _, height, width = site.shape
    body = _MASKS.format(
        classes=_list_colours(site), width=width, height=height, drafts=_DRAFTED if drafts else ""
    )
    return title + body + _END


def _list_numbers(site: PreparedSite) -> str:
    return "\n".join(f"  {number:>3}  {name}" for number, name in enumerate(site.classes))


def _list_colours(site: PreparedSite) -> str:
    colours = class_colours(len(site.classes))
    return "\n".join(
        f"  {number:>3}  #{red:02x}{green:02x}{blue:02x}  {name}"
        for number, (name, (red, green, blue)) in enumerate(zip(site.classes, colours, strict=True))
    )


REQUEST, ANSWERS, README = "request.csv", "answers.csv", "README.txt"
IMAGES, DRAFTS, MASKS = "images", "drafts", "masks"

_BATCH = 16
_LONGEST = 80


def name_image(rank: int, sample: str) -> str:
    """Return the file name of a sample's image: valid on every file system, unique within a request by rank.

    >>> name_image(3, "Alder/scan 7"), name_image(4, "..")
    ('003-Alder-scan-7.png', '004.png')
    """
    slug = re.sub(r"[^A-Za-z0-9_.-]+", "-", sample)[:_LONGEST].strip("-.")
    return f"{rank:03}-{slug}.png" if slug else f"{rank:03}.png"


def write_request(
    site: PreparedSite, folder: Path, queries: Sequence[Query], *, predict_masks: PredictMasks | None
) -> None:
    """Write a round's request into `folder`; it is complete if `request.csv` exists.

    The same queries give the same files. Answers are never touched.

    Raises:
        FealError: a file cannot be written, or a link leads out of the annotation folder.
    """
    names = {query.sample: name_image(query.rank, query.sample) for query in queries}
    sheet = _make_sheet(queries, names, drafts=predict_masks is not None)
    _check_links(folder)
    if _read_content(folder / REQUEST) != sheet.encode():
        (folder / REQUEST).unlink(missing_ok=True)
    for samples in _batches(list(names)):
        for sample, image in zip(samples, site.images(samples).numpy(), strict=True):
            write_bytes(folder / IMAGES / names[sample], encode_png(to_pil(image)))
    if predict_masks is not None:
        _write_drafts(site, folder / DRAFTS, names, predict_masks)
    _sweep(folder / IMAGES, keep=names.values())
    _sweep(folder / DRAFTS, keep=names.values() if predict_masks is not None else ())
    write_text(
        folder / README,
        write_instructions(site, asked=len(names), folder=folder.name, drafts=predict_masks is not None),
    )
    write_text(folder / REQUEST, sheet)


def read_requested_images(path: Path) -> dict[str, str]:
    """Read the sample of each image of a `request.csv`, by the image's file name in lower case.

    Raises:
        FealError: the file cannot be read any more; addressed to the annotator.
    """
    lines = read_sheet(path, needed=("sample", "image"))
    return {line.cells["image"].strip().rpartition("/")[2].lower(): line.cells["sample"] for line in lines}


def _make_sheet(queries: Sequence[Query], names: dict[str, str], *, drafts: bool) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["sample", "rank", "score", "image", *(["draft"] if drafts else []), "label"])
    for query in queries:
        name = names[query.sample]
        draft = [f"{DRAFTS}/{name}"] if drafts else []
        writer.writerow([query.sample, query.rank, f"{query.score:.6g}", f"{IMAGES}/{name}", *draft, ""])
    return text.getvalue()


def _write_drafts(site: PreparedSite, folder: Path, names: dict[str, str], predict_masks: PredictMasks) -> None:
    for samples in _batches(list(names)):
        for sample, mask in zip(samples, predict_masks(samples), strict=True):
            write_bytes(folder / names[sample], encode_png(mask_to_pil(mask, classes=len(site.classes))))


def _batches(samples: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield a few samples at a time, so that a large request needs little memory."""
    for start in range(0, len(samples), _BATCH):
        yield samples[start : start + _BATCH]


def _check_links(folder: Path) -> None:
    for path in (folder, folder / IMAGES, folder / DRAFTS):
        if path.is_symlink() and not is_inside(path, folder.parent):
            raise FealError(f"{path} is a link out of the annotation folder: remove it and repeat the command.")


def _read_content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _sweep(folder: Path, *, keep: Iterable[str]) -> None:
    """Remove the images of another request in the same folder."""
    kept = set(keep)
    for path in folder.glob("*.png"):
        if path.name not in kept and not path.is_dir():
            path.unlink(missing_ok=True)
