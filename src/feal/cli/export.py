"""All labels of a run as a table and, for segmentation, pictures."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from feal.annotation.request import file_name
from feal.data.pictures import mask_picture, png_bytes
from feal.errors import FealError
from feal.federation.history import Record
from feal.federation.store import Store
from feal.files import from_system, write_bytes, write_text

COLUMNS = (
    "site",
    "sample",
    "round",
    "rank",
    "score",
    "model",
    "asked",
    "label",
    "class",
    "mask",
    "answered",
    "by",
    "corrected",
    "superseded",
)
DECLINED = "cannot be labelled"


def export_labels(sites: Mapping[str, Path], out: Path, *, classes: Sequence[str]) -> int:
    """Write `labels.csv`, masks beside it, into a new folder; gives the number of rows.

    Raises:
        FealError: the folder holds something already, or cannot be written.
    """
    _check_empty(out)
    rows = [row for site, folder in sites.items() for row in _rows(site, folder, out, classes)]
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(out / "labels.csv", text.getvalue())
    return len(rows)


def _rows(site: str, folder: Path, out: Path, classes: Sequence[str]) -> Iterator[dict[str, object]]:
    past: dict[str, int] = {}
    with closing(Store(folder / "site.sqlite", read_only=True)) as store:
        for record in store.records():
            past[record.sample] = past.get(record.sample, 0) + record.superseded
            mask = _mask_name(site, record, past[record.sample])
            if isinstance(record.label, np.ndarray):
                known = max(len(classes), int(record.label.max(initial=0)) + 1)
                write_bytes(out / mask, png_bytes(mask_picture(record.label, classes=known)))
            yield {
                "site": site,
                "sample": record.sample,
                "round": record.round,
                "rank": record.rank,
                "score": record.score,
                "model": record.model,
                "asked": record.asked,
                **_label(record, classes),
                "mask": mask if isinstance(record.label, np.ndarray) else "",
                "answered": record.answered or "",
                "by": record.by or "",
                "corrected": record.corrected,
                "superseded": "yes" if record.superseded else "",
            }


def _label(record: Record, classes: Sequence[str]) -> dict[str, object]:
    if isinstance(record.label, int):
        name = classes[record.label] if record.label < len(classes) else ""
        return {"label": record.label, "class": name}
    declined = record.label is None and record.answered is not None
    return {"label": "", "class": DECLINED if declined else ""}


def _mask_name(site: str, record: Record, past: int) -> str:
    name = Path(f"{record.round:03}-{file_name(record.rank, record.sample)}")
    return f"masks/{site}/{name.stem}{f'-superseded-{past}' if record.superseded else ''}.png"


def _check_empty(out: Path) -> None:
    try:
        taken = out.exists() and (not out.is_dir() or any(out.iterdir()))
    except OSError as error:
        raise from_system(error) from error
    if taken:
        raise FealError(f"{out} is there already and not empty: name a new folder for the export.")
