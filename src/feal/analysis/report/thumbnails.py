"""Thumbnails of the selected images, for readers who may see them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from feal.analysis.arms import group_by_arm
from feal.analysis.outputs import open_run_data, read_labels
from feal.analysis.plots.maps import encode_picture
from feal.analysis.runs import Run
from feal.data import PreparedSite
from feal.data.images import make_tile, outline_mask
from feal.rundir.artifacts import SelectedSample, read_outputs, read_selection
from feal.rundir.layout import RunDirectory, SiteDirectory
from feal.rundir.site_store import LabelRecord

MAX_ARMS = 4
MAX_PER_SITE = 8
MAX_THUMBNAILS = 1200
"""Of about 3 kB each, so that the page stays well below 15 MB."""


@dataclass(frozen=True, kw_only=True)
class Thumbnail:
    """A selected image, its prediction and its label."""

    sample: SelectedSample
    picture: str
    """A data URI."""
    prediction: str
    label: str


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Some of the selected images, and a sentence that says which."""

    about: str
    groups: Mapping[tuple[str, int], Mapping[str, Sequence[Thumbnail]]]
    """By arm and round, then by site, best first."""


def make_gallery(runs: Sequence[Run], *, first: Sequence[str] = ()) -> Gallery:
    """Return the first ranks of every round and site, for one run each of some arms, those in `first` first.

    Raises:
        FealError: the prepared images are missing, or are not those of the runs.
    """
    order = sorted(group_by_arm(runs), key=lambda arm: first.index(arm.name) if arm.name in first else len(first))
    shown = {arm.name: arm.runs[0] for arm in order[:MAX_ARMS]}
    lists = sum(len(site.selected_rounds()) for run in shown.values() for site in _sites(run))
    each = max(1, min(MAX_PER_SITE, MAX_THUMBNAILS // max(1, lists)))
    about = (
        f"The first {each} by rank of every round and site, of the run with the lowest seed of "
        f"{', '.join(shown)}. They are patients' images: protect this file as you protect them."
    )
    groups = {(arm, number): sites for arm, run in shown.items() for number, sites in _draw_rounds(run, each)}
    return Gallery(about=about, groups=groups)


def _sites(run: Run) -> list[SiteDirectory]:
    return [RunDirectory(run.path).site(name) for name in run.sites]


def _draw_rounds(run: Run, each: int) -> list[tuple[int, dict[str, list[Thumbnail]]]]:
    data = open_run_data(run.path, run.settings, otherwise=", or omit --pictures")
    rounds: dict[int, dict[str, list[Thumbnail]]] = defaultdict(dict)
    for directory in _sites(run):
        site = data.site(directory.name, validation=run.settings.validation, redraw=run.settings.redraw)
        for number in directory.selected_rounds():
            selected = read_selection(directory, number)[:each]
            rounds[number][site.name] = list(_draw(run, site, directory, number, selected))
    return sorted(rounds.items())


def _draw(
    run: Run, site: PreparedSite, directory: SiteDirectory, round_: int, selected: Sequence[SelectedSample]
) -> Iterator[Thumbnail]:
    ids = [row.sample for row in selected]
    rows = site.rows(ids)
    images = site.images(ids).numpy()
    predicted = _read_predictions(run, directory, round_ - 1)
    labels = read_labels(directory, ids)
    unknown = "not stored" if round_ > 1 else "no model yet"
    for row, place, image in zip(selected, rows.tolist(), images, strict=True):
        record = labels.get(row.sample)
        picture = make_tile(image)
        if record is not None and isinstance(record.label, np.ndarray):
            picture = outline_mask(picture, record.label, len(site.classes))
        yield Thumbnail(
            sample=row,
            picture=encode_picture(picture, "JPEG", quality=82),
            prediction=site.classes[predicted[place]] if place in predicted else unknown,
            label=_describe_label(record, site.classes),
        )


def _read_predictions(run: Run, site: SiteDirectory, round_: int) -> dict[int, int]:
    """Return the global model's class of each sample of the pool, by its row."""
    outputs = read_outputs(site.pool_outputs(round_))
    if run.task == "segmentation" or "logits_global" not in outputs:
        return {}
    classes = outputs["logits_global"].argmax(1).tolist()
    return dict(zip(outputs["rows"].tolist(), classes, strict=True))


def _describe_label(record: LabelRecord | None, classes: Sequence[str]) -> str:
    if record is None or record.answered is None:
        return "pending"
    if record.label is None:
        return "cannot be labelled"
    return "outlined" if isinstance(record.label, np.ndarray) else classes[record.label]
