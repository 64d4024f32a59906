"""The chosen samples as thumbnails, for those who may see them."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from feal.analysis.report.reproduction import manifests_of
from feal.analysis.runs import Run, arms
from feal.data import PreparedSet, PreparedSite, located, open_prepared
from feal.data.contact_sheet import outlined, tile
from feal.errors import FealError
from feal.experiment.origin import read_origin
from feal.federation.history import Record
from feal.federation.store import Store
from feal.files import damaged, read_tensors

MOST_ARMS = 4
MOST_OF_A_GROUP = 8
MOST = 1200
"""Thumbnails of some 3 kB each, so that the page stays well below 15 MB."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A chosen sample: its thumbnail, why it was chosen, what was predicted and what it is."""

    rank: int
    jpeg: str
    """Base64."""
    score: str
    parts: tuple[tuple[str, str], ...]
    prediction: str
    label: str


@dataclass(frozen=True, kw_only=True)
class Group:
    """What an arm's run asked for in a round, by site, best first."""

    arm: str
    round: int
    sites: Mapping[str, Sequence[Picture]]


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Some of all pictures, and a sentence that says which."""

    about: str
    groups: tuple[Group, ...]


def gallery(runs: Sequence[Run], *, foremost: Sequence[str] = ()) -> Gallery:
    """The first ranks of every round and site, for a run each of some arms, the foremost first.

    Raises:
        FealError: the prepared images are out of reach, or not those that the runs saw.
    """
    named = arms(runs)
    order = sorted(named, key=lambda arm: foremost.index(arm) if arm in foremost else len(foremost))
    shown = {arm: named[arm][0] for arm in order[:MOST_ARMS]}
    rounds = {arm: _tables(run) for arm, run in shown.items()}
    lists = sum(len(sites) for tables in rounds.values() for sites in tables.values())
    each = max(1, min(MOST_OF_A_GROUP, MOST // max(1, lists)))
    about = (
        f"The first {each} by rank of every round and site, of the run with the lowest seed of "
        f"{', '.join(shown)}. These are pictures of patients: keep this file as you keep them."
    )
    groups = tuple(
        Group(
            arm=arm,
            round=number,
            sites={
                site: _pictures(shown[arm], site, number, list(_chosen(file))[:each])
                for site, file in sites.items()
            },
        )
        for arm, tables in rounds.items()
        for number, sites in tables.items()
    )
    return Gallery(about=about, groups=groups)


def _tables(run: Run) -> dict[int, dict[str, Path]]:
    """Files of what was chosen, by round and site."""
    tables: dict[int, dict[str, Path]] = {}
    for site in run.sites:
        for file in (run.path / "sites" / site / "selections").glob("round-*.csv"):
            tables.setdefault(int(file.stem.removeprefix("round-")), {})[site] = file
    return dict(sorted(tables.items()))


def _prepared(run: Run) -> PreparedSet:
    settings = run.settings
    found = open_prepared(located(settings))
    noted = manifests_of(run, read_origin(run.path))
    if noted and found.digest not in noted:
        raise FealError(
            f"The prepared data in {found.root} are not those that {run.path} saw: "
            "set FEAL_DATA to the folder that holds those, or leave --pictures out."
        )
    return found


def _chosen(table: Path) -> Iterator[dict[str, str]]:
    try:
        with table.open(newline="") as file:
            yield from csv.DictReader(file)
    except (OSError, csv.Error, ValueError) as error:
        raise damaged(table, str(error)) from error


def _pictures(run: Run, name: str, round_: int, chosen: Sequence[Mapping[str, str]]) -> list[Picture]:
    site = _prepared(run).site(name, validation=run.settings.validation)
    return list(_drawn(run, site, round_, chosen)) if chosen else []


def _drawn(run: Run, site: PreparedSite, round_: int, chosen: Sequence[Mapping[str, str]]) -> Iterator[Picture]:
    ids = [row["sample"] for row in chosen]
    rows = site.rows(ids)
    images = site.read(rows).numpy()
    predicted = _predicted(run, site.name, round_ - 1)
    answers = _answers(run.path / "sites" / site.name / "site.sqlite", set(ids))
    unknown = "not kept" if round_ > 1 else "no model yet"
    for row, place, image in zip(chosen, rows.tolist(), images, strict=True):
        record = answers.get(row["sample"])
        picture = tile(image)
        if record is not None and isinstance(record.label, np.ndarray):
            picture = outlined(picture, record.label, len(site.classes))
        yield Picture(
            rank=int(row["rank"]),
            jpeg=_jpeg(picture),
            score=_short(row["score"]),
            parts=tuple(
                (name.replace("_", " "), _short(value))
                for name, value in row.items()
                if name not in ("sample", "rank", "score")
            ),
            prediction=site.classes[predicted[place]] if place in predicted else unknown,
            label=_label(record, site.classes),
        )


def _predicted(run: Run, site: str, round_: int) -> dict[int, int]:
    """The class that the global model gave to each sample of the pool, by its row."""
    file = run.path / "sites" / site / "diagnostics" / f"round-{round_:03}.safetensors"
    if run.task == "segmentation" or not file.is_file():
        return {}
    kept = read_tensors(file)
    if "logits_global" not in kept:
        return {}
    classes = kept["logits_global"].argmax(1).tolist()
    return dict(zip(kept["rows"].tolist(), classes, strict=True))


def _answers(store: Path, ids: set[str]) -> dict[str, Record]:
    with closing(Store(store, read_only=True)) as opened:
        return {
            record.sample: record for record in opened.records() if record.sample in ids and not record.superseded
        }


def _label(record: Record | None, classes: Sequence[str]) -> str:
    if record is None or record.answered is None:
        return "awaited"
    if record.label is None:
        return "cannot be labelled"
    return "outlined" if isinstance(record.label, np.ndarray) else classes[record.label]


def _jpeg(picture: Image.Image) -> str:
    buffer = io.BytesIO()
    picture.convert("RGB").save(buffer, format="JPEG", quality=82)
    return base64.b64encode(buffer.getvalue()).decode()


def _short(number: str) -> str:
    try:
        return f"{float(number):.3f}"
    except ValueError:
        return number
