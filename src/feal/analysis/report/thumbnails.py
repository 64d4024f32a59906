"""Thumbnails of the selected images, for readers who may see them."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from feal.analysis.report.provenance import list_manifests
from feal.analysis.runs import Run, group_by_arm
from feal.data import PreparedSet, PreparedSite, locate, open_prepared
from feal.data.images import make_tile, outline_mask
from feal.errors import FealError
from feal.rundir.artifacts import SelectedSample, read_origins, read_pool_outputs, read_selection
from feal.rundir.layout import RunDirectory, SiteDirectory
from feal.rundir.site_store import LabelRecord, Store

MAX_ARMS = 4
MAX_PER_SITE = 8
MAX_THUMBNAILS = 1200
"""Of about 3 kB each, so that the page stays well below 15 MB."""


@dataclass(frozen=True, kw_only=True)
class Thumbnail:
    """A selected image with its score, its prediction and its label."""

    rank: int
    jpeg: str
    """Base64."""
    score: str
    parts: tuple[tuple[str, str], ...]
    prediction: str
    label: str


@dataclass(frozen=True, kw_only=True)
class GalleryGroup:
    """The images that a run selected in a round, by site, best first."""

    arm: str
    round: int
    sites: Mapping[str, Sequence[Thumbnail]]


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Some of the selected images, and a sentence that says which."""

    about: str
    groups: tuple[GalleryGroup, ...]


def make_gallery(runs: Sequence[Run], *, first: Sequence[str] = ()) -> Gallery:
    """Return the first ranks of every round and site, for one run each of some arms, those in `first` first.

    Raises:
        FealError: the prepared images are missing, or are not those of the runs.
    """
    named = group_by_arm(runs)
    order = sorted(named, key=lambda arm: first.index(arm) if arm in first else len(first))
    shown = {arm: named[arm][0] for arm in order[:MAX_ARMS]}
    rounds = {arm: _find_tables(run) for arm, run in shown.items()}
    lists = sum(len(sites) for tables in rounds.values() for sites in tables.values())
    each = max(1, min(MAX_PER_SITE, MAX_THUMBNAILS // max(1, lists)))
    about = (
        f"The first {each} by rank of every round and site, of the run with the lowest seed of "
        f"{', '.join(shown)}. They are patients' images: protect this file as you protect them."
    )
    groups = tuple(
        GalleryGroup(
            arm=arm,
            round=number,
            sites={
                site.name: _make_thumbnails(shown[arm], site, number, read_selection(site, number)[:each])
                for site in sites
            },
        )
        for arm, tables in rounds.items()
        for number, sites in tables.items()
    )
    return Gallery(about=about, groups=groups)


def _find_tables(run: Run) -> dict[int, list[SiteDirectory]]:
    """Return the sites that queried samples for each round."""
    tables: dict[int, list[SiteDirectory]] = {}
    for site in map(RunDirectory(run.path).site, run.sites):
        for number in site.selected_rounds():
            tables.setdefault(number, []).append(site)
    return dict(sorted(tables.items()))


def _open_data(run: Run) -> PreparedSet:
    settings = run.settings
    found = open_prepared(locate(settings.dataset, data=settings.data))
    noted = list_manifests(run, read_origins(run.path))
    if noted and found.digest not in noted:
        raise FealError(
            f"The prepared data in {found.root} are not those of {run.path}: "
            "set FEAL_DATA to the directory that holds those, or omit --pictures."
        )
    return found


def _make_thumbnails(
    run: Run, directory: SiteDirectory, round_: int, selected: Sequence[SelectedSample]
) -> list[Thumbnail]:
    site = _open_data(run).site(directory.name, validation=run.settings.validation)
    return list(_draw(run, site, directory, round_, selected)) if selected else []


def _draw(
    run: Run, site: PreparedSite, directory: SiteDirectory, round_: int, selected: Sequence[SelectedSample]
) -> Iterator[Thumbnail]:
    ids = [row.sample for row in selected]
    rows = site.rows(ids)
    images = site.read(rows).numpy()
    predicted = _read_predictions(run, directory, round_ - 1)
    labels = _read_labels(directory.database, set(ids))
    unknown = "not stored" if round_ > 1 else "no model yet"
    for row, place, image in zip(selected, rows.tolist(), images, strict=True):
        record = labels.get(row.sample)
        picture = make_tile(image)
        if record is not None and isinstance(record.label, np.ndarray):
            picture = outline_mask(picture, record.label, len(site.classes))
        yield Thumbnail(
            rank=row.rank,
            jpeg=_encode_jpeg(picture),
            score=f"{row.score:.3f}",
            parts=tuple((name.replace("_", " "), f"{value:.3f}") for name, value in row.parts.items()),
            prediction=site.classes[predicted[place]] if place in predicted else unknown,
            label=_describe_label(record, site.classes),
        )


def _read_predictions(run: Run, site: SiteDirectory, round_: int) -> dict[int, int]:
    """Return the global model's class of each sample of the pool, by its row."""
    outputs = read_pool_outputs(site, round_)
    if run.task == "segmentation" or "logits_global" not in outputs:
        return {}
    classes = outputs["logits_global"].argmax(1).tolist()
    return dict(zip(outputs["rows"].tolist(), classes, strict=True))


def _read_labels(store: Path, ids: set[str]) -> dict[str, LabelRecord]:
    with closing(Store(store, read_only=True)) as opened:
        return {
            record.sample: record for record in opened.records() if record.sample in ids and not record.superseded
        }


def _describe_label(record: LabelRecord | None, classes: Sequence[str]) -> str:
    if record is None or record.answered is None:
        return "pending"
    if record.label is None:
        return "cannot be labelled"
    return "outlined" if isinstance(record.label, np.ndarray) else classes[record.label]


def _encode_jpeg(picture: Image.Image) -> str:
    buffer = io.BytesIO()
    picture.convert("RGB").save(buffer, format="JPEG", quality=82)
    return base64.b64encode(buffer.getvalue()).decode()
