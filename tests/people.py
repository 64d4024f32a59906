"""Annotators for tests: they read requests as people would, and know the truth."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from feal.data import PreparedSet, locate, open_labels, open_prepared
from feal.settings import Settings


@dataclass(frozen=True)
class Asked:
    """A line of a request."""

    folder: Path
    site: str
    sample: str
    picture: str


def data_of(settings: Settings) -> PreparedSet:
    """The data behind a run."""
    return open_prepared(locate(settings.dataset, data=settings.data))


def requests(run: Path, *, round_: int | None = None, site: str = "*") -> list[Asked]:
    """Everything that was asked for, in the order of folders and ranks."""
    name = "round-*" if round_ is None else f"round-{round_:03}"
    sheets = sorted(run.glob(f"sites/{site}/annotation/{name}/request.csv"))
    return [asked for sheet in sheets for asked in _lines(sheet)]


def _lines(sheet: Path) -> Iterator[Asked]:
    with sheet.open(newline="") as file:
        for row in csv.DictReader(file):
            yield Asked(sheet.parent, sheet.parents[2].name, row["sample"], Path(row["image"]).name)


def truth(data: PreparedSet, asked: Asked) -> int | np.ndarray:
    """The true label of what was asked."""
    label = open_labels(data.site(asked.site)).of([asked.sample]).numpy()[0]
    return label.astype(np.uint8) if label.ndim else int(label)


def write_answers(folder: Path, rows: Sequence[tuple[str, object]], *, by: str = "ann") -> None:
    """Fill in a round's `answers.csv`."""
    with (folder / "answers.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["sample", "label", "by"])
        writer.writerows([sample, label, by] for sample, label in rows)


def answer_all(run: Path, data: PreparedSet) -> None:
    """Answer every request with the truth, as a sheet or as masks drawn over the drafts."""
    by_folder: dict[Path, list[tuple[str, object]]] = {}
    for asked in requests(run):
        label = truth(data, asked)
        if isinstance(label, int):
            by_folder.setdefault(asked.folder, []).append((asked.sample, label))
        else:
            draw_mask(asked, label)
    for folder, rows in by_folder.items():
        write_answers(folder, rows)


def draw_mask(asked: Asked, mask: np.ndarray) -> None:
    """Draw over the draft where there is one, and save it as an answer."""
    draft = asked.folder / "drafts" / asked.picture
    picture = Image.open(draft) if draft.exists() else Image.new("L", mask.shape[::-1])
    pixels = np.array(picture)
    pixels[...] = mask
    answer = Image.fromarray(pixels)
    if picture.mode == "P":
        answer.putpalette(picture.getpalette())
    (asked.folder / "masks").mkdir(exist_ok=True)
    answer.save(asked.folder / "masks" / asked.picture)
