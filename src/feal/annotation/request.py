"""Write a round's request for people: images, drafts of masks, a table to fill in, and instructions."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from feal.annotation.base import PredictMasks, Query
from feal.data import PreparedSite
from feal.data.images import class_colours, encode_png, mask_to_pil, to_pil
from feal.errors import FealError
from feal.fileio import render_template, write_bytes, write_text

REQUEST, ANSWERS, README = "request.csv", "answers.csv", "README.txt"
IMAGES, DRAFTS, MASKS = "images", "drafts", "masks"

_BATCH = 16
"""Images at a time, so that a large request needs little memory."""
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
    samples = list(names)
    for start in range(0, len(samples), _BATCH):
        batch = samples[start : start + _BATCH]
        for sample, image in zip(batch, site.images(batch).numpy(), strict=True):
            write_bytes(folder / IMAGES / names[sample], encode_png(to_pil(image)))
        if predict_masks is not None:
            for sample, mask in zip(batch, predict_masks(batch), strict=True):
                drawn = mask_to_pil(mask, classes=len(site.classes))
                write_bytes(folder / DRAFTS / names[sample], encode_png(drawn))
    _sweep(folder / IMAGES, keep=names.values())
    _sweep(folder / DRAFTS, keep=names.values() if predict_masks is not None else ())
    instructions = render_template(
        Path(__file__).parent / "templates" / README,
        site=site,
        round=queries[0].round,
        asked=len(queries),
        has_drafts=predict_masks is not None,
        colours=class_colours(len(site.classes)),
    )
    write_text(folder / README, instructions)
    write_text(folder / REQUEST, sheet)


def _make_sheet(queries: Sequence[Query], names: dict[str, str], *, drafts: bool) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["sample", "rank", "score", "image", *(["draft"] if drafts else []), "label"])
    for query in queries:
        name = names[query.sample]
        draft = [f"{DRAFTS}/{name}"] if drafts else []
        writer.writerow([query.sample, query.rank, f"{query.score:.6g}", f"{IMAGES}/{name}", *draft, ""])
    return text.getvalue()


def is_inside(path: Path, root: Path) -> bool:
    """Return whether a path, links followed, exists at or below `root`."""
    try:
        return path.resolve(strict=True).is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # RuntimeError: links in a circle, before Python 3.13
        return False


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
