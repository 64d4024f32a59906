"""ROC-AUC of a run's global models: exact, from what the sites kept of each test sample, so in simulation only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from feal.data import PreparedSet, PreparedSite, located, open_prepared, open_truth
from feal.errors import FealError
from feal.experiment.folder import RunFolder, settings_of
from feal.federation.store import Store
from feal.files import damaged, read_tensors
from feal.selection import Context

Scores = NDArray[np.floating]


@dataclass(frozen=True, kw_only=True)
class Discrimination:
    """How well a round's global model tells each class from the rest; None where no class can be judged."""

    round: int
    mean: float | None
    """Of the sites' figures."""
    pooled: float | None
    """Over all sites' test samples."""
    sites: Mapping[str, float | None]
    classes: tuple[float | None, ...]
    """Pooled, of each class."""


def class_roc_auc(probability: Scores, truth: NDArray[np.integer]) -> tuple[float | None, ...]:
    """Area under the ROC curve of each class against the rest.

    The share of pairs (a sample of the class, one of another) that are in the right order; a tie counts half.

    Args:
        probability: [n, classes], or any score that grows with it.
        truth: class of each sample [n].

    Returns:
        A number for each class; None for one that no sample has, or every sample.

    >>> class_roc_auc(np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]]), np.array([0, 1, 1]))
    (1.0, 1.0)
    """
    return tuple(_area(column, truth == number) for number, column in enumerate(probability.T))


def roc_auc(probability: Scores, truth: NDArray[np.integer]) -> float | None:
    """Mean of `class_roc_auc` over the classes that have one."""
    return _mean(class_roc_auc(probability, truth))


def read_discrimination(path: Path, *, draw: bool = True) -> list[Discrimination]:
    """The ROC-AUC of every round of a classification run whose sites' folders and data are at hand.

    A synthetic set that is gone is drawn again, unless `draw` is off.

    Raises:
        FealError: no run there, one for segmentation, one without `diagnostics`, or other data than it had.
    """
    settings = settings_of(RunFolder(path))
    data = open_prepared(located(settings, draw=draw))
    if data.task != "classification":
        raise FealError(f"{path} is a run for {data.task}, which has no ROC curve: look at its Dice and HD95.")
    kept = sorted((path / "sites").glob("*/diagnostics/evaluation-*.safetensors"))
    if not kept:
        raise FealError(f"{path} kept nothing of its test samples: run it with diagnostics=true in simulation.")
    for folder in sorted({file.parent.parent for file in kept}):
        _check_data(folder, data)
    context = Context.for_reading(
        task=data.task, classes=len(data.classes), evidence=settings.evidence, loss=settings.loss or "plain"
    )
    rounds: dict[int, dict[str, tuple[Scores, NDArray[np.integer]]]] = {}
    for file in kept:
        number, site = int(file.stem.removeprefix("evaluation-")), file.parent.parent.name
        prepared = data.site(site, validation=settings.validation)
        rounds.setdefault(number, {})[site] = _samples(file, prepared, context)
    return [_discrimination(number, samples) for number, samples in sorted(rounds.items())]


def _check_data(site: Path, data: PreparedSet) -> None:
    with closing(Store(site / "site.sqlite", read_only=True)) as store:
        known = store.data()
    if known != data.digest:
        raise FealError(f"{data.root} is not the prepared set that {site} had in the run: put that one there.")


def _samples(file: Path, prepared: PreparedSite, context: Context) -> tuple[Scores, NDArray[np.integer]]:
    kept = read_tensors(file)
    rows = prepared.rows(prepared.ids("test"))
    if not {"rows", "logits"} <= kept.keys():
        raise damaged(file, "rows or logits are missing")
    if not np.array_equal(kept["rows"].numpy(), rows):
        raise FealError(
            f"{file} is of other test samples than {prepared.folder} has: put the run's own data there."
        )
    return context.probability(kept["logits"]).double().numpy(), open_truth(prepared).read(rows).numpy()


def _discrimination(number: int, samples: Mapping[str, tuple[Scores, NDArray[np.integer]]]) -> Discrimination:
    sites = {site: roc_auc(*scored) for site, scored in samples.items()}
    probability, truth = (np.concatenate(parts) for parts in zip(*samples.values(), strict=True))
    classes = class_roc_auc(probability, truth)
    return Discrimination(
        round=number, mean=_mean(sites.values()), pooled=_mean(classes), sites=sites, classes=classes
    )


def _area(scores: Scores, member: NDArray[np.bool_]) -> float | None:
    """The Mann-Whitney statistic over the number of pairs."""
    inside = int(member.sum())
    pairs = inside * (len(member) - inside)
    if not pairs:
        return None
    _, place, ties = np.unique(scores, return_inverse=True, return_counts=True)
    rank = (ties.cumsum() - (ties - 1) / 2)[place]
    return float((rank[member].sum() - inside * (inside + 1) / 2) / pairs)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
