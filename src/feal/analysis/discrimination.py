"""ROC-AUC of a run's global models: exact, from what the sites kept of each test sample, so in simulation only."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from feal.data import PreparedSet, PreparedSite, locate, open_labels, open_prepared
from feal.errors import FealError
from feal.evidential import build_loss
from feal.fileio import damage_error, read_tensors
from feal.metrics.classification import Scores, class_roc_auc, mean_of_known, roc_auc
from feal.rundir.journal import read_settings
from feal.rundir.layout import RunDirectory, SiteDirectory
from feal.rundir.site_store import Store
from feal.selection import SelectionContext


@dataclass(frozen=True, kw_only=True)
class Discrimination:
    """How well the global model of a round separates each class from the rest; None where it is not defined."""

    round: int
    mean: float | None
    """Over the sites."""
    pooled: float | None
    """Over all sites' test samples."""
    sites: Mapping[str, float | None]
    classes: tuple[float | None, ...]
    """Pooled, of each class."""


def read_discrimination(path: Path, *, draw: bool = True) -> list[Discrimination]:
    """Compute the ROC-AUC of every round of a classification run whose site directories and data are available.

    A synthetic data set that is missing is generated again, unless `draw` is off.

    Raises:
        FealError: no run there, one for segmentation, one without `diagnostics`, or other data than it had.
    """
    settings = read_settings(path)
    data = open_prepared(locate(settings.dataset, data=settings.data, draw=draw))
    if data.task != "classification":
        raise FealError(f"{path} is a run for {data.task}, which has no ROC curve: look at its Dice and HD95.")
    kept = {site: site.tested_rounds() for site in RunDirectory(path).site_directories()}
    if not any(kept.values()):
        raise FealError(f"{path} kept nothing of its test samples: run it with diagnostics=true in simulation.")
    for site in kept:
        _check_data(site, data)
    context = SelectionContext.for_reading(
        task=data.task, classes=len(data.classes), loss=build_loss(settings.loss)
    )
    rounds: dict[int, dict[str, tuple[Scores, NDArray[np.integer]]]] = {}
    for site, numbers in kept.items():
        prepared = data.site(site.name, validation=settings.validation)
        for number in numbers:
            rounds.setdefault(number, {})[site.name] = _read_samples(site.test_outputs(number), prepared, context)
    return [_discrimination(number, samples) for number, samples in sorted(rounds.items())]


def _check_data(site: SiteDirectory, data: PreparedSet) -> None:
    with closing(Store(site.database, read_only=True)) as store:
        known = store.data_digest()
    if known != data.digest:
        raise FealError(
            f"{data.root} is not the prepared set that {site.path} had in the run: put that one there."
        )


def _read_samples(
    file: Path, prepared: PreparedSite, context: SelectionContext
) -> tuple[Scores, NDArray[np.integer]]:
    kept = read_tensors(file)
    rows = prepared.rows(prepared.ids("test"))
    if not {"rows", "logits"} <= kept.keys():
        raise damage_error(file, "rows or logits are missing")
    if not np.array_equal(kept["rows"].numpy(), rows):
        raise FealError(
            f"{file} is of other test samples than {prepared.folder} has: put the run's own data there."
        )
    return context.probability(kept["logits"]).double().numpy(), open_labels(prepared).read(rows).numpy()


def _discrimination(number: int, samples: Mapping[str, tuple[Scores, NDArray[np.integer]]]) -> Discrimination:
    sites = {site: roc_auc(*scored) for site, scored in samples.items()}
    probability, target = (np.concatenate(parts) for parts in zip(*samples.values(), strict=True))
    classes = class_roc_auc(probability, target)
    mean, pooled = mean_of_known(sites.values()), mean_of_known(classes)
    return Discrimination(round=number, mean=mean, pooled=pooled, sites=sites, classes=classes)
