"""Read what the sites of a run kept of single samples; nothing where their directories are elsewhere."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from feal.analysis.runs import Run
from feal.data import PreparedSet, PreparedSite, locate, open_labels, open_prepared
from feal.errors import FealError
from feal.evidential import build_loss
from feal.fileio import damage_error, read_tensors
from feal.metrics.classification import Scores, class_roc_auc, roc_auc
from feal.metrics.statistics import mean_of_known
from feal.rundir.artifacts import read_outputs
from feal.rundir.journal import read_settings
from feal.rundir.layout import RunDirectory, SiteDirectory
from feal.rundir.site_store import LabelRecord, Store
from feal.selection import SelectionContext
from feal.settings import Settings

Outputs = Mapping[str, torch.Tensor]
LabelledScores = tuple[Scores, NDArray[np.integer]]
"""Probabilities [n, classes], and the true classes [n]."""


def read_pool(run: Run, round_: int) -> dict[str, Outputs]:
    """Read both models' outputs for each unlabelled sample at the end of a round, by site."""
    return _read_sites(run, lambda site: site.pool_outputs(round_))


def make_context(run: Run) -> SelectionContext:
    """Return the context that turns the run's logits into probabilities and evidence."""
    return SelectionContext.for_reading(
        task=run.task, classes=len(run.classes), loss=build_loss(run.settings.loss)
    )


def read_pool_logits(run: Run, round_: int) -> torch.Tensor:
    """Return the global model's logits at the end of a round for all sites' unlabelled samples, [n, C]."""
    return _concatenate(run, [kept["logits_global"] for kept in _with_logits(run, round_).values()])


def read_selected_logits(run: Run, round_: int) -> torch.Tensor:
    """Return the same for the samples that were then selected, [n, C]; none where the sites did not mark them."""
    pools = [kept for kept in _with_logits(run, round_).values() if "selected" in kept]
    selected = [kept["logits_global"][torch.isin(kept["rows"], kept["selected"])] for kept in pools]
    return _concatenate(run, selected)


def read_energies(run: Run, round_: int) -> dict[str, NDArray[np.float64]]:
    """Return the energy -logsumexp(z) of each test sample under a round's global model, by site.

    Segmentation stores each image's mean over pixels.
    """
    outputs = _read_sites(run, lambda site: site.test_outputs(round_))
    energies = {
        site: kept["energy"] if "energy" in kept else -torch.logsumexp(kept["logits"].double(), dim=1)
        for site, kept in outputs.items()
    }
    return {site: energy.double().numpy() for site, energy in energies.items()}


def count_found_labels(run: Run) -> NDArray[np.float64]:
    """Count the labels (or labelled pixels) of each class queried up to each round, [rounds, classes].

    Raises:
        FealError: a site's labels cannot be read.
    """
    classes = len(run.classes)
    found: dict[int, NDArray[np.float64]] = defaultdict(lambda: np.zeros(classes))
    for site in RunDirectory(run.path).site_directories():
        with closing(Store(site.database, read_only=True)) as store:
            for record in store.records():
                if record.label is not None and not record.superseded:
                    found[record.round] += np.bincount(np.ravel(record.label), minlength=classes)
    so_far = [
        sum((counts for number, counts in found.items() if number <= record.round), start=np.zeros(classes))
        for record in run.rounds
    ]
    return np.array(so_far).reshape(-1, classes)


def read_labels(site: SiteDirectory, samples: Collection[str]) -> dict[str, LabelRecord]:
    """Return the current records of the samples that were queried."""
    with closing(Store(site.database, read_only=True)) as store:
        current = (record for record in store.records() if not record.superseded)
        return {record.sample: record for record in current if record.sample in samples}


def open_run_data(path: Path, settings: Settings, *, draw: bool = True, otherwise: str = "") -> PreparedSet:
    """Open the prepared data of a run; a synthetic set that is missing is generated, unless `draw` is off.

    Raises:
        FealError: they are missing, or a site had others; `otherwise` adds what else can be done.
    """
    data = open_prepared(locate(settings.dataset, data=settings.data, draw=draw))
    for site in RunDirectory(path).site_directories():
        with closing(Store(site.database, read_only=True)) as store:
            known = store.data_digest()
        if known != data.digest:
            raise FealError(
                f"{data.root} is not the prepared set that {site.path} had in the run: put that one there, or set "
                f"FEAL_DATA to the directory that holds it{otherwise}."
            )
    return data


@dataclass(frozen=True, kw_only=True)
class Discrimination:
    """ROC-AUC of a round's global model, each class against the rest; None where it is not defined."""

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

    It is exact, from what the sites kept of each test sample, so in simulation only. `draw`: see `open_run_data`.

    Raises:
        FealError: no run there, one for segmentation, one without `diagnostics`, or other data than it had.
    """
    settings = read_settings(path)
    data = open_run_data(path, settings, draw=draw)
    if data.task != "classification":
        raise FealError(f"{path} is a run for {data.task}, which has no ROC curve: look at its Dice and HD95.")
    kept = {site: site.tested_rounds() for site in RunDirectory(path).site_directories()}
    if not any(kept.values()):
        raise FealError(f"{path} kept nothing of its test samples: run it with diagnostics=true in simulation.")
    context = SelectionContext.for_reading(
        task=data.task, classes=len(data.classes), loss=build_loss(settings.loss)
    )
    rounds: dict[int, dict[str, LabelledScores]] = defaultdict(dict)
    for site, numbers in kept.items():
        prepared = data.site(site.name, validation=settings.validation, redraw=settings.redraw)
        for number in numbers:
            rounds[number][site.name] = _read_scores(site.test_outputs(number), prepared, context)
    return [_discriminate(number, scores) for number, scores in sorted(rounds.items())]


def _read_sites(run: Run, locate: Callable[[SiteDirectory], Path]) -> dict[str, Outputs]:
    outputs = {site: read_outputs(locate(RunDirectory(run.path).site(site))) for site in run.sites}
    return {site: kept for site, kept in outputs.items() if kept}


def _with_logits(run: Run, round_: int) -> dict[str, Outputs]:
    """Return pools with a scored sample; none for segmentation, which stores no logits."""
    return {site: kept for site, kept in read_pool(run, round_).items() if "logits_global" in kept}


def _concatenate(run: Run, logits: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([torch.empty(0, len(run.classes)), *logits])


def _read_scores(file: Path, prepared: PreparedSite, context: SelectionContext) -> LabelledScores:
    kept = read_tensors(file)
    rows = prepared.rows(prepared.ids("test"))
    if not {"rows", "logits"} <= kept.keys():
        raise damage_error(file, "rows or logits are missing")
    if not np.array_equal(kept["rows"].numpy(), rows):
        raise FealError(
            f"{file} is of other test samples than {prepared.folder} has: put the run's own data there."
        )
    return context.probability(kept["logits"]).double().numpy(), open_labels(prepared).read(rows).numpy()


def _discriminate(number: int, scores: Mapping[str, LabelledScores]) -> Discrimination:
    sites = {site: roc_auc(*scored) for site, scored in scores.items()}
    probability, target = (np.concatenate(parts) for parts in zip(*scores.values(), strict=True))
    classes = class_roc_auc(probability, target)
    mean, pooled = mean_of_known(sites.values()), mean_of_known(classes)
    return Discrimination(round=number, mean=mean, pooled=pooled, sites=sites, classes=classes)
